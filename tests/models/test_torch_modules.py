"""Torch modules that are not like most: models of them give what torch gives, whole, on two cores, and as planned for accelerators."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coexec as cx

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")
nn, functional = torch.nn, torch.nn.functional
Made = tuple[Any, Callable[..., Any], tuple[Any, ...]]


def dilated() -> Made:
    """Return a residual block with dilation, groups, and a bound that has parameters."""
    parts = nn.ModuleList([
        nn.Conv2d(12, 24, 3, padding=2, dilation=2, groups=4), nn.BatchNorm2d(24),
        nn.Conv2d(24, 12, (3, 1), padding=(3, 0), dilation=(3, 1), groups=2, bias=False),
        nn.Conv2d(12, 7, 5, stride=(2, 3)), nn.PReLU(7),
    ])  # fmt: skip
    parts[1].running_mean.uniform_()
    parts[1].running_var.uniform_(0.5, 2.0)

    def forward(x: Any) -> Any:
        y = parts[2](functional.silu(parts[1](parts[0](x)))) + x
        return parts[4](parts[3](functional.hardswish(y)))

    return parts, forward, (torch.randn(2, 12, 19, 17),)


def masked() -> Made:
    """Return attention of several heads that do not look ahead, and its weights."""
    parts = nn.ModuleList([nn.MultiheadAttention(32, 4, batch_first=True), nn.LayerNorm(32)])

    def forward(x: Any, mask: Any) -> Any:
        y, weights = parts[0](x, x, x, attn_mask=mask)
        return parts[1](x + y), weights

    return parts, forward, (torch.randn(2, 9, 32), torch.triu(torch.full((9, 9), -torch.inf), 1))


def recurrent() -> Made:
    """Return a classifier of words: two layers of LSTM in both directions."""
    parts = nn.ModuleList([
        nn.Embedding(50, 16), nn.LSTM(16, 24, num_layers=2, bidirectional=True, batch_first=True), nn.Linear(48, 5),
    ])  # fmt: skip

    def forward(words: Any) -> Any:
        y, (state, _) = parts[1](parts[0](words))
        return functional.log_softmax(parts[2](y.mean(1)), -1), state

    return parts, forward, (torch.randint(0, 50, (3, 7)),)


def decoder() -> Made:
    """Return a decoder: transposed convolutions, and all ways to make images larger."""
    parts = nn.ModuleList([
        nn.ConvTranspose2d(8, 6, 4, stride=2, padding=1, output_padding=1), nn.Conv2d(6, 4, 3, padding=1),
        nn.GroupNorm(2, 4), nn.ConvTranspose2d(4, 4, 3, stride=2, groups=2, dilation=2),
    ])  # fmt: skip

    def forward(x: Any) -> Any:
        y = functional.interpolate(functional.leaky_relu(parts[0](x)), scale_factor=2, mode="bilinear")
        y = functional.interpolate(parts[3](parts[2](parts[1](y))), size=(33, 29), mode="nearest")
        cubic = functional.interpolate(y, scale_factor=1.5, mode="bicubic", align_corners=True)
        linear = functional.interpolate(y, scale_factor=0.7, mode="bilinear", align_corners=True)
        return torch.sigmoid(cubic), linear, functional.pixel_shuffle(x, 2)

    return parts, forward, (torch.randn(1, 8, 5, 4),)


def several() -> Made:
    """Return a module with a signal, a vector, places and a volume as inputs."""
    parts = nn.ModuleList([nn.Conv1d(3, 8, 5, padding=2), nn.Linear(6, 8), nn.Conv3d(1, 2, 3)])

    def forward(signal: Any, vector: Any, places: Any, volume: Any) -> Any:
        u = functional.elu(parts[0](signal)).amax(2)
        v = torch.where(vector.mean(1, keepdim=True) > 0, parts[1](vector), -parts[1](vector))
        return torch.einsum("bi,bj->bij", u, v), u.gather(1, places), parts[2](volume).mean((2, 3, 4)).repeat(1, 2)

    return parts, forward, (torch.randn(2, 3, 11), torch.randn(2, 6), torch.randint(0, 8, (2, 3)), torch.randn(2, 1, 5, 6, 7))  # fmt: skip


def causal() -> Made:
    """Return a decoder of words with tied weights: attention that does not look ahead, by torch's own function."""
    parts = nn.ModuleList([nn.Embedding(20, 16), nn.Linear(16, 48), nn.Linear(16, 16)])

    def forward(words: Any) -> Any:
        x = parts[0](words)
        heads = parts[1](functional.layer_norm(x, (16,))).chunk(3, -1)
        q, k, v = (one.view(len(words), -1, 4, 4).transpose(1, 2) for one in heads)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return functional.rms_norm(x + parts[2](seen.transpose(1, 2).reshape(x.shape)), (16,)) @ parts[0].weight.T

    return parts, forward, (torch.randint(0, 20, (3, 9)),)


