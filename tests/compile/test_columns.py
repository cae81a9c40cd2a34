"""Columns of tables that each row of a result goes through: copied once, with NumPy's bits, also where they change meanwhile."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from coexec.compile import Compiled, compile_body
from coexec.compile.columns import columns_copied
from coexec.compile.schedule import overlaps_kept, stale_kept
from coexec.compile.trace import trace
from tests.compile.random_bodies import bits

pytest.importorskip("llvmlite")
BODIES = {
    "pairs": "out[...] = table[:, 1][None, :] - mine[:, 0][:, None]",
    "gravity": (
        "d = [b[None, :] - a[:, None] for a, b in zip(mine.T, table.T)]; w = (d[0]**2 + d[1]**2 + 0.1) ** 1.5; "
        "out[...] = w * d[2]; sums[...] = np.stack([(w * x).sum(axis=1) for x in d], axis=1)"
    ),
    "backwards": "out[...] = mine[:, :1] * table[::-1, 2]",
    "every other": "out[:, :4] = mine[:, 1:2] * table[0:8:2, 1]",
    "written between": "t = table[:, 0][None, :] * mine[:, :1]; table[:, 0] = 7; out[...] = t + table[:, 0][None, :]",
    "written in place": "table *= 2; out[...] = table[:, 1] + mine[:, 2:]; table += 1; out += table[:, 1]",
    "one row only": "out[...] = 0; out[:1] = table[:, 1][None, :]",
    "of a temporary": "t = table + 1; t[0] = 5; out[...] = t[:, 2] * mine[:, :1]",
}


def body_of(text: str) -> Any:
    space: dict[str, Any] = {"np": np}
    exec("def body(table, mine, out, sums):\n    " + text, space)
    return space["body"]


def arguments(rows: int, columns: int, dtype: str) -> dict[str, Any]:
    rng = np.random.default_rng(rows)
    table, mine = rng.normal(size=(columns, 3)).astype(dtype), rng.normal(size=(rows, 3)).astype(dtype)
    return {"table": table, "mine": mine, "out": np.zeros((rows, columns), dtype), "sums": np.zeros((rows, 3), dtype)}


@pytest.mark.parametrize("dtype", ["f8", "f4", "i4"])
@pytest.mark.parametrize("name", BODIES)
def test_columns_have_numpys_bits(name: str, dtype: str) -> None:
    if dtype == "i4" and name == "gravity":
        dtype = "f8"
    body, form = body_of(BODIES[name]), None
    for rows, columns in ((20, 33), (5, 8), (3, 130), (40, 9)):
        wanted, got = arguments(rows, columns, dtype), arguments(rows, columns, dtype)
        with np.errstate(all="ignore"):
            body(**wanted)
            form = form or compile_body(body, got, writes=("table", "out", "sums"))
            assert isinstance(form, Compiled), form
            assert form(*got.values()) == ""
        for key, value in wanted.items():
            np.testing.assert_array_equal(bits(got[key]), bits(value), key)


def copies(text: str) -> int:
    traced = trace(body_of(text), arguments(20, 33, "f8"), ("table", "out", "sums"))
    stores = overlaps_kept(stale_kept(list(traced.stores)))
    return len(columns_copied(stores)) - len(stores)


def test_a_column_is_copied_once_however_often_it_is_read_and_only_if_rows_share_it() -> None:
    assert copies(BODIES["gravity"]) == 3
    assert copies("out[...] = table[:, 1] + mine[:, :1] * table[:, 1]") == 1
    assert copies("out[...] = mine[:, :1] * 2") == 0  # one element for each row
    assert copies("sums[...] = mine[:, ::-1]") == 0  # each element is read once
    assert copies(BODIES["one row only"]) == 0
