"""Every primitive against the graph's meaning: odd sizes, remainders, pads, strides, groups.

All cases are kernels of one network, so that the C is built once for each vector width.
"""

from collections.abc import Callable

import numpy as np
import pytest
from tests.targets.cpu.kernel_harness import PLAIN, Array, Maker

from tilewright.graph.operations import (
    AbsOp,
    AddOp,
    ClipOp,
    EluOp,
    ErfOp,
    ExpOp,
    HardSigmoidOp,
    HardSwishOp,
    LeakyReluOp,
    LogOp,
    MulOp,
    NegOp,
    PReluOp,
    ReluOp,
    SigmoidOp,
    SiluOp,
    SoftplusOp,
    SqrtOp,
    SubOp,
    TanhOp,
)
from tilewright.graph.operations.convolution import ConvOp
from tilewright.graph.operations.explicit import ExplicitConvOp
from tilewright.graph.operations.matrix import MatMulOp
from tilewright.graph.operations.normalisation import BatchNormOp, LrnOp, SoftmaxOp
from tilewright.graph.operations.numbers import ConvertLayoutOp
from tilewright.graph.operations.pooling import AveragePoolOp, MaxPoolOp
from tilewright.graph.operations.reductions import ReduceMeanOp
from tilewright.graph.operations.views import PadOp, SliceOp, TransposeOp
from tilewright.graph.operations.winograd import WinogradConvOp
from tilewright.ir import PythonValue, SSAValue
from tilewright.machine import parse_expression
from tilewright.planning.schedule import Level, Schedule
from tilewright.targets.cpu.compiler import FLAGS
from tilewright.targets.cpu.processors import this_processor

B = "NCHWLc"
W = "OIHWLiLo"
SOME = (1, 0, 0, 1)
ONES = (1, 1, 1, 1)
LRN: dict[str, PythonValue] = {"size": 5, "alpha": 0.5, "beta": 0.75, "bias": 2.0}
LRN_EVEN: dict[str, PythonValue] = {"size": 4, "alpha": 0.5, "beta": 0.6, "bias": 1.0}


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


def winograd(
    m: Maker,
    image: tuple[int, int, int, int],
    channels: int,
    tile: int,
    block: tuple[int, int, int],
    residual: bool = False,
    bias: bool = True,
    taps: int = 3,
    plain: bool = False,
    group: int = 1,
    **attributes: object,
) -> SSAValue:
    """Rows and columns of tiles, and vectors of output channels in a block; scratch is exact.

    ``plain`` weights are transformed as the kernel runs.
    """
    x = m.input(image, B)
    inner, ci, co = tile + taps - 1, image[1] // group, channels // group
    # Transformed weights: any at all, for what is tested is the method's second half.
    extent, layout = (taps, "OIHWLo") if plain else (inner, "OHWILo")
    u = m.weight((channels, ci, extent, extent), layout, 1.0 / ci)
    end = ("" if taps == 3 else "_5x5") + ("_plain" if plain else "")
    primitive = m.machine.primitive(f"winograd_{tile}{end}")
    height, width, vectors = block
    outer = {"n": 1, "g": 1} if group > 1 else {"n": 1}
    sizes = {**outer, "th": height, "tw": width, "co": min(vectors * m.lanes, co)}
    needed = parse_expression(primitive.scratch).evaluate(
        {**sizes, "ci": ci, "u": inner, "v": inner}
    )
    level = Level("registers", tuple(sorted(sizes.items())), (*outer, "th", "tw", "co"))
    points = (28 if m.lanes == 16 else 10) // vectors
    attributes |= {"taps": taps, "group": group}
    inputs: list[SSAValue | int] = [x, u, m.scratch(int(needed))]
    if bias:
        inputs.append(m.weight((channels,), "OLo"))
    chain: list[tuple[object, list[SSAValue | int], dict[str, object]]] = [
        (WinogradConvOp, inputs, {"tile": tile, **attributes})
    ]
    if residual:
        top, left, bottom, right = attributes.get("pads", (0, 0, 0, 0))  # type: ignore[misc]
        rows, columns = image[2] + top + bottom - taps + 1, image[3] + left + right - taps + 1
        shape = (image[0], channels, rows, columns)
        chain.append((AddOp, [0, m.input(shape, B)], {}))
    chain.append((ReluOp, [len(chain) - 1], {}))
    found = m.kernel(chain, B)  # type: ignore[arg-type]
    schedule = Schedule(primitive.name, (level,), options=(("points", max(points, 1)),))
    m.schedules[m.kernels[-1].symbol.data] = schedule
    return found


