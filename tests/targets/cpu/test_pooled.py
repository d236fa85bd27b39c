"""Pools in Winograd's output transform, in C: the bits of the two kernels that they replace."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.slow import but_fast
from tests.targets.cpu.kernel_harness import PLAIN, Maker, compare

from tilewright.codegen.c.compiler import FLAGS
from tilewright.graph.operations import BY_NAME
from tilewright.graph.operations.binary import AddOp, MulOp
from tilewright.graph.operations.logic import CastOp
from tilewright.graph.operations.pointwise import ClipOp, PReluOp, ReluOp
from tilewright.graph.operations.pooling import AveragePoolOp, MaxPoolOp
from tilewright.graph.operations.winograd import WinogradConvOp
from tilewright.ir import PythonValue, SSAValue
from tilewright.ir.types import Array, shape_of
from tilewright.machine import parse_expression
from tilewright.planning.schedule import Level, Schedule
from tilewright.targets.cpu.machine import machine
from tilewright.targets.cpu.planning.capabilities import own_of
from tilewright.targets.cpu.processors import Processor, this_processor
from tilewright.targets.cpu.runner import CpuRunner
from tilewright.targets.cpu.target import CpuTarget

B = "NCHWLc"
ONES = (1, 1, 1, 1)

Chain = list[tuple[object, list[SSAValue | int], dict[str, PythonValue]]]


def pair(
    m: Maker,
    image: tuple[int, int, int, int],
    channels: int,
    tile: int,
    block: tuple[int, int, int],
    window: tuple[int, int] = (2, 2),
    kind: type = MaxPoolOp,
    maps: Sequence[str] = ("relu",),
    residual: bool = False,
    bias: bool = True,
    planes: int = 0,
    taps: int = 3,
    group: int = 1,
    pads: tuple[int, int, int, int] = ONES,
    ends: tuple[int, int] = (0, 0),
) -> tuple[SSAValue, SSAValue]:
    """One kernel with its pool inside; the same as two kernels.

    ``block`` is rows and columns of tiles and vectors of channels; ``ends`` the padding below and
    at the right that a rounding down leaves unread.
    """
    x, inner, ci = m.input(image, B), tile + taps - 1, image[1] // group
    extent, layout = (taps, "OIHWLo") if planes else (inner, "OHWILo")
    u = m.weight((channels, ci, extent, extent), layout, 1.0 / ci)
    end = ("" if taps == 3 else "_5x5") + ("_plain" if planes else "")
    primitive = m.machine.primitive(f"winograd_{tile}{end}")
    height, width, vectors = block
    outer = {"n": 1, "g": 1} if group > 1 else {"n": 1}
    sizes = {**outer, "th": height, "tw": width, "co": min(vectors * m.lanes, channels // group)}
    counts = {**sizes, "ci": ci, "u": inner, "v": inner}
    needed = parse_expression(own_of(primitive).scratch).evaluate(counts)
    points = max((28 if m.lanes == 16 else 10) // (planes or vectors), 1)
    options = (*((("planes", planes),) if planes else ()), ("points", points))
    level = Level("registers", tuple(sorted(sizes.items())), (*outer, "th", "tw", "co"))
    schedule = Schedule(primitive.name, (level,), options=options)
    others = [m.weight((channels,), "OLo")] if bias else []
    attributes: dict[str, PythonValue] = {"tile": tile, "taps": taps, "group": group, "pads": pads}
    slopes = m.weight((1, channels, 1, 1), B, 0.5) if "prelu" in maps else None

    def front() -> Chain:
        made: Chain = [(WinogradConvOp, [x, u, m.scratch(int(needed)), *others], attributes)]
        for name in maps:
            last = len(made) - 1
            match name:
                case "relu":
                    made.append((ReluOp, [last], {}))
                case "sigmoid":
                    made.append((BY_NAME["sigmoid"], [last], {}))
                case "clip":
                    made.append((ClipOp, [last], {"minimum": -2.0, "maximum": 3.0}))
                case "square":
                    made.append((MulOp, [last, last], {}))
                case "float16" | "bfloat16":
                    made.append((CastOp, [last], {"to": name}))
                case _:
                    assert slopes is not None
                    made.append((PReluOp, [last, slopes], {}))
        return made

    pool: dict[str, PythonValue] = {
        "kernel": window, "strides": window, "pads": (0, 0, *ends)
    }  # fmt: skip

    def behind(first: int) -> Chain:
        if summand is None:
            return []
        return [(AddOp, [first, summand], {}), (ReluOp, [first + 1], {})]

    summand = None
    chain = front()
    middle = m.kernel(chain, B)  # type: ignore[arg-type]
    m.schedules[m.kernels[-1].symbol.data] = schedule
    shape = shape_of(kind.build_from([middle], pool).result)  # type: ignore[attr-defined]
    if residual:
        summand = m.input(shape, B)
    two = m.kernel([(kind, [middle], pool), *behind(0)], B)  # type: ignore[list-item]
    chain = front()
    chain.append((kind, [len(chain) - 1], pool))
    one = m.kernel([*chain, *behind(len(chain) - 1)], B)  # type: ignore[list-item]
    m.schedules[m.kernels[-1].symbol.data] = schedule
    return one, two


PAIRS: Sequence[Callable[[Maker], tuple[SSAValue, SSAValue]]] = [
    lambda m: pair(m, (1, 16, 12, 16), 32, 4, (1, 4, 2)),
    lambda m: pair(m, (1, 17, 14, 14), 23, 4, (2, 4, 1), residual=True),
    lambda m: pair(m, (2, 16, 13, 15), 40, 4, (1, 3, 2), maps=(), bias=False),
    # Rows and columns of which nothing is pooled, and tiles that hold no window.
    lambda m: pair(m, (1, 16, 9, 17), 16, 4, (3, 2, 1), maps=("clip",)),
    lambda m: pair(m, (1, 16, 11, 9), 16, 4, (2, 2, 1), pads=(0, 2, 1, 0), ends=(1, 0)),
    lambda m: pair(m, (1, 16, 13, 10), 35, 4, (2, 3, 1), (4, 4), planes=2),
    lambda m: pair(
        m, (1, 20, 11, 14), 16, 4, (2, 2, 1), (4, 2), AveragePoolOp, ("clip",), planes=3
    ),
    lambda m: pair(m, (1, 16, 10, 12), 17, 4, (3, 3, 2), (1, 2), maps=("prelu", "sigmoid")),
    lambda m: pair(m, (1, 16, 10, 12), 17, 4, (3, 3, 2), (2, 1), maps=("square",), residual=True),
    lambda m: pair(m, (1, 33, 9, 13), 50, 2, (2, 7, 2)),
    lambda m: pair(m, (1, 16, 7, 8), 20, 2, (4, 4, 1), kind=AveragePoolOp, planes=4, residual=True),
    lambda m: pair(m, (2, 32, 9, 11), 64, 2, (2, 3, 1), taps=5, group=2, pads=(1, 2, 0, 2)),
    lambda m: pair(m, (1, 16, 10, 8), 16, 2, (3, 4, 1), taps=5, planes=3, pads=(2, 2, 2, 2)),
    lambda m: pair(m, (1, 17, 27, 20), 23, 6, (2, 4, 2), residual=True),
    lambda m: pair(m, (1, 16, 13, 16), 32, 6, (3, 2, 1), (3, 2), AveragePoolOp, planes=4),
]
"""Tiles and windows of all kinds, edges, odd channels and images, maps on both sides."""


SOME = range(1, 12, 5)
"""Of the pairs, those that ``make check`` looks at."""


@pytest.mark.parametrize("chosen", but_fast([SOME, sorted({*range(len(PAIRS))} - {*SOME})], [SOME]))
def test_on_this_processor(chosen: Sequence[int]) -> None:
    _check(Maker(seed=1), (*FLAGS, *this_processor().flags, "-Werror"), chosen)


@pytest.mark.slow
def test_in_eight_lanes() -> None:
    if this_processor().lanes < 8:
        pytest.skip("this processor has no vectors of eight floats")
    flags = (*FLAGS, "-mavx2", "-mfma", "-Werror")
    _check(Maker(machine(Processor(8, 16, 2.0)), 2), flags, range(0, len(PAIRS), 2))


@pytest.mark.slow
def test_in_four_lanes() -> None:
    _check(Maker(PLAIN, seed=3), (*FLAGS, "-Werror"), range(1, len(PAIRS), 2))


def _check(m: Maker, flags: tuple[str, ...], chosen: Sequence[int]) -> None:
    made = [PAIRS[number](m) for number in chosen]
    m.finish(*(value for both in made for value in both))
    found = m.run(flags)
    compare(found, m.expected(), 4e-5)
    _same(found, len(made))


def _same(found: dict[str, Array], count: int) -> None:
    for number in range(count):
        one, two = found[f"out{2 * number}"], found[f"out{2 * number + 1}"]
        np.testing.assert_array_equal(one, two, err_msg=str(number))


def test_infinities_and_what_is_no_number_pool_as_ever() -> None:
    m = Maker(seed=4)
    made = [
        pair(m, (1, 16, 12, 12), 16, 4, (3, 3, 1)),
        pair(m, (1, 16, 12, 12), 16, 4, (3, 3, 1), maps=()),
        pair(m, (1, 16, 12, 12), 16, 4, (3, 3, 1), kind=AveragePoolOp),
    ]
    for x in m.inputs.values():
        x[0, 3, 2, 5], x[0, 7, 9, 9], x[0, 1, 8, 1] = np.inf, -np.inf, np.nan
    m.finish(*(value for both in made for value in both))
    found = m.run()
    assert all(not np.isfinite(array).all() for array in found.values())
    assert all(np.isfinite(array).any() for array in found.values())
    _same(found, len(made))


@pytest.mark.parametrize("element", but_fast(["float16", "bfloat16"], ["float16"]))
def test_what_is_rounded_to_short_floats_pools_as_ever(element: str) -> None:
    m = Maker(seed=5)
    made = [
        pair(m, (1, 16, 13, 10), 23, 4, (3, 3, 1), maps=("relu", element)),
        pair(m, (1, 16, 13, 10), 16, 4, (3, 3, 1), (4, 2), maps=(element,), planes=3),
    ]
    m.finish(*(value for both in made for value in both))
    found = m.run()
    assert all(array.dtype == element for array in found.values())
    # One rounding to either side.
    exact = {name: array.astype(np.float32) for name, array in m.expected().items()}
    near = {name: array.astype(np.float32) for name, array in found.items()}
    compare(near, exact, 2.0**-10 if element == "float16" else 2.0**-7)
    _same(found, len(made))


@pytest.mark.slow
@pytest.mark.parametrize("shared", ["th", "tw", "co"])
def test_cores_agree_with_one(shared: str, tmp_path: Path) -> None:
    m = Maker(PLAIN, seed=6)
    made = [
        pair(m, (2, 9, 19, 22), 20, 4, (1, 2, 2), pads=(0, 1, 2, 1)),
        pair(m, (1, 9, 18, 21), 20, 4, (2, 2, 1), planes=2, kind=AveragePoolOp),
    ]
    for name, schedule in m.schedules.items():
        m.schedules[name] = replace(schedule, shared=shared)
    m.finish(*(value for both in made for value in both))
    CpuTarget().emit(m.compilation(), tmp_path)
    runner = CpuRunner(tmp_path)
    alone = runner.run(m.inputs).outputs
    compare(alone, m.expected(), 4e-5)
    for threads in (2, 3, 5):
        runner.threads = threads
        runner.workspace[:] = 255  # NaN
        found = runner.run(m.inputs).outputs
        assert all(np.array_equal(found[name], array) for name, array in alone.items()), threads
