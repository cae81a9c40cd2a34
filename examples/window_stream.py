"""A stream of texts through a transformer block whose rows see a window of their neighbours: attention, products, norms.

Run it with: python examples/window_stream.py [LENGTH] [ITEMS] [WINDOW] [--timeline FILE.svg]
Plan it for a machine that you do not have: coexec plan pipeline examples/window_stream.py:block --platform dype-pcie4
"""

import numpy as np
from streaming import arguments, shown

import coexec as cx

WIDTH, HEADS = 64, 4


def layer(x, window, wq, wk, wv, wo, up, down, scale, shift):
    """Return a block with two residuals; x has a row for each token."""
    q, k, v = (cx.matmul(x, w) for w in (wq, wk, wv))
    joined = cx.empty(x.shape, x.dtype)
    for head in range(HEADS):
        columns = slice(head * WIDTH // HEADS, (head + 1) * WIDTH // HEADS)
        cx.window_attention(q[:, columns], k[:, columns], v[:, columns], window, out=joined[:, columns])
    h = cx.layernorm(x + cx.matmul(joined, wo), scale, shift)
    return cx.layernorm(h + cx.matmul(cx.gelu(cx.matmul(h, up)), down), scale, shift)


def _heads(x):
    return x.reshape(len(x), HEADS, -1).transpose(1, 0, 2)


def with_numpy(x, window, wq, wk, wv, wo, up, down, scale, shift):
    from scipy.special import erf

    def norm(y):
        y = (y - y.mean(-1, keepdims=True)) / np.sqrt(y.var(-1, keepdims=True) + 1e-5)
        return y * scale + shift

    q, k, v = (_heads(x @ w) for w in (wq, wk, wv))
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
    far = np.abs(np.subtract.outer(np.arange(len(x)), np.arange(len(x)))) > window // 2
    scores = np.exp(np.where(far, -np.inf, scores) - np.where(far, -np.inf, scores).max(-1, keepdims=True))
    joined = (scores / scores.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(x.shape)
    h = norm(x + joined @ wo)
    inner = h @ up
    return norm(h + (inner * 0.5 * (1 + erf(inner / np.sqrt(2)))) @ down)


def start(length, count):
    """Return items and weights."""
    random = np.random.default_rng(0)
    items = [random.standard_normal((length, WIDTH)).astype(np.float32) for _ in range(count)]
    shapes = dict.fromkeys(("wq", "wk", "wv", "wo"), (WIDTH, WIDTH))
    shapes |= {"up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
    weights = {name: (random.standard_normal(shape) / 8).astype(np.float32) for name, shape in shapes.items()}
    return items, weights | {"scale": np.ones(WIDTH, np.float32), "shift": np.zeros(WIDTH, np.float32)}


def block(length=2048, window=256):
    """Return the pipeline and a sample, for `coexec plan pipeline`."""
    items, weights = start(length, 1)
    return cx.Pipeline(layer, window=window, **weights), items[0]


def main(length=1024, count=16, window=128, timeline=""):
    items, weights = start(length, count)
    constants = {"window": window, **weights}
    what = f"{length} tokens, window {window}"
    shown(what, layer, constants, items, lambda x: with_numpy(x, **constants), timeline)


if __name__ == "__main__":
    main(**arguments(__doc__, length=1024, count=16, window=128))