def explicit(
    m: Maker,
    image: tuple[int, int, int, int],
    channels: int,
    window: tuple[int, int],
    block: tuple[int, int, int],
    residual: bool = False,
    bias: bool = True,
    **attributes: object,
) -> SSAValue:
    """Rows and columns of points, and vectors of output channels in a block; scratch is exact."""
    few = image[1] <= 4
    x = m.input(image, "NCHW" if few else B)
    inputs: list[SSAValue | int] = [
        x,
        m.weight((channels, image[1], *window), "OIHWLo" if few else W),
    ]
    primitive = m.machine.primitive("conv_explicit_first" if few else "conv_explicit")
    height, width, vectors = block
    sizes = {"n": 1, "oh": height, "ow": width, "co": min(vectors * m.lanes, channels)}
    needed = parse_expression(primitive.scratch).evaluate(
        {**sizes, "ci": image[1], "kh": window[0], "kw": window[1]}
    )
    inputs.append(m.scratch(int(needed)))
    if bias:
        inputs.append(m.weight((channels,), "OLo"))
    chain: list[tuple[object, list[SSAValue | int], dict[str, object]]] = [
        (ExplicitConvOp, inputs, attributes)
    ]
    if residual:
        values = [v for v in inputs if isinstance(v, SSAValue)]
        shape = ExplicitConvOp.build_from(values, attributes).result.type.get_shape()  # type: ignore[arg-type]
        chain.append((AddOp, [0, m.input(shape, B)], {}))
    chain.append((ReluOp, [len(chain) - 1], {}))
    found = m.kernel(chain, B)  # type: ignore[arg-type]
    level = Level("registers", tuple(sorted(sizes.items())), ("n", "oh", "ow", "co"))
    points = (28 if m.lanes == 16 else 10) // vectors
    m.schedules[m.kernels[-1].symbol.data] = Schedule(
        primitive.name, (level,), options=(("points", points),)
    )
    return found


