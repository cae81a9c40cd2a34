"""Well-known image networks as layer graphs, by their published definitions, for images of 224 x 224 unless told.

Before: models/building.py.  After: models/catalogue.py.  Batch normalisation counts as folded into the convolutions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .building import NetBuilder
from .values import LayerGraph

IMAGE = 224
"""Rows and columns of an image."""
CLASSES = 1000


def alexnet(image: int = IMAGE, batch: int = 1) -> LayerGraph:
    """AlexNet, as torchvision defines it: one tower."""
    net = NetBuilder("alexnet")
    x = net.input("image", (batch, 3, image, image))
    x = net.pool(net.same("Relu", net.conv(x, 64, 11, 4, 2)), 3, 2)
    x = net.pool(net.same("Relu", net.conv(x, 192, 5)), 3, 2)
    for filters in (384, 256, 256):
        x = net.same("Relu", net.conv(x, filters, 3))
    x = net.flatten(net.pool(x, 3, 2))
    for width in (4096, 4096):
        x = net.same("Relu", net.fc(x, width))
    return net.done(net.fc(x, CLASSES))


def vgg16(image: int = IMAGE, batch: int = 1) -> LayerGraph:
    """VGG with sixteen layers (configuration D)."""
    net = NetBuilder("vgg16")
    x = net.input("image", (batch, 3, image, image))
    for filters, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            x = net.same("Relu", net.conv(x, filters, 3))
        x = net.pool(x, 2, 2)
    x = net.flatten(x)
    for width in (4096, 4096):
        x = net.same("Relu", net.fc(x, width))
    return net.done(net.fc(x, CLASSES))


def _stem(net: NetBuilder, image: int, batch: int) -> str:
    x = net.input("image", (batch, 3, image, image))
    return net.pool(net.same("Relu", net.conv(x, 64, 7, 2)), 3, 2, 1)


def _head(net: NetBuilder, x: str) -> LayerGraph:
    return net.done(net.fc(net.flatten(net.global_pool(x)), CLASSES))


def _shortcut(net: NetBuilder, x: str, filters: int, stride: int) -> str:
    return x if net.shape(x)[1] == filters and stride == 1 else net.conv(x, filters, 1, stride)


def _basic(name: str, counts: Sequence[int], image: int, batch: int) -> LayerGraph:
    """Residual network of blocks with two convolutions of 3 x 3."""
    net = NetBuilder(name)
    x = _stem(net, image, batch)
    for stage, count in enumerate(counts):
        for block in range(count):
            filters, stride = 64 << stage, 2 if stage and not block else 1
            y = net.conv(net.same("Relu", net.conv(x, filters, 3, stride)), filters, 3)
            x = net.same("Relu", net.same("Add", y, _shortcut(net, x, filters, stride)))
    return _head(net, x)


def _bottleneck(name: str, counts: Sequence[int], image: int, batch: int, wide: int = 1) -> LayerGraph:
    """Residual network of blocks 1 x 1, 3 x 3, 1 x 1; the stride is in the 3 x 3."""
    net = NetBuilder(name)
    x = _stem(net, image, batch)
    for stage, count in enumerate(counts):
        for block in range(count):
            filters, stride = 64 << stage, 2 if stage and not block else 1
            y = net.same("Relu", net.conv(x, filters * wide, 1))
            y = net.conv(net.same("Relu", net.conv(y, filters * wide, 3, stride)), 4 * filters, 1)
            x = net.same("Relu", net.same("Add", y, _shortcut(net, x, 4 * filters, stride)))
    return _head(net, x)


def resnet18(image: int = IMAGE, batch: int = 1) -> LayerGraph:
    """Residual network with 18 layers."""
    return _basic("resnet18", (2, 2, 2, 2), image, batch)


def resnet34(image: int = IMAGE, batch: int = 1) -> LayerGraph:
    """Residual network with 34 layers."""
    return _basic("resnet34", (3, 4, 6, 3), image, batch)


def resnet50(image: int = IMAGE, batch: int = 1) -> LayerGraph:
    """Residual network with 50 layers."""
    return _bottleneck("resnet50", (3, 4, 6, 3), image, batch)


def resnet101(image: int = IMAGE, batch: int = 1) -> LayerGraph:
    """Residual network with 101 layers."""
    return _bottleneck("resnet101", (3, 4, 23, 3), image, batch)


def wide_resnet50_2(image: int = IMAGE, batch: int = 1) -> LayerGraph:
    """ResNet50 with twice the filters inside its blocks."""
    return _bottleneck("wide_resnet50_2", (3, 4, 6, 3), image, batch, wide=2)


MOBILE = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""MobileNetV2's stages: expansion, channels, blocks, stride of the first."""


