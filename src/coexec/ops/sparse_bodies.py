"""The bodies of sparse operations: SciPy and NumPy on the host, torch on tensors.

Before: nothing.  After: ops/sparse.py, ops/rowwise.py.  Each works on the rows of a chunk: `indptr` may begin with any number.
"""

from __future__ import annotations

from typing import Any

import numpy as np

GATHERED = 1 << 16
"""Elements of gathered rows that are worked on at once: they stay in a core's second cache."""


def multiply(data: Any, indices: Any, indptr: Any, b: Any, out: Any) -> None:
    """Multiply sparse rows with a dense matrix."""
    from scipy.sparse import csr_array

    rows = csr_array((data, indices, indptr - indptr[0]), shape=(len(out), len(b)), copy=False)
    if b.shape[1] == 1:
        out[:, 0] = rows @ b[:, 0]
    else:
        out[...] = rows @ b


def multiply_torch(data: Any, indices: Any, indptr: Any, b: Any, out: Any) -> None:
    """Multiply sparse rows with a dense matrix: each result is a weighted sum of rows of it."""
    import torch

    if not len(data):
        out.zero_()
        return
    out[...] = torch.nn.functional.embedding_bag(
        indices,
        b.contiguous(),
        indptr - indptr[0],
        mode="sum",
        per_sample_weights=data.contiguous(),
        include_last_offset=True,
    )


def sample(data: Any, indices: Any, indptr: Any, a: Any, b: Any, out: Any) -> None:
    """Multiply stored elements with those of a product of dense matrices, and compute no others of it."""
    rows = np.repeat(np.arange(len(a)), np.diff(indptr))
    by_column = b.T
    step = max(1, GATHERED // max(1, a.shape[1]))
    for first in range(0, len(out), step):
        part = slice(first, first + step)
        found = np.einsum("ij,ij->i", a[rows[part]], by_column[indices[part]])
        np.multiply(data[part], found, out=out[part])


def sample_torch(data: Any, indices: Any, indptr: Any, a: Any, b: Any, out: Any) -> None:
    """Do the same on tensors."""
    import torch

    counts = indptr[1:] - indptr[:-1]
    rows = torch.repeat_interleave(torch.arange(len(a), device=a.device), counts)
    by_column = b.T
    step = max(1, GATHERED // max(1, a.shape[1]))
    for first in range(0, len(out), step):
        part = slice(first, first + step)
        out[part] = data[part] * (a[rows[part]] * by_column[indices[part].long()]).sum(1)


def normalize(data: Any, indptr: Any, out: Any) -> None:
    """Exponentiate the stored elements of each row and divide them by their sum."""
    counts = np.diff(indptr)
    present = counts > 0
    if not present.any():
        return
    starts, lengths = (indptr[:-1] - indptr[0])[present], counts[present]
    np.subtract(data, np.repeat(np.maximum.reduceat(data, starts), lengths), out=out)
    np.exp(out, out=out)
    out /= np.repeat(np.add.reduceat(out, starts), lengths)


def normalize_torch(data: Any, indptr: Any, out: Any) -> None:
    """Do the same on tensors."""
    import torch

    counts = indptr[1:] - indptr[:-1]
    rows = torch.repeat_interleave(torch.arange(len(counts), device=data.device), counts)
    largest = torch.full((len(counts),), -torch.inf, dtype=data.dtype, device=data.device)
    largest.scatter_reduce_(0, rows, data, "amax")
    torch.exp(data - largest[rows], out=out)
    sums = torch.zeros(len(counts), dtype=data.dtype, device=data.device)
    sums.index_add_(0, rows, out)
    out /= sums[rows]
