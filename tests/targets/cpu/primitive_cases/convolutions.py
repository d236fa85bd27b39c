"""Direct convolutions, dense, of groups, and depthwise."""

from __future__ import annotations

from tests.targets.cpu.kernel_harness import Maker
from tests.targets.cpu.primitive_cases.cases import B, Cases, W

from tilewright.graph.operations.binary import AddOp
from tilewright.graph.operations.convolution import ConvOp
from tilewright.graph.operations.pointwise import ClipOp, ReluOp
from tilewright.ir import SSAValue


def convolution(
    m: Maker,
    image: tuple[int, int, int, int],
    channels: int,
    kernel: tuple[int, int] = (1, 1),
    residual: bool = False,
    plain: bool = False,
    bias: bool = True,
    **attributes: object,
) -> SSAValue:
    group = int(attributes.get("group", 1))  # type: ignore[call-overload]
    x = m.input(image, "NCHW" if plain else B)
    w = m.weight((channels, image[1] // group, *kernel), "OIHWLo" if plain else W)
    inputs: list[SSAValue | int] = [x, w]
    if bias:
        inputs.append(m.weight((channels,), "OLo"))
    chain: list[tuple[object, list[SSAValue | int], dict[str, object]]] = [
        (ConvOp, inputs, attributes)
    ]
    if residual:
        shape = ConvOp.build_from(
            [v for v in inputs if isinstance(v, SSAValue)], attributes
        ).result.type.get_shape()  # type: ignore[arg-type]
        chain.append((AddOp, [0, m.input(shape, B)], {}))
    chain.append((ReluOp, [len(chain) - 1], {}))
    return m.kernel(chain, B)  # type: ignore[arg-type]


CONVOLUTIONS: Cases = {
    "conv_3x3": lambda m: convolution(m, (1, 32, 8, 8), 32, (3, 3), pads=(1, 1, 1, 1)),
    "conv_residual": lambda m: convolution(
        m, (2, 20, 9, 31), 40, (3, 3), True, strides=(2, 2), pads=(0, 1, 1, 0)
    ),
    "conv_1x1_rows": lambda m: convolution(m, (1, 64, 7, 7), 96, residual=True),
    "conv_first_7x7": lambda m: convolution(
        m, (1, 3, 33, 37), 24, (7, 7), plain=True, strides=(2, 2), pads=(3, 3, 3, 3)
    ),
    "conv_few_channels": lambda m: convolution(m, (1, 6, 14, 14), 16, (5, 5), bias=False),
    "conv_dilated": lambda m: convolution(
        m, (1, 16, 14, 14), 16, (3, 3), dilations=(2, 2), pads=(2, 2, 2, 2)
    ),
    "conv_wide_pads": lambda m: convolution(m, (1, 17, 3, 5), 33, (3, 5), pads=(2, 4, 2, 3)),
    "conv_1x1_padded": lambda m: convolution(m, (1, 16, 5, 5), 16, pads=(1, 1, 1, 1)),
    "conv_whole_image": lambda m: convolution(m, (1, 40, 6, 6), 70, (6, 6)),
    "conv_deep": lambda m: convolution(m, (1, 320, 5, 6), 48, (3, 3), pads=(1, 1, 1, 1)),
    "conv_groups": lambda m: m.kernel(
        [
            (
                ConvOp,
                [
                    m.input((1, 96, 9, 9), B),
                    m.weight((64, 48, 5, 5), "OIHWLiLo"),
                    m.weight((64,), "OLo"),
                ],
                {"group": 2, "pads": (2, 2, 2, 2)},
            )
        ],
        B,
    ),
    "conv_odd_groups": lambda m: m.kernel(
        [
            (
                ConvOp,
                [
                    m.input((1, 12, 9, 9), B),
                    m.weight((18, 4, 3, 3), "OIHWLiLo"),
                    m.weight((18,), "OLo"),
                ],
                {"group": 3, "pads": (1, 1, 1, 1)},
            )
        ],
        B,
    ),
    "depthwise": lambda m: m.kernel(
        [
            (
                ConvOp,
                [
                    m.input((2, 24, 13, 17), B),
                    m.weight((24, 1, 3, 3), "OIHWLo"),
                    m.weight((24,), "OLo"),
                ],
                {"group": 24, "pads": (1, 1, 1, 1), "strides": (2, 1)},
            ),
            (ClipOp, [0], {"minimum": 0.0, "maximum": 6.0}),
        ],
        B,
    ),
    "conv_nhwc": lambda m: m.kernel(
        [
            (
                ConvOp,
                [m.input((1, 20, 9, 7), "NHWC"), m.weight((10, 20, 3, 3), "OHWI"), m.weight((10,))],
                {"pads": (1, 1, 1, 1)},
            )
        ],
        "NHWC",
    ),
}
