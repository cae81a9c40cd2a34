"""Sparse products, attention and rows are calibrated: designed calls compute what they say, and teach what never ran."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import coexec as cx
from coexec.calibrate.designs import DesignedCall, begin, designs
from tests.stream.test_results import opened

SMALL = 3e6  # operations: what is measured further takes longer than a test


def small(name: str) -> list[DesignedCall]:
    (design,) = designs([name])
    return [case for case in design.cases() if case.cost <= SMALL]


def test_sparse_cases_compute_products_of_one_matrix() -> None:
    by_op = {case.op: case for case in reversed(small("sparse"))}  # the smallest of each
    assert set(by_op) == {"spmm float32", "spmv float32", "sddmm float32"}
    with opened(devices="cpu:0"):
        for op, case in by_op.items():
            data, indices, ends, *others = case.inputs
            matrix = sp.csr_array((data, indices, ends), shape=(len(ends) - 1,) * 2)
            found = case.call(*begin(case))
            if op.startswith("sddmm"):
                rows = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
                dense = np.einsum("ik,ki->i", others[0][rows], others[1][:, indices])
                np.testing.assert_allclose(found.to_scipy().data, data * dense, rtol=1e-4)
            else:
                np.testing.assert_allclose(np.asarray(found), matrix @ others[0], rtol=1e-4)


@pytest.mark.parametrize("name", ["sparse", "attention", "rowwise"])
def test_what_was_measured_predicts_calls_of_sizes_that_never_ran(name: str) -> None:
    with opened(devices="cpu:0"):
        for case in small(name):
            for _ in range(3):
                case.call(*begin(case))
                cx.wait()
        x = cx.array(np.ones((700, 64), np.float32))
        if name == "sparse":
            matrix = cx.csr(
                sp.random_array((700, 700), density=0.01, format="csr", dtype=np.float32, rng=np.random.default_rng(0))
            )
            plans = [cx.spmm.plan(matrix, x)]
        elif name == "attention":
            plans = [cx.window_attention.plan(x, x, x, 48)]
        else:
            plans = [cx.softmax.plan(x), cx.layernorm.plan(x), cx.gelu.plan(x)]
        assert all(plan.predicted is not None for plan in plans)
