"""Table 3.5's benchmarks by hand: HLAL programs of single layers, and networks layer by layer.

The layers of a network are programs of their own here, each cut as it takes the fewest cycles of
the ways that are tried; a program of the whole network would have to cut what passes between layers
alike on both sides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

from benchmarks.papers.hlal.experiments import hlal_cycles
from benchmarks.papers.hlal.layers import FOLDER
from tilewright.errors import TilewrightError

OUTPUTS, CHANNELS, ROWS = (32, 64, 128), (32, 64, 128, 256, 512), (1, 2, 4, 6, 8)
"""Segments that are tried, of convolutions' outputs, and of pools' channels and rows."""

ALEXNET: tuple[tuple[Any, ...], ...] = (
    ("conv", 227, 3, 96, 11, 4, 0),
    ("lrn", 55, 96),
    ("pool", 55, 96, 3),
    ("conv", 27, 96, 256, 5, 1, 2),
    ("lrn", 27, 256),
    ("pool", 27, 256, 3),
    ("conv", 13, 256, 384, 3, 1, 1),
    ("conv", 13, 384, 384, 3, 1, 1),
    ("conv", 13, 384, 256, 3, 1, 1),
    ("pool", 13, 256, 3),
    ("fc", 9216, 4096, True),
    ("fc", 4096, 4096, True),
    ("fc", 4096, 1000, False),
)
"""Extent, channels in and out, kernel, stride and pad; inputs, outputs and whether ReLU follows."""

VGG16: tuple[tuple[Any, ...], ...] = (
    *(("conv", 224, c, 64, 3, 1, 1) for c in (3, 64)),
    ("pool", 224, 64, 2),
    *(("conv", 112, c, 128, 3, 1, 1) for c in (64, 128)),
    ("pool", 112, 128, 2),
    *(("conv", 56, c, 256, 3, 1, 1) for c in (128, 256, 256)),
    ("pool", 56, 256, 2),
    *(("conv", 28, c, 512, 3, 1, 1) for c in (256, 512, 512)),
    ("pool", 28, 512, 2),
    *(("conv", 14, 512, 512, 3, 1, 1) for _ in range(3)),
    ("pool", 14, 512, 2),
    ("fc", 25088, 4096, True),
    ("fc", 4096, 4096, True),
    ("fc", 4096, 1000, False),
)


def by_hand(name: str) -> float:
    """Cycles of a benchmark by hand, without barriers."""
    if name not in ("alexnet", "vgg16"):
        return hlal_cycles((FOLDER / "nine" / f"{name}.hlal").read_text(), barriers=False)
    known: dict[tuple[Any, ...], float] = {}
    total = 0.0
    for layer in ALEXNET if name == "alexnet" else VGG16:
        if layer not in known:
            known[layer] = _best(_ways(*layer))
        total += known[layer]
    return total


def _best(texts: Iterable[str]) -> float:
    found: list[float] = []
    for text in texts:
        try:
            found.append(hlal_cycles(text, barriers=False))
        except TilewrightError:  # does not fit
            continue
    return min(found)


def _ways(kind: str, *sizes: Any) -> Iterator[str]:
    if kind == "conv":
        yield from _convolutions(*sizes)
    elif kind == "pool":
        extent, channels, kernel = sizes
        half = (extent - kernel) // 2 + 1
        for cut, rows in product(CHANNELS, ROWS):
            yield (
                f".code\n@block_fw_pool_max y, x, #{kernel}, #2, #0\n.static_ro\n"
                f"{_tensor('x', extent, channels, min(cut, channels), min(rows, extent))}"
                f".static_rw\n{_tensor('y', half, channels, min(cut, channels))}"
            )
    elif kind == "lrn":
        extent, channels = sizes
        yield (
            f".code\n@block_fw_lrn y, x, #5, #0.0001, #0.75, #1.0\n.static_ro\n"
            f"{_tensor('x', extent, channels, channels)}"
            f".static_rw\n{_tensor('y', extent, channels, channels)}"
        )
    else:
        ins, outs, relu = sizes
        last = "@block_fw_relu z, y\n" * relu
        for os, cs in ((128, 1536), (192, 1024), (96, 2048), (48, 4096)):
            yield (
                f".code\n@block_fw_fc y, x, w, b\n{last}.static_ro\n@tensor x, 1, {ins}, 1, {ins}\n"
                f"@filter w, {outs}, {ins}, {os}, {cs}\n@tensor b, 1, {outs}, 1, {outs}\n"
                f".static_rw\n@tensor y, 1, {outs}, 1, {outs}\n@tensor z, 1, {outs}, 1, {outs}\n"
            )


def _convolutions(
    extent: int, inputs: int, outputs: int, kernel: int, stride: int, pad: int
) -> Iterator[str]:
    after = (extent + 2 * pad - kernel) // stride + 1
    for os in OUTPUTS:
        cut = min(os, outputs)
        rest = f"@tensor b, {outputs}, {outputs}\n.static_rw\n{_tensor('y', after, outputs, cut)}"
        image = f".static_ro\n{_tensor('x', extent, inputs, inputs)}"
        shape = f"@filter w, {outputs}, {kernel}, {kernel}, {inputs}, {cut}"
        if stride == 1:
            yield (
                f".code\n@block_fw_conv_same_relu y, x, w, b\n{image}"
                f"{shape}, {kernel}, {kernel}, {inputs}, HWIO\n{rest}"
            )
        if inputs < 32:
            yield (
                f".code\n@block_fw_conv_relu y, x, w, b, #{stride}, #{pad}\n{image}"
                f"{shape}, 1, {kernel}, {inputs}\n{rest}"
            )


def _tensor(name: str, extent: int, channels: int, cut: int, rows: int = 1) -> str:
    return f"@tensor {name}, 1, {extent}, {extent}, {channels}, 1, {rows}, {extent}, {cut}\n"
