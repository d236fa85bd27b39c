"""Random nodes on images: convolutions, pools, normalisations, resizing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.fuzz.builder import Graph


def _windows(g: Graph, extents: tuple[int, ...], most: int, dilate: bool = True) -> dict[str, Any]:
    """Attributes of a window that fits: sizes, strides, pads smaller than the window, dilations."""
    kernel = [g.number(1, min(most, extent + 1)) for extent in extents]
    dilations = [
        g.number(1, 2) if dilate and 2 * (k - 1) < e else 1
        for k, e in zip(kernel, extents, strict=True)
    ]
    found: dict[str, Any] = {
        "kernel_shape": kernel,
        "strides": [g.number(1, 3) for _ in extents],
    }
    if any(d > 1 for d in dilations):
        found["dilations"] = dilations
    way = g.one_of(("pads", "pads", "none", "SAME_UPPER", "SAME_LOWER", "VALID"))
    if way == "pads":
        begins = [g.number(0, k - 1) for k in kernel]
        found["pads"] = begins + [g.number(0, k - 1) for k in kernel]
    elif way != "none":
        found["auto_pad"] = way
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    padded = found.get("pads", [0] * (2 * len(extents)))
    for i, (extent, span) in enumerate(zip(extents, spans, strict=True)):
        if "SAME" not in way and extent + padded[i] + padded[len(extents) + i] < span:
            return _windows(g, extents, 1, dilate=False)
    return found


def _group(g: Graph, channels: int) -> int:
    fits = [d for d in range(1, channels + 1) if channels % d == 0]
    return g.one_of((1, channels, g.one_of(fits)))


def conv(g: Graph) -> None:
    x = g.image(g.one_of((2, 2, 2, 2, 1, 3)))
    channels = x.shape[1]
    group = _group(g, channels)
    outputs = group * g.number(1, max(1, min(40, 48 // group)))
    window = _windows(g, x.shape[2:], 5)
    kernel = window["kernel_shape"]
    fan_in = channels // group
    for k in kernel:
        fan_in *= k
    operands = [x, g.weights(outputs, channels // group, *kernel, fan_in=fan_in)]
    if g.flag():
        operands.append(g.weights(outputs))
    if g.flag():
        del window["kernel_shape"]
    made = g.add("Conv", operands, group=group, **window)
    if made and g.number(0, 2) == 0:
        g.add(g.one_of(("Relu", "Sigmoid", "LeakyRelu", "HardSwish")), made)


def conv_transpose(g: Graph) -> None:
    x = g.image(g.one_of((2, 2, 1)))
    group = _group(g, x.shape[1])
    outputs = g.number(1, 6)
    rank = len(x.shape) - 2
    kernel = [g.number(1, 4) for _ in range(rank)]
    strides = [g.number(1, 3) for _ in range(rank)]
    attributes: dict[str, Any] = {"strides": strides, "group": group}
    if g.flag():
        attributes["pads"] = [g.number(0, (k - 1) // 2) for k in (*kernel, *kernel)]
    if g.flag():
        attributes["output_padding"] = [g.number(0, s - 1) for s in strides]
    operands = [x, g.weights(x.shape[1], outputs, *kernel, fan_in=x.shape[1])]
    if g.flag():
        operands.append(g.weights(outputs * group))
    g.add("ConvTranspose", operands, **attributes)


def max_pool(g: Graph) -> None:
    x = g.image(g.one_of((2, 2, 2, 1, 3)))
    window = _windows(g, x.shape[2:], 4)
    if "SAME" in window.get("auto_pad", ""):
        # ONNX Runtime takes too little padding there, against ONNX's text and shape inference.
        window.pop("dilations", None)
    elif "auto_pad" not in window and g.number(0, 2) == 0:
        window["ceil_mode"] = 1
    g.add("MaxPool", [x], **window)


def average_pool(g: Graph) -> None:
    x = g.image(g.one_of((2, 2, 2, 1, 3)))
    window = _windows(g, x.shape[2:], 4, dilate=False)
    if "auto_pad" not in window and g.number(0, 3) == 0:
        window["ceil_mode"] = 1
    g.add("AveragePool", [x], count_include_pad=g.number(0, 1), **window)


def global_pool(g: Graph) -> None:
    g.add(g.one_of(("GlobalAveragePool", "GlobalMaxPool")), [g.image(g.one_of((2, 2, 1, 3)))])


def lp_pool(g: Graph) -> None:
    x = g.image()
    window = _windows(g, x.shape[2:], 3, dilate=False)
    g.add("LpPool", [x], p=g.number(1, 3), **window)


def lrn(g: Graph) -> None:
    beta = g.one_of((0.75, 0.5, 0.6))
    g.add("LRN", [g.image()], size=g.one_of((1, 3, 5)), alpha=0.3, beta=beta, bias=1.0)


def batch_normalization(g: Graph) -> None:
    x = g.value(lambda v: v.rank >= 2, lambda: g.shape(2, 4))
    c = x.shape[1]
    parts = [g.weights(c, low=0.5), g.weights(c), g.weights(c), g.weights(c, low=0.5)]
    g.add("BatchNormalization", [x, *parts])


def instance_normalization(g: Graph) -> None:
    x = g.image()
    g.add("InstanceNormalization", [x, g.weights(x.shape[1], low=0.5), g.weights(x.shape[1])])


def group_normalization(g: Graph) -> None:
    x = g.image()
    groups, c = _group(g, x.shape[1]), x.shape[1]
    g.add("GroupNormalization", [x, g.weights(c, low=0.5), g.weights(c)], num_groups=groups)


def resize(g: Graph) -> None:
    x = g.image()
    mode = g.one_of(("nearest", "linear", "cubic"))
    ways = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    attributes: dict[str, Any] = {
        "mode": mode,
        "coordinate_transformation_mode": g.one_of(ways),
    }
    if mode == "nearest":
        rounding = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
        attributes["nearest_mode"] = g.one_of(rounding)
    sizes = [*x.shape[:2], g.number(1, 14), g.number(1, 14)]
    g.add("Resize", [x, "", "", g.integers(*sizes)], **attributes)


def depth_and_space(g: Graph) -> None:
    x = g.value(lambda v: v.rank == 4 and v.shape[1] % 4 == 0, lambda: (1, 8, 3, 5))
    if g.flag():
        g.add("DepthToSpace", [x], blocksize=2, mode=g.one_of(("DCR", "CRD")))
    elif x.shape[2] % 2 == x.shape[3] % 2 == 0:
        g.add("SpaceToDepth", [x], blocksize=2)


IMAGES: tuple[Callable[[Graph], None], ...] = (
    *(conv, conv, conv, conv, max_pool, max_pool, average_pool, average_pool),
    *(conv_transpose, global_pool, lp_pool, lrn, batch_normalization, instance_normalization),
    *(group_normalization, resize, depth_and_space),
)
