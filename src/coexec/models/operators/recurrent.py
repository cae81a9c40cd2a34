"""Recurrent operators: LSTM, GRU and RNN, one kernel for all steps, which may be divided by sequences of the batch.

Before: models/operators/calls.py.  After: models/operators/table.py.  Knows no device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...errors import UnsupportedError
from ...program import array as arrays
from ...program.array import Array
from .calls import OpCall, Run, kernel_of, whole

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
USUAL = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
Function = Callable[[Any], Any]


class RecurrentCell(NamedTuple):
    """What a recurrent kernel is made for."""

    kind: str
    hidden: int
    functions: tuple[tuple[str, float, float], ...]  # of all directions: name, alpha, beta
    direction: str
    clip: float
    linear: bool  # GRU: the reset gate comes after the product
    forget: bool  # LSTM: input and forget gates are one
    given: tuple[bool, ...]  # which of bias, lengths, initial state, initial cell, peepholes there are
    batch_first: bool
    results: int


def activation(name: str, alpha: float, beta: float) -> Function:
    """Return a gate's function."""
    from scipy.special import expit

    known: dict[str, Function] = {
        "Sigmoid": expit, "Tanh": np.tanh, "Relu": lambda x: np.maximum(x, 0),
        "LeakyRelu": lambda x: np.where(x >= 0, x, alpha * x), "ThresholdedRelu": lambda x: np.where(x > alpha, x, 0),
        "HardSigmoid": lambda x: np.clip(alpha * x + beta, 0, 1), "Softsign": lambda x: x / (1 + np.abs(x)),
        "Softplus": lambda x: np.logaddexp(x, 0), "Elu": lambda x: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0))),
        "Affine": lambda x: alpha * x + beta, "ScaledTanh": lambda x: alpha * np.tanh(beta * x),
    }  # fmt: skip
    return known[name]


NAMES = ("Sigmoid", "Tanh", "Relu", "LeakyRelu", "ThresholdedRelu", "HardSigmoid", "Softsign", "Softplus", "Elu",
         "Affine", "ScaledTanh")  # fmt: skip
FACTORS = {"LeakyRelu": (0.01, 0.0), "ThresholdedRelu": (1.0, 0.0), "HardSigmoid": (0.2, 0.5), "Elu": (1.0, 0.0),
           "Affine": (1.0, 0.0), "ScaledTanh": (1.0, 1.0)}  # fmt: skip
"""alpha and beta where a model gives none."""


def recurrent_body(*values: Any) -> None:
    """Run all steps of all directions."""
    cell: RecurrentCell = values[-1]
    x, w, r = values[:3]
    rest = list(values[3:-1])
    outputs = rest[len(rest) - cell.results :]
    optional = iter(rest[: len(rest) - cell.results])
    bias, lengths, state, memory, peep = (next(optional) if has else None for has in cell.given)
    if cell.batch_first:
        x = np.swapaxes(x, 0, 1)
        state, memory = (None if s is None else np.swapaxes(s, 0, 1) for s in (state, memory))
    batch = x.shape[1]
    found = []
    for d in range(len(w)):
        h = np.zeros((batch, cell.hidden), x.dtype) if state is None else state[d].copy()
        c = np.zeros((batch, cell.hidden), x.dtype) if memory is None else memory[d].copy()
        run = _Direction(cell, d, w[d], r[d], None if bias is None else bias[d], None if peep is None else peep[d])
        backward = cell.direction == "reverse" or d == 1
        found.append(_steps(run, x, h, c, lengths, backward=backward))
    _write(cell, outputs, found)


def _steps(run: _Direction, x: Any, h: Any, c: Any, lengths: Any, *, backward: bool) -> tuple[Any, Any, Any]:
    """Return all states in the order of time, and the last ones; sequences that are over keep theirs."""
    steps = len(x)
    every = np.zeros((steps, *h.shape), x.dtype)
    long = np.full(h.shape[0], steps) if lengths is None else np.asarray(lengths)
    for t in range(steps):
        at = np.where(backward, long - 1 - t, t)
        active = t < long
        rows = np.flatnonzero(active)
        if not len(rows):
            break
        new_h, new_c = run(x[at[rows], rows], h[rows], c[rows])
        h[rows], c[rows] = new_h, new_c
        every[at[rows], rows] = new_h
    return every, h, c


def _write(cell: RecurrentCell, outputs: list[Any], found: list[tuple[Any, Any, Any]]) -> None:
    """Run _write."""
    every = np.stack([y for y, _, _ in found], axis=1)
    last = [np.stack([f[i] for f in found]) for i in (1, 2)]
    if cell.batch_first:
        every = every.transpose(2, 0, 1, 3)
        last = [np.swapaxes(v, 0, 1) for v in last]
    for out, value in zip(outputs, (every, *last), strict=False):
        out[...] = value


