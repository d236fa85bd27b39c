"""Convolutions by Winograd's method and explicit ones, of tiles that are chosen here."""

from __future__ import annotations

from tests.targets.cpu.kernel_harness import Maker
from tests.targets.cpu.primitive_cases.cases import B, Cases

from tilewright.graph.operations.binary import AddOp
from tilewright.graph.operations.pointwise import ReluOp
from tilewright.graph.operations.winograd import WinogradConvOp
from tilewright.ir import SSAValue
from tilewright.machine import parse_expression
from tilewright.planning.schedule import Level, Schedule
from tilewright.targets.cpu.planning.capabilities import own_of

ONES = (1, 1, 1, 1)


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
    needed = parse_expression(own_of(primitive).scratch).evaluate(
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


METHODS: Cases = {
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
}