CASES: dict[str, Callable[[Maker], SSAValue]] = {
    "explicit": lambda m: explicit(m, (1, 32, 9, 13), 40, (3, 3), (3, 13, 2), True, pads=ONES),
    "explicit_strides": lambda m: explicit(
        m, (2, 20, 11, 14), 33, (5, 2), (2, 5, 1), pads=(0, 2, 1, 0), strides=(2, 3)
    ),
    "explicit_tall": lambda m: explicit(m, (1, 32, 9, 13), 40, (2, 1), (2, 13, 2)),
    "explicit_dilated": lambda m: explicit(
        m, (1, 17, 13, 13), 16, (3, 3), (1, 3, 1), True, False, dilations=(3, 2), pads=(2, 3, 2, 1)
    ),
    "explicit_first": lambda m: explicit(
        m, (2, 3, 23, 37), 24, (7, 7), (3, 19, 2), True, strides=(2, 2), pads=(3, 3, 3, 3)
    ),
    "explicit_few": lambda m: explicit(m, (1, 1, 28, 28), 6, (5, 5), (8, 24, 1), bias=False),
    "winograd_one_block": lambda m: winograd(m, (1, 32, 14, 14), 32, 4, (4, 4, 2), pads=ONES),
    "winograd_rows": lambda m: winograd(m, (1, 48, 27, 27), 64, 4, (2, 7, 2), True, pads=ONES),
    "winograd_parts": lambda m: winograd(m, (2, 16, 13, 55), 40, 4, (1, 5, 1), True, pads=ONES),
    "winograd_unpadded": lambda m: winograd(m, (1, 17, 13, 9), 23, 4, (2, 2, 1), bias=False),
    "winograd_odd_pads": lambda m: winograd(m, (1, 20, 7, 11), 35, 4, (1, 3, 2), pads=(0, 2, 1, 0)),
    "winograd_wide_pads": lambda m: winograd(m, (1, 16, 3, 2), 16, 4, (1, 1, 1), pads=(3, 4, 2, 5)),
    "winograd_deep": lambda m: winograd(m, (1, 256, 7, 7), 48, 4, (2, 2, 3), pads=ONES),
    "winograd_2": lambda m: winograd(m, (1, 64, 7, 7), 64, 2, (4, 4, 4), True, pads=ONES),
    "winograd_2_parts": lambda m: winograd(m, (1, 33, 9, 13), 50, 2, (2, 7, 2), pads=(1, 0, 0, 1)),
    "winograd_6": lambda m: winograd(m, (1, 48, 27, 31), 40, 6, (2, 6, 2), True, pads=ONES),
    "winograd_6_parts": lambda m: winograd(m, (2, 17, 13, 40), 23, 6, (1, 3, 1), pads=(0, 2, 1, 0)),
    "winograd_6_groups": lambda m: winograd(
        m, (1, 64, 14, 9), 96, 6, (2, 2, 2), group=2, bias=False, pads=(2, 1, 3, 2)
    ),
    "winograd_6_plain": lambda m: winograd(
        m, (1, 80, 14, 20), 40, 6, (3, 4, 2), True, plain=True, pads=ONES
    ),
    "winograd_6_plain_single": lambda m: winograd(
        m, (1, 33, 11, 7), 23, 6, (1, 2, 1), plain=True, pads=(0, 1, 2, 3)
    ),
    "winograd_5x5": lambda m: winograd(
        m, (1, 32, 13, 27), 40, 2, (2, 7, 2), True, taps=5, pads=(2, 2, 2, 2)
    ),
    "winograd_groups": lambda m: winograd(
        m, (2, 32, 9, 11), 64, 2, (2, 3, 1), True, taps=5, group=2, pads=(1, 2, 0, 2)
    ),
    "winograd_plain": lambda m: winograd(
        m, (1, 48, 14, 14), 40, 4, (4, 4, 2), True, plain=True, pads=ONES
    ),
    "winograd_plain_panels": lambda m: winograd(
        m, (1, 192, 9, 13), 64, 4, (3, 4, 3), plain=True, pads=ONES
    ),
    "winograd_plain_last_panel": lambda m: winograd(
        m, (2, 69, 13, 9), 23, 4, (2, 3, 2), plain=True, bias=False, pads=(0, 2, 1, 0)
    ),
    "winograd_plain_short_panel": lambda m: winograd(
        m, (1, 67, 5, 5), 48, 4, (1, 1, 3), plain=True, pads=ONES
    ),
    "winograd_plain_few_channels": lambda m: winograd(
        m, (1, 5, 9, 30), 32, 4, (1, 4, 1), plain=True
    ),
    "winograd_plain_groups": lambda m: winograd(
        m, (1, 96, 9, 11), 96, 4, (2, 3, 2), True, plain=True, group=2, pads=ONES
    ),
    "winograd_plain_2": lambda m: winograd(
        m, (1, 80, 7, 7), 64, 2, (4, 4, 4), True, plain=True, pads=ONES
    ),
    "winograd_plain_5x5": lambda m: winograd(
        m, (1, 32, 12, 9), 96, 2, (3, 5, 3), taps=5, plain=True, group=2, pads=(2, 2, 2, 2)
    ),
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
    "maxpool": lambda m: m.kernel(
        [
            (
                MaxPoolOp,
                [m.input((1, 20, 13, 17), B)],
                {"kernel": (3, 3), "pads": (1, 1, 1, 1), "strides": (2, 2)},
            )
        ],
        B,
    ),
    "maxpool_dil": lambda m: m.kernel(
        [
            (
                MaxPoolOp,
                [m.input((1, 20, 13, 17), B)],
                {"kernel": (3, 2), "pads": (1, 0, 1, 1), "strides": (1, 2), "dilations": (2, 2)},
            )
        ],
        B,
    ),
    "avgpool": lambda m: m.kernel(
        [
            (
                AveragePoolOp,
                [m.input((1, 20, 13, 17), B)],
                {
                    "kernel": (3, 3),
                    "pads": (1, 1, 1, 2),
                    "strides": (2, 2),
                    "counted": (1, 0, 0, 1),
                },
            )
        ],
        B,
    ),
    "avgpool2": lambda m: m.kernel(
        [
            (
                AveragePoolOp,
                [m.input((1, 20, 13, 17), B)],
                {"kernel": (3, 3), "pads": (1, 1, 1, 1), "counted": (1, 1, 1, 1)},
            ),
            (SigmoidOp, [0], {}),
        ],
        B,
    ),
    "globalpool": lambda m: m.kernel(
        [(AveragePoolOp, [m.input((1, 40, 7, 7), B)], {"kernel": (7, 7)})], B
    ),
    "lrn": lambda m: m.kernel(
        [
            (
                LrnOp,
                [m.input((1, 40, 7, 9), B)],
                LRN,
            )
        ],
        B,
    ),
    "lrn4": lambda m: m.kernel(
        [
            (
                LrnOp,
                [m.input((2, 23, 7, 9), B)],
                LRN_EVEN,
            ),
            (ReluOp, [0], {}),
        ],
        B,
    ),
    "lrn_one_channel": lambda m: m.kernel([(LrnOp, [m.input((1, 1, 3, 5), B)], LRN)], B),
    "lrn_plain": lambda m: m.kernel([(LrnOp, [m.input((2, 23, 7, 9))], LRN_EVEN)]),
    "softmax": lambda m: m.kernel([(SoftmaxOp, [m.input((3, 1000), scale=5.0)], {"axis": 1})]),
    "softmax_mid": lambda m: m.kernel(
        [
            (SoftmaxOp, [m.input((2, 21, 3, 2), B, scale=50.0)], {"axis": 1}),
            (MulOp, [0, m.input((2, 21, 3, 2), B)], {}),
        ],
        B,
    ),
    "softmax_rows": lambda m: m.kernel([(SoftmaxOp, [m.input((3, 7, 5))], {"axis": -1})]),
    "fc": lambda m: m.kernel(
        [
            (
                MatMulOp,
                [m.input((1, 70)), m.weight((45, 70), "OILo"), m.weight((45,), "OLo")],
                {"transpose_b": True},
            ),
            (TanhOp, [0], {}),
        ]
    ),
    "fc3": lambda m: m.kernel(
        [
            (
                MatMulOp,
                [m.input((5, 70)), m.weight((45, 70), "OILo"), m.weight((45,), "OLo")],
                {"transpose_b": True},
            ),
            (AddOp, [0, m.input((5, 45))], {}),
            (ReluOp, [1], {}),
        ]
    ),
    "matmul_row": lambda m: m.kernel([(MatMulOp, [m.input((5, 70)), m.weight((70, 45))], {})]),
    "matmul_batch": lambda m: m.kernel(
        [
            (MatMulOp, [m.input((2, 3, 5, 17)), m.input((3, 17, 21))], {}),
            (LeakyReluOp, [0], {"alpha": 0.1}),
        ]
    ),
    "matmul_bt": lambda m: m.kernel(
        [(MatMulOp, [m.input((2, 5, 17)), m.input((2, 21, 17))], {"transpose_b": True})]
    ),
    "matmul_at": lambda m: m.kernel(
        [(MatMulOp, [m.input((17, 5)), m.input((17, 21)), m.input((5, 1))], {"transpose_a": True})]
    ),
    "add": lambda m: m.kernel(
        [(AddOp, [m.input((2, 24, 5, 7), B), m.input((2, 24, 5, 7), B)], {}), (ReluOp, [0], {})], B
    ),
    "mulc": lambda m: m.kernel(
        [
            (MulOp, [m.input((2, 24, 5, 7), B), m.input((1, 24, 1, 1), B)], {}),
            (HardSwishOp, [0], {}),
        ],
        B,
    ),
    "mixed": lambda m: m.kernel(
        [(AddOp, [m.input((2, 24, 5, 7), B), m.input((2, 24, 5, 7))], {})], B
    ),
    "broadcast": lambda m: m.kernel(
        [
            (SubOp, [m.input((2, 1, 5, 7)), m.input((6, 1, 7))], {}),
            (ExpOp, [0], {}),
            (MulOp, [0, 1], {}),
        ]
    ),
    "blocks_of_one_point": lambda m: m.kernel([(ReluOp, [m.input((1, 37, 1, 1), B)], {})], B),
    "prelu": lambda m: m.kernel([(PReluOp, [m.input((2, 24, 5, 7)), m.weight((24, 1, 1))], {})]),
    "conv_prelu": lambda m: m.kernel(
        [
            (ConvOp, [m.input((1, 8, 5, 7), B), m.weight((24, 8, 1, 1), "OIHWLiLo")], {}),
            (PReluOp, [0, m.weight((24, 1, 1))], {}),
        ],
        B,
    ),
    "swish": lambda m: m.kernel(
        [
            (ConvOp, [m.input((1, 8, 5, 7), B), m.weight((24, 8, 1, 1), "OIHWLiLo")], {}),
            (SigmoidOp, [0], {}),
            (MulOp, [0, 1], {}),
        ],
        B,
    ),
    "convert": lambda m: m.kernel([(ConvertLayoutOp, [m.input((2, 21, 5, 7))], {})], B),
    "convert_back": lambda m: m.kernel([(ConvertLayoutOp, [m.input((2, 21, 5, 7), B)], {})]),
    "convert_nhwc": lambda m: m.kernel(
        [(ConvertLayoutOp, [m.input((2, 21, 5, 7), "NHWC")], {})], B
    ),
    "transpose": lambda m: m.kernel(
        [(TransposeOp, [m.input((2, 21, 5, 7))], {"permutation": (0, 2, 3, 1)})]
    ),
    "slice": lambda m: m.kernel(
        [
            (
                SliceOp,
                [m.input((2, 21, 5, 7))],
                {"starts": (1, -1), "ends": (9, -6), "axes": (1, 2), "steps": (2, -2)},
            )
        ]
    ),
    "pad": lambda m: m.kernel(
        [(PadOp, [m.input((2, 3, 5, 7))], {"pads": (0, 0, 1, 2, 0, 0, 3, 0), "value": 1.5})]
    ),
    "mean": lambda m: m.kernel([(ReduceMeanOp, [m.input((2, 21, 5, 7))], {"axes": (2, 3)})]),
    "mean_nhwc_pool": lambda m: m.kernel(
        [
            (
                AveragePoolOp,
                [m.input((1, 20, 13, 17), "NHWC")],
                {
                    "kernel": (3, 3),
                    "pads": (1, 1, 1, 2),
                    "strides": (2, 2),
                    "counted": (1, 0, 0, 1),
                },
            )
        ],
        "NHWC",
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
    "batchnorm": lambda m: m.kernel(
        [
            (
                BatchNormOp,
                [
                    m.input((1, 20, 9, 7), B),
                    m.weight((20,)),
                    m.weight((20,)),
                    m.weight((20,)),
                    m.kernel([(AbsOp, [m.weight((20,))], {})]),
                ],
                {},
            )
        ],
        B,
    ),
    "unary": lambda m: m.kernel(
        [
            (TanhOp, [m.input((77,))], {}),
            (ErfOp, [0], {}),
            (AbsOp, [1], {}),
            (SqrtOp, [2], {}),
            (HardSigmoidOp, [3], {"alpha": 0.3, "beta": 0.1}),
            (ExpOp, [4], {}),
            (LogOp, [5], {}),
            (SiluOp, [6], {}),
            (EluOp, [7], {}),
            (SoftplusOp, [8], {}),
            (NegOp, [9], {}),
        ]
    ),
    "scalar": lambda m: m.kernel([(AddOp, [m.input(()), m.input(())], {})]),
}

TOLERANCE = 1e-5
"""Of the largest element of an output."""

MACHINES = ["native", pytest.param("plain", marks=pytest.mark.slow)]


@pytest.fixture(scope="module", params=MACHINES)
def results(request: pytest.FixtureRequest) -> tuple[dict[str, Array], dict[str, Array]]:
    """Outputs of all cases: by the graph's meaning, and by the C."""
    plain = request.param == "plain"
    m = Maker(PLAIN if plain else None, seed=7)
    values = [make(m) for make in CASES.values()]
    m.finish(*values)
    names = [f"out{number}" for number in range(len(values))]
    # The plain machine's package needs no flag for a processor; warnings are errors in both.
    expected, found = (
        m.expected(),
        m.run((*FLAGS, *(() if plain else this_processor().flags), "-Werror")),
    )
    by_case = dict(zip(CASES, names, strict=True))
    return (
        {case: expected[name] for case, name in by_case.items()},
        {case: found[name] for case, name in by_case.items()},
    )


@pytest.mark.parametrize("case", CASES)
def test_primitive_computes_what_the_graph_means(
    case: str, results: tuple[dict[str, Array], dict[str, Array]]
) -> None:
    expected, found = results[0][case], results[1][case]
    assert np.ptp(expected) > 0 or expected.size == 1
    scale = float(np.abs(expected).max())
    np.testing.assert_allclose(found / scale, expected / scale, atol=TOLERANCE)
