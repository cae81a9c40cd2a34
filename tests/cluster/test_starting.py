"""Ranks that coexec starts itself: all of them, watched until the last one ends."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coexec.cluster import starting
from coexec.cluster.starting import Local
from coexec.errors import ConfigError


def run(ranks: int, script: str, **more: str) -> tuple[int, list[str]]:
    said: list[str] = []
    return Local(said.append).run(ranks, ["sh", "-c", script], {**os.environ, **more}), said


def test_every_rank_knows_its_number_and_where_to_meet(tmp_path: Path) -> None:
    assert run(3, 'echo "$CX_RANK $CX_SIZE $CX_MEET" > "$OUT/$CX_RANK"', OUT=str(tmp_path)) == (0, [])
    found = [(tmp_path / str(rank)).read_text().split() for rank in range(3)]
    assert [(rank, size) for rank, size, _ in found] == [("0", "3"), ("1", "3"), ("2", "3")]
    assert len({meet for *_, meet in found}) == 1 and found[0][2].startswith("file:")
    assert not Path(found[0][2][5:]).parent.exists()


def test_the_exit_code_is_that_of_the_rank_that_failed() -> None:
    assert run(3, '[ "$CX_RANK" = 1 ] && exit 7; exit 0') == (7, ["rank 1 ended with exit code 7"])
    assert run(2, '[ "$CX_RANK" = 1 ] && kill -KILL $$; exit 0') == (137, ["rank 1 ended with signal 9"])


def test_ranks_that_stay_behind_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "GRACE", 0.0)
    monkeypatch.setattr(starting, "LAST", 0.0)
    code, said = run(2, 'if [ "$CX_RANK" = 1 ]; then exit 3; fi; trap "" TERM; while true; do sleep 0.1; done')
    assert code == 3
    assert said[:2] == ["rank 1 ended with exit code 3", "rank 0 did not end, and is sent SIGTERM"]
    assert said[-1] == "rank 0 ended with signal 9"


def test_no_rank_is_refused() -> None:
    with pytest.raises(ConfigError, match="0 ranks cannot do anything"):
        run(0, "true")