class _Direction:
    """One direction of a recurrent layer: a step from (input, state, memory) to (state, memory)."""

    def __init__(self, cell: RecurrentCell, direction: int, w: Any, r: Any, bias: Any, peep: Any) -> None:
        count = len(USUAL[cell.kind])
        self.cell, self.w, self.r = cell, w.T, r.T
        self.functions = [activation(*f) for f in cell.functions[direction * count : (direction + 1) * count]]
        n = GATES[cell.kind] * cell.hidden
        self.wb: Any = 0 if bias is None else bias[:n]
        self.rb: Any = 0 if bias is None else bias[n:]
        self.peep = np.zeros(3 * cell.hidden, w.dtype) if peep is None else peep

    def __call__(self, x: Any, h: Any, c: Any) -> tuple[Any, Any]:
        return {"RNN": self.rnn, "GRU": self.gru, "LSTM": self.lstm}[self.cell.kind](x, h, c)

    def clipped(self, x: Any) -> Any:
        return np.clip(x, -self.cell.clip, self.cell.clip) if self.cell.clip else x

    def rnn(self, x: Any, h: Any, c: Any) -> tuple[Any, Any]:
        return self.functions[0](self.clipped(x @ self.w + h @ self.r + self.wb + self.rb)), c

    def gru(self, x: Any, h: Any, c: Any) -> tuple[Any, Any]:
        n = self.cell.hidden
        inner, outer = x @ self.w + self.wb, h @ self.r[:, : 2 * n]
        rb = np.zeros(3 * n, x.dtype) + self.rb
        update = self.functions[0](self.clipped(inner[:, :n] + outer[:, :n] + rb[:n]))
        reset = self.functions[0](self.clipped(inner[:, n : 2 * n] + outer[:, n:] + rb[n : 2 * n]))
        if self.cell.linear:
            new = inner[:, 2 * n :] + reset * (h @ self.r[:, 2 * n :] + rb[2 * n :])
        else:
            new = inner[:, 2 * n :] + (reset * h) @ self.r[:, 2 * n :] + rb[2 * n :]
        return (1 - update) * self.functions[1](self.clipped(new)) + update * h, c

    def lstm(self, x: Any, h: Any, c: Any) -> tuple[Any, Any]:
        gates = x @ self.w + h @ self.r + self.wb + self.rb
        i, o, f, g = (gates[:, k * self.cell.hidden : (k + 1) * self.cell.hidden] for k in range(4))
        pi, po, pf = np.split(self.peep, 3)
        one, two, three = self.functions
        i = one(self.clipped(i + pi * c))
        f = 1 - i if self.cell.forget else one(self.clipped(f + pf * c))
        c = f * c + i * two(self.clipped(g))
        return one(self.clipped(o + po * c)) * three(c), c


def recurrent(call: OpCall) -> list[Array]:
    """Run LSTM, GRU, RNN."""
    kind = call.node.kind
    x, w, r = (call.array(i) for i in range(3))
    directions = w.shape[0]
    names = [str(n) for n in call.attribute("activations", USUAL[kind] * directions)]
    if unknown := [n for n in names if n not in NAMES]:
        raise UnsupportedError(f"{kind} {call.node.name!r}: activation {unknown[0]!r} is not known")
    alphas, betas = iter(call.attribute("activation_alpha", ())), iter(call.attribute("activation_beta", ()))
    functions = tuple(
        (n, float(next(alphas, FACTORS[n][0])), float(next(betas, FACTORS[n][1]))) if n in FACTORS else (n, 0.0, 0.0)
        for n in names
    )
    positions = (3, 4, 5, 6, 7) if kind == "LSTM" else (3, 4, 5)
    given = [call.has(p) for p in positions]
    shape = _result_shapes(call, x, directions)
    cell = RecurrentCell(
        kind, int(call.attribute("hidden_size", r.shape[-1])), functions, str(call.attribute("direction", "forward")),
        call.number("clip", 0.0), call.flag("linear_before_reset"), call.flag("input_forget"),
        (*given, *(False,) * (5 - len(given))), call.flag("layout"), len(shape),
    )  # fmt: skip
    operands = [x, w, r, *(call.array(p) for p in positions if call.has(p))]
    results = [arrays.empty(s, x.dtype) for s in shape]
    kernel_of(whole(recurrent_body, len(operands), cell, outputs=len(results), name=kind.lower()))(*operands, *results)
    return results[: len(call.wanted)]


def _result_shapes(call: OpCall, x: Array, directions: int) -> list[tuple[int, ...]]:
    """Run _result_shapes."""
    hidden = int(call.attribute("hidden_size", call.array(2).shape[-1]))
    batch_first = call.flag("layout")
    steps, batch = (x.shape[1], x.shape[0]) if batch_first else x.shape[:2]
    every = (batch, steps, directions, hidden) if batch_first else (steps, directions, batch, hidden)
    last = (batch, directions, hidden) if batch_first else (directions, batch, hidden)
    return [every, last, last][: 3 if call.node.kind == "LSTM" else 2]


RECURRENT: dict[str, Run] = dict.fromkeys(GATES, recurrent)
