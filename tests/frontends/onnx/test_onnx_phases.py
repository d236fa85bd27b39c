"""Transposed convolutions by phases, of random windows, against ONNX Runtime."""

import random
from typing import Any

import numpy as np
import pytest

from tests.frontends.onnx.onnx_models import check, noise, single
from tilewright.frontends.phases import axis_of
from tilewright.frontends.windows import Window
from tilewright.graph.dialect import network_of


def drawn(draw: random.Random) -> tuple[list[Any], dict[str, Any]]:
    """Operands and attributes of a random transposed convolution whose result is not empty."""
    while True:
        rank, group = draw.choice((1, 2, 2, 2, 3)), draw.choice((1, 1, 2, 3))
        sizes = [draw.randint(1, 6) for _ in range(rank)]
        kernel = [draw.randint(1, 6) for _ in range(rank)]
        strides = [draw.randint(1, 4) for _ in range(rank)]
        dilations = [draw.choice((1, 1, 2, 3)) for _ in range(rank)]
        more = [draw.randint(0, step - 1) for step in strides]
        spans = [(k - 1) * d for k, d in zip(kernel, dilations, strict=True)]
        pads = [draw.choice((0, draw.randint(0, span))) for span in spans * 2]
        cropped = [pads[i] + pads[rank + i] for i in range(rank)]
        result = [
            (extent - 1) * step + span + 1 + grown - cut
            for extent, step, span, grown, cut in zip(
                sizes, strides, spans, more, cropped, strict=True
            )
        ]
        if min(result) < 1:
            continue
        ci, co = group * draw.randint(1, 4), draw.randint(1, 4)
        bias = draw.choice(([], [noise(co * group)], [(co * group,)]))
        return [(draw.randint(1, 2), ci, *sizes), noise(ci, co, *kernel), *bias], {
            "strides": strides,
            "dilations": dilations,
            "output_padding": more,
            "pads": pads,
            "group": group,
        }


@pytest.mark.parametrize("seed", range(4))
def test_random_windows(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(15):
        operands, attributes = drawn(draw)
        check(single("ConvTranspose", operands, **attributes))


@pytest.mark.parametrize(
    ("kernel", "attributes", "taps"),
    [
        (2, {"strides": [2, 2]}, 1),
        (3, {"strides": [2, 2], "pads": [1] * 4, "output_padding": [1, 1]}, 2),
        (4, {"strides": [2, 2], "pads": [1] * 4}, 3),
    ],
)
def test_usual_windows_have_no_zeros_between(
    kernel: int, attributes: dict[str, Any], taps: int
) -> None:
    """The decoders of U-Nets and of generators: one convolution on the image as it is."""
    model = single("ConvTranspose", [(1, 8, 5, 6), noise(8, 4, kernel, kernel)], **attributes)
    operations = list(network_of(check(model).module).walk())
    (conv,) = (op for op in operations if op.name == "graph.conv")
    assert conv.operands[1].type.get_shape() == (16, 8, taps, taps)  # type: ignore[attr-defined]


def test_offsets_of_an_axis() -> None:
    """Kernel 4, stride 2, pads 1 of 5 elements: 10 elements, each phase of two taps."""
    axis = axis_of(5, Window((4,), (2,), (1,), (1,), (1,), (1,)), 0, 0)
    assert (axis.result, axis.count, axis.pads, axis.kernel) == (10, 5, (1, 1), 3)
    x, w = np.arange(1.0, 6.0), np.array([1.0, 10.0, 100.0, 1000.0])
    whole = np.zeros(12)
    for i, value in enumerate(x):
        whole[2 * i : 2 * i + 4] += value * w
    for phase, wanted in enumerate((whole[1:-1:2], whole[2:-1:2])):
        got = np.zeros(5)
        for own, tap, offset in axis.taps:
            if own == phase:
                got += [x[q + offset] * w[tap] if 0 <= q + offset < 5 else 0 for q in range(5)]
        np.testing.assert_array_equal(got, wanted)
