"""The torch variants of ready-made operations against their NumPy bodies, and the same through a torch device."""

from __future__ import annotations

import numpy as np
import pytest

import coexec as cx
from coexec.geometry import Box, whole
from coexec.ops import attention, rowwise, sparse_bodies
from coexec.ops.matmul import NUMERICS
from coexec.program.chunk import ChunkInfo
from tests.ops.sparse_parts import FLOATS, numbers, scattered

torch = pytest.importorskip("torch")


def both(body, on_tensors, *arguments, out):
    """Return what a body and its torch variant compute."""
    results = []
    for function, convert in ((body, lambda a: a), (on_tensors, torch.from_numpy)):
        target = convert(out.copy())
        given = [convert(a.copy()) if isinstance(a, np.ndarray) else a for a in arguments]
        position = next(i for i, a in enumerate(given) if a is ...)
        function(*given[:position], target, *given[position + 1 :])
        results.append(np.asarray(target))
    return results


def agree(mine, other, ulp=NUMERICS.ulp):
    size = np.abs(mine).max(initial=1.0)
    assert (np.abs(mine - other) <= ulp * np.spacing(mine.dtype.type(size))).all()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("part", [slice(0, 40), slice(7, 31), slice(3, 4)])
def test_sparse_operations_agree_on_any_part(dtype, index, part):
    s = scattered(40, 30, dtype=dtype, index=index)
    inside = slice(s.indptr[part.start], s.indptr[part.stop])
    data, indices, ends = s.data[inside], s.indices[inside], s.indptr[part.start : part.stop + 1]
    a, b, rows = numbers((len(ends) - 1, 8), dtype), numbers((30, 8), dtype), len(ends) - 1
    agree(
        *both(
            sparse_bodies.multiply,
            sparse_bodies.multiply_torch,
            data,
            indices,
            ends,
            b,
            ...,
            out=np.empty((rows, 8), dtype),
        )
    )
    agree(
        *both(
            sparse_bodies.sample,
            sparse_bodies.sample_torch,
            data,
            indices,
            ends,
            a,
            b.T.copy(),
            ...,
            out=np.empty_like(data),
        )
    )
    agree(*both(sparse_bodies.normalize, sparse_bodies.normalize_torch, data, ends, ..., out=np.empty_like(data)))


@pytest.mark.parametrize("dtype", FLOATS)
def test_operations_of_neural_networks_agree(dtype):
    x = numbers((5, 7, 9), dtype) * 4
    out = np.empty_like(x)
    for axis in range(3):
        agree(*both(rowwise.softmax_body, rowwise.softmax_torch, x, ..., axis, out=out))
    vectors = numbers(9, dtype), numbers(9, dtype, 2)
    agree(*both(rowwise.layernorm_body, rowwise.layernorm_torch, x, *vectors, ..., 1e-5, out=out))
    agree(*both(rowwise.gelu_body, rowwise.gelu_torch, x, ..., out=out))
    agree(*both(rowwise.gelu_tanh_body, rowwise.gelu_tanh_torch, x, ..., out=out))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("rows", [(0, 150), (20, 110), (149, 150)])
def test_attention_agrees_on_any_part(dtype, rows):
    reach, space = 9, whole((2, 150, 6))
    box = Box((0, rows[0], 0), (2, rows[1], 6))
    near = attention.NeighbourRows(reach).box(box, space.hi, space.hi)
    chunk = ChunkInfo(box, space, {})
    q, k, v = (numbers(space.hi, dtype, seed) for seed in range(3))
    v[:, 60, 2] = np.inf
    part, seen = slice(*rows), slice(near.lo[1], near.hi[1])
    with np.errstate(invalid="ignore"):
        mine, other = both(
            attention.attend,
            attention.attend_torch,
            q[:, part].copy(),
            k[:, seen].copy(),
            v[:, seen].copy(),
            ...,
            reach,
            0.4,
            chunk,
            out=np.empty((2, rows[1] - rows[0], 6), dtype),
        )
    assert np.array_equal(np.isfinite(mine), np.isfinite(other))
    agree(np.nan_to_num(mine, posinf=0.0), np.nan_to_num(other, posinf=0.0))


def test_a_block_of_a_transformer_and_a_layer_of_a_graph_network_run_on_a_torch_device():
    s, x, w = scattered(60, 60), numbers((60, 16)), numbers((16, 8), seed=3)
    with cx.Runtime("torch:cpu"):
        matrix = cx.csr(s)
        hidden = cx.relu(matrix @ (cx.array(x) @ w))
        q = cx.layernorm(hidden)
        seen = cx.window_attention(q, q, hidden, 8)
        found = np.asarray(cx.gelu(cx.softmax(cx.sddmm(matrix, q, seen.T)) @ seen))
    with cx.Runtime("cpu:0"):
        matrix = cx.csr(s)
        hidden = cx.relu(matrix @ (cx.array(x) @ w))
        q = cx.layernorm(hidden)
        seen = cx.window_attention(q, q, hidden, 8)
        expected = np.asarray(cx.gelu(cx.softmax(cx.sddmm(matrix, q, seen.T)) @ seen))
    assert np.allclose(found, expected, rtol=1e-3, atol=1e-4)
