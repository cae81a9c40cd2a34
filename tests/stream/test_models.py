"""A model inside a pipeline: its layers are calls like any others, placed on stages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coexec as cx
from tests.stream.test_results import opened


@pytest.mark.parametrize("machine", [{"devices": "cpu:0,cpu:1"}, {"platform": "dype-pcie4", "execute": True}])
def test_a_model_may_be_a_part_of_the_function(machine: dict[str, Any]) -> None:
    model = cx.Model.named("encoder", length=8, width=16, blocks=1, heads=2)
    shape = next(iter(model.inputs.values())).shape

    def scores(item: Any) -> Any:
        return np.tanh(model(item * 0.5))

    random = np.random.default_rng(0)
    given_items = [random.standard_normal(shape).astype(np.float32) for _ in range(5)]
    with opened(devices="cpu:0"):
        expected = [np.tanh(np.asarray(model(item * np.float32(0.5)))) for item in given_items]
    with opened(**machine):
        pipe = cx.Pipeline(scores)
        found = pipe.map(given_items)
        assert sum(len(stage["kernels"]) for stage in pipe.stats()["stages"]) > 5
    for result, values in zip(found, expected, strict=True):
        np.testing.assert_allclose(result, values, rtol=1e-4, atol=1e-5)


def test_what_only_the_host_can_compute_is_part_of_a_pipeline_on_other_devices() -> None:
    pytest.importorskip("torch")

    def doubled(x: Any) -> Any:
        return cx.sum(x * 2.0), x + 1.0

    given_items = [np.full((8, 8), number, np.float32) for number in range(5)]
    with opened(devices="torch:cpu"):
        found = cx.Pipeline(doubled).map(given_items)
    for item, (total, more) in zip(given_items, found, strict=True):
        assert float(total) == 2.0 * float(item.sum())
        np.testing.assert_array_equal(more, item + 1.0)