def joined() -> Made:
    """Return a U-net: what was made smaller is made larger again, and joined with what it was made of."""
    parts = nn.ModuleList([
        nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1), nn.GroupNorm(4, 16),
        nn.ConvTranspose2d(16, 8, 2, stride=2), nn.Conv2d(16, 2, 1),
    ])  # fmt: skip

    def forward(x: Any) -> Any:
        wide = functional.relu(parts[0](x))
        deep = functional.silu(parts[2](parts[1](functional.max_pool2d(wide, 2))))
        return {"masks": parts[4](torch.cat([wide, parts[3](deep)], 1)), "deep": deep.amax((2, 3))}

    return parts, forward, (torch.randn(1, 3, 14, 10),)


def windows() -> Made:
    """Return attention within windows of an image that was rolled, with a bias for each pair of places."""
    parts = nn.ModuleList([nn.Linear(8, 24)])
    bias = torch.randn(2, 4, 4)

    def forward(x: Any) -> Any:
        batch, rows, columns, width = torch.roll(x, (-1, -1), (1, 2)).shape
        tiles = torch.roll(x, (-1, -1), (1, 2)).view(batch, rows // 2, 2, columns // 2, 2, width)
        tiles = tiles.permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, width)
        q, k, v = parts[0](tiles).view(-1, 4, 3, 2, 4).permute(2, 0, 3, 1, 4)
        y = (((q * 0.5) @ k.transpose(-2, -1) + bias).softmax(-1) @ v).transpose(1, 2).reshape(-1, 4, width)
        return y.view(batch, rows // 2, columns // 2, 2, 2, width).permute(0, 1, 3, 2, 4, 5).reshape(x.shape)

    return parts, forward, (torch.randn(2, 6, 4, 8),)


def experts() -> Made:
    """Return experts of which each row has its two best, and what they were."""
    parts = nn.ModuleList([nn.Linear(6, 4), nn.Linear(6, 24, bias=False)])

    def forward(x: Any) -> Any:
        share, chosen = functional.softmax(parts[0](x), -1).topk(2)
        every = parts[1](x).view(-1, 4, 6)
        mixed = (every.gather(1, chosen[..., None].expand(-1, -1, 6)) * share[..., None]).sum(1)
        return mixed, chosen, torch.scatter(torch.zeros(len(x), 4), 1, chosen, share)

    return parts, forward, (torch.randn(5, 6),)


def module_of(make: Callable[[], Made]) -> tuple[Any, tuple[Any, ...]]:
    """Return a module and an example for it."""
    torch.manual_seed(0)
    parts, forward, example = make()

    class Made(nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.parts = parts

        def forward(self, *given: Any) -> Any:
            return forward(*given)

    return Made().eval(), example


def several_of(found: Any) -> tuple[Any, ...]:
    if isinstance(found, dict):
        return tuple(found.values())
    return found if isinstance(found, tuple) else (found,)


def test_a_module_that_torch_cannot_export_is_refused_in_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    class Deciding(nn.Module):  # type: ignore[name-defined,misc]
        def forward(self, x: Any) -> Any:
            return x if x.sum() > 0 else -x

    with pytest.raises(cx.errors.ModelError, match="torch cannot export Deciding: Could not guard") as found:
        cx.Model.from_torch(Deciding().eval(), torch.ones(3))
    assert "\n" not in str(found.value)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "make",
    [dilated, masked, recurrent, decoder, several, causal, joined, windows, experts],
    ids=lambda make: make.__name__,
)
def test_an_unusual_module_gives_what_torch_gives(make: Callable[[], Made], tmp_path: Path) -> None:
    module, example = module_of(make)
    with torch.no_grad():
        right = [value.numpy() for value in several_of(module(*example))]
    model = cx.Model.from_torch(module, example)
    model.save(tmp_path / "saved.onnx")
    given = [value.numpy() for value in example]

    def check(found: Any) -> None:
        for one, expected in zip(several_of(found), right, strict=True):
            np.testing.assert_allclose(one, expected, rtol=1e-4, atol=2e-5)

    with cx.Runtime("cpu:0", store="off"):
        check(model(*given))
        check(cx.Model.from_onnx(tmp_path / "saved.onnx")(*given))
    with cx.Runtime("cpu:0,cpu:1", store="off", diagnostics="off"):
        check(model(*given))
        check(model(*given, plan=model.plan(budget=0.2)))
    plan = model.plan("f1.16xlarge", budget=5)
    with cx.Runtime(platform="f1.16xlarge", execute=True, store="off", diagnostics="off"):
        check(model(*given, plan=plan))