def mobilenet_v2(image: int = IMAGE, batch: int = 1) -> LayerGraph:
    """MobileNetV2 of width 1: inverted residuals with depthwise convolutions."""
    net = NetBuilder("mobilenet_v2")

    bounds = [net.constant(f"bound{n}", np.array(n, np.float32)) for n in (0, 6)]

    def clipped(value: str) -> str:
        return net.add_operation("Clip", (value, *bounds), net.shape(value))

    x = net.input("image", (batch, 3, image, image))
    x = clipped(net.conv(x, 32, 3, 2))
    for expansion, filters, count, first in MOBILE:
        for block in range(count):
            stride, channels = (first if not block else 1), net.shape(x)[1]
            hidden = channels * expansion
            y = clipped(net.conv(x, hidden, 1)) if expansion > 1 else x
            y = net.conv(clipped(net.conv(y, hidden, 3, stride, groups=hidden)), filters, 1)
            x = net.same("Add", x, y) if stride == 1 and channels == filters else y
    return _head(net, clipped(net.conv(x, 1280, 1)))


# Attention ------------------------------------------------------------------------------------------------------------------


def _dense(net: NetBuilder, x: str, width: int, name: str) -> str:
    """Multiply rows by a stored matrix and add a bias."""
    weights = net.parameter(f"{name}.weight", (net.shape(x)[-1], width))
    return net.same("Add", net.matmul(x, weights, name), net.parameter(f"{name}.bias", (width,)))


def _normal(net: NetBuilder, x: str, name: str) -> str:
    width = net.shape(x)[-1]
    scale, bias = net.parameter(f"{name}.scale", (width,)), net.parameter(f"{name}.bias", (width,))
    return net.add_operation("LayerNormalization", (x, scale, bias), net.shape(x), name, axis=-1, epsilon=1e-5)


def _attention(net: NetBuilder, x: str, heads: int, name: str) -> str:
    batch, length, width = net.shape(x)

    def split(value: str, order: Sequence[int]) -> str:
        return net.transpose(net.reshape(value, (batch, length, heads, width // heads)), order)

    q = split(_dense(net, x, width, f"{name}.q"), (0, 2, 1, 3))
    k = split(_dense(net, x, width, f"{name}.k"), (0, 2, 3, 1))
    v = split(_dense(net, x, width, f"{name}.v"), (0, 2, 1, 3))
    scores = net.matmul(q, k, f"{name}.scores")
    scale = net.add_operation("Identity", (net.parameter(f"{name}.scale", ()),), ())
    mixed = net.matmul(net.same("Softmax", net.same("Mul", scores, scale), axis=-1), v, f"{name}.mix")
    joined = net.reshape(net.transpose(mixed, (0, 2, 1, 3)), (batch, length, width))
    return _dense(net, joined, width, f"{name}.out")


def _blocks(net: NetBuilder, x: str, blocks: int, heads: int, wide: int) -> str:
    width = net.shape(x)[-1]
    for block in range(blocks):
        x = net.same("Add", x, _attention(net, _normal(net, x, f"norm{block}a"), heads, f"block{block}"))
        y = _dense(net, _normal(net, x, f"norm{block}b"), wide, f"block{block}.up")
        x = net.same("Add", x, _dense(net, net.same("Gelu", y), width, f"block{block}.down"))
    return _normal(net, x, "norm")


def encoder(length: int = 128, width: int = 768, blocks: int = 12, heads: int = 12, batch: int = 1) -> LayerGraph:
    """Return an encoder like BERT, from embedded words on; normalisation comes before each part."""
    net = NetBuilder("encoder")
    x = net.input("words", (batch, length, width))
    return net.done(_blocks(net, x, blocks, heads, 4 * width))


def vit(
    image: int = IMAGE, patch: int = 16, width: int = 384, blocks: int = 12, heads: int = 6, batch: int = 1
) -> LayerGraph:
    """Return a vision transformer (small, patches of 16) that averages its patches for the classifier."""
    net = NetBuilder("vit")
    x = net.conv(net.input("image", (batch, 3, image, image)), width, patch, patch, 0)
    length = (image // patch) ** 2
    x = net.transpose(net.reshape(x, (batch, width, length)), (0, 2, 1))
    x = net.same("Add", x, net.parameter("positions", (1, length, width)))
    x = net.transpose(_blocks(net, x, blocks, heads, 4 * width), (0, 2, 1))
    axes = net.constant("axes", np.array([2], np.int64))
    x = net.flatten(net.add_operation("ReduceMean", (x, axes), (batch, width, 1), keepdims=1))
    return net.done(net.fc(x, CLASSES))
