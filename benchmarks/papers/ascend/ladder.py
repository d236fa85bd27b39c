"""The vendor's ladder of products on an Ascend 910B1, simulated: is the timing of pipes right?

asc-devkit's sample ``matmul_high_performance`` multiplies 8,192 x 8,192 matrices of half precision
in nine steps, from one core without overlap to 24 cores at 86 % of the cube's peak, and prints what
each took. Here each step is a loop nest with the same tiles, depths of L1 and grid of cores, with
flags placed by our own pass, run by the timing of ascend910's and ascend310's kernels.

What the core's description does not say was fixed by cases 0 and 1 alone: a row of a transfer takes
3.38 cycles at least, a transfer 40 more, a load into L0 23.5 more, issuing about 449 cycles a step.
Cases 2 to 8 are predictions. On several cores a row is read from L2 (110 bytes a cycle and core)
or, the part of the requests of a moment that no other core makes, from DDR (32).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from math import ceil
from typing import Any, Literal

from benchmarks.papers.ascend.handovers import synchronised
from benchmarks.report import Column, Table, percent, whole
from tilewright.codegen.nest.value import Value, equal
from tilewright.targets.ascend.machine import ASCEND_910B1, FRACTAL, DaVinci
from tilewright.targets.ascend.program import Buffer, Command, Loop, Place, Program, Region, Tensor
from tilewright.targets.ascend.timing import Timing, simulate

SIZE = 8192
"""M, N and K."""

STEP = 449 / 16
"""Cycles to issue a statement where tiling is computed at run time: 449 a step of 16 statements."""

L2, DDR = 110.0, 32.0
"""Bytes a cycle and core (the chip's tables)."""


Layout = Literal["columns", "rows", "fractals"]
"""``columns``: K is side by side; ``rows``: N is; ``fractals``: 16 of N, and then K."""


@dataclass(frozen=True)
class Case:
    """One step of the ladder; tiles and depths are those that the sample sets."""

    number: int
    about: str
    microseconds: float
    """Measured."""
    tile: tuple[int, int, int]
    """M, N, K of a ``mad``."""
    grid: tuple[int, int] = (1, 1)
    """Cores along M and N."""
    steps: tuple[int, int] = (1, 1)
    """Tiles along K that one transfer of A, and of B, brings to L1."""
    slots: int = 1
    """Buffers of each in L1."""
    halves: int = 1
    """Parts of A, along M, whose products follow each other so that L2 holds what they share."""
    issue: float = STEP
    overlapped: bool = False
    """Whether results leave L0C while a ``mad`` still writes there (the unit flag)."""
    layout: Layout = "columns"
    """How B lies in main memory."""


CASES = (
    Case(0, "one core, tiles of 64", 759_363.98, (64, 64, 64)),
    Case(1, "one core, tiles (128, 256, 64)", 249_467.08, (128, 256, 64)),
    Case(2, "2 x 12 cores", 12_541.22, (128, 256, 64), (2, 12)),
    Case(3, "4 x 6 cores", 12_283.84, (128, 256, 64), (4, 6)),
    Case(4, "two tiles a transfer, two buffers", 5_039.86, (128, 256, 64), (4, 6), (2, 2), 2),
    Case(5, "8 and 4 tiles a transfer", 4_156.76, (128, 256, 64), (4, 6), (8, 4), 2),
    Case(6, "A in two parts, for L2", 4_088.36, (128, 256, 64), (4, 6), (8, 4), 2, 2),
    Case(7, "tiling known to the compiler", 4_053.44, (128, 256, 64), (4, 6), (8, 4), 2, 2, 1),
    Case(8, "unit flag", 4_012.44, (128, 256, 64), (4, 6), (8, 4), 2, 2, 1, True),
)


def missing(case: Case) -> float:
    """The part of requested bytes that DDR serves: what several cores ask for at a time is read
    once, and B stays in L2 while the second half of A is multiplied. One core's operands stay."""
    down, across = case.grid
    m, n, _ = case.tile
    if down * across == 1:
        return 0.0
    fresh = down * m + (across * n if case.halves == 1 else 0)
    return fresh / (down * across * (m + n))


def core_of(case: Case) -> DaVinci:
    """The core, with the rate of main memory that the case's mix of L2 and DDR makes."""
    part = missing(case)
    rate = 1 / ((1 - part) / L2 + part / DDR)
    paths = {**ASCEND_910B1.paths, ("gm", "cbuf"): rate}
    return replace(ASCEND_910B1, paths=paths)


def nest(case: Case, tiles: int, depth: int, n: int) -> Program:
    """A core's loops over ``tiles`` tiles of C, whose reduction is ``depth`` long, without flags.

    A lies row by row, B as the case says; where the bytes of B are does not matter here.
    """
    m, _, k = case.tile
    of_a, of_b = case.steps
    row = depth * 2
    a_tensor, b_tensor = Tensor("a", m * tiles * row), Tensor("b", n * row)
    c_tensor = Tensor("c", tiles * m * n * 2, written=True)
    tile = Loop("t", tiles)
    outer, middle, inner = (
        Loop("s", depth // (k * of_a)),
        Loop("p", of_a // of_b),
        Loop("q", of_b),
    )
    turn = outer.variable + tile.variable * int(str(outer.count))
    turn_b = middle.variable + turn * int(str(middle.count))
    turn_0 = inner.variable + turn_b * int(str(inner.count))
    l1_a = _buffer("l1_a", "cbuf", 0, m * k * of_a * 2, case.slots, turn, outer)
    after = m * k * of_a * 2 * case.slots
    l1_b = _buffer("l1_b", "cbuf", after, n * k * of_b * 2, case.slots, turn_b, middle)
    l0_a = _buffer("l0_a", "ca", 0, _fractals(m, k), 2, turn_0, inner)
    l0_b = _buffer("l0_b", "cb", 0, _fractals(n, k), 2, turn_0, inner)
    slots = 2 if case.overlapped else 1
    l0_c = _buffer("l0_c", "cc", 0, _fractals(m, n) * 2, slots, tile.variable, tile)
    along: Value = outer.variable * (k * of_a * 2)
    along_b = along + middle.variable * (k * of_b * 2)
    outer.body = [
        _rows("load_a", l1_a, Place(a_tensor, along + tile.variable * (m * row)), m, of_a * k, row),
        middle,
    ]
    load_b = _rows(
        "load_b", l1_b, Place(b_tensor, along_b), *_rows_of(case.layout, n, of_b * k), row
    )
    middle.body = [load_b, inner]
    position: Value = inner.variable + middle.variable * of_b
    first = inner.variable + middle.variable + outer.variable
    inner.body = [
        _near("load_l0_a", l0_a, Place(l1_a, position * (m * k * 2)), m * k * 2),
        _near("load_l0_b", l0_b, Place(l1_b, inner.variable * (n * k * 2)), n * k * 2),
        Command(
            "mad",
            "M",
            (equal(first, 0),),
            (Region(Place(l0_a), m * k * 2), Region(Place(l0_b), n * k * 2)),
            (Region(Place(l0_c), m * n * 4),),
            None,
            ceil(m / 16) * ceil(n / 16) * ceil(k / 16),
        ),
    ]
    # Half-precision results: the transfer's cycles are those of the bytes that arrive.
    leave = Command(
        "fixpipe",
        "FIX",
        (),
        (Region(Place(l0_c), m * n * 2),),
        (Region(Place(c_tensor, tile.variable * (m * n * 2)), m * n * 2),),
    )
    tile.body = [outer, leave]
    return Program("ladder", (a_tensor, b_tensor, c_tensor), [tile], (l1_a, l1_b, l0_a, l0_b, l0_c))


def _buffer(
    name: str, memory: str, address: int, size: int, slots: int, turn: Value, scope: Loop
) -> Buffer:
    return Buffer(name, memory, address, size, slots, turn % slots if slots > 1 else 0, scope)


def _fractals(rows: int, columns: int) -> int:
    return ceil(rows / 16) * ceil(columns / 16) * FRACTAL


def _rows_of(layout: Layout, n: int, k: int) -> tuple[int, int]:
    """The rows of a tile of B in main memory, and the elements of each."""
    if layout == "columns":
        return n, k
    return (k, n) if layout == "rows" else (ceil(n / 16), 16 * k)


def _rows(name: str, home: Buffer, source: Place, rows: int, columns: int, pitch: int) -> Command:
    """Rows of a matrix that lies row by row, brought to L1."""
    reads = (Region(source, columns * 2, (rows,), (pitch,)),)
    return Command(name, "MTE2", (), reads, (Region(Place(home), rows * columns * 2),))


def _near(name: str, home: Buffer, source: Place, size: int) -> Command:
    return Command(name, "MTE1", (), (Region(source, size),), (Region(Place(home), size),))


@cache
def _timed(case: Case, tiles: int, depth: int, n: int) -> Timing:
    program = synchronised(nest(case, tiles, depth, n), events=ASCEND_910B1.events)
    return simulate(program, core_of(case), issue=case.issue)


def predicted(case: Case) -> tuple[float, float]:
    """Microseconds of the case, and the part of it in which the cube of the busiest core works.

    Tiles of C follow each other alike, and so do steps of a reduction: four short runs say what the
    next tile takes, and the next step of it. What the launch takes beside its tiles, from its first
    statement to its first product and behind its last one, is there once: tiling that is computed
    at run time is issued before the first transfer, where nothing hides it.
    """
    down, across = case.grid
    m, n, k = case.tile
    columns = ceil(SIZE / across) if across == 12 else ceil(SIZE / across / n) * n
    widths = [n] * (columns // n) + ([columns % n] if columns % n else [])
    cycles, busy = beside_tiles(case), 0.0
    short, long = (k * case.steps[0] * count for count in (4, 8))
    for width in widths:
        tiles = ceil(SIZE / down / m)
        near, far = (
            tuple(
                late - early
                for early, late in zip(
                    _numbers(_timed(case, 3, depth, width)),
                    _numbers(_timed(case, 5, depth, width)),
                    strict=True,
                )
            )
            for depth in (short, long)
        )
        steps = (SIZE - short) / (long - short)
        cycles += tiles / 2 * (near[0] + (far[0] - near[0]) * steps)
        busy += tiles / 2 * (near[1] + (far[1] - near[1]) * steps)
    return cycles / ASCEND_910B1.clock_hz * 1e6, busy / cycles


def beside_tiles(case: Case) -> float:
    """Cycles of a launch that no tile of C adds."""
    three, five = (cycles_of(case, tiles, 4) for tiles in (3, 5))
    return three - (five - three) / 2 * 3


def cycles_of(case: Case, tiles: int, transfers: int) -> float:
    """Cycles of a core that computes ``tiles`` tiles of C, each of so many transfers of A."""
    return _timed(case, tiles, case.tile[2] * case.steps[0] * transfers, case.tile[1]).cycles


def _numbers(timing: Timing) -> tuple[float, float]:
    return timing.cycles, timing.busy["M"]


def ladder() -> list[dict[str, Any]]:
    """A row for each case."""
    rows: list[dict[str, Any]] = []
    for case in CASES:
        time, cube = predicted(case)
        rows.append(
            {
                "case": f"{case.number}: {case.about}",
                "measured": case.microseconds,
                "simulated": time,
                "error": time / case.microseconds - 1,
                "cube": cube,
            }
        )
    return rows


def frozen() -> str:
    """A digest of all that the predictions rest on: the core's rates and the issue rate.

    The page of results names it, so parameters fitted afterwards do not go unseen.
    """
    core = ASCEND_910B1
    rates = (core.clock_hz, core.paths, core.mad_head, core.load_head, core.burst, core.latency)
    return sha256(repr((rates, STEP, L2, DDR)).encode()).hexdigest()[:16]


def table() -> Table:
    """The ladder as a table."""
    apart = beside_tiles(CASES[6]) - beside_tiles(CASES[7])
    return Table(
        "8,192 x 8,192 x 8,192 on an Ascend 910B1: the vendor's ladder",
        (
            Column("case", "case"),
            Column("measured", "measured us", whole),
            Column("simulated", "simulated us", whole),
            Column("error", "error", percent),
            Column("cube", "cube busy", percent),
        ),
        ladder(),
        (
            "Cases 0 and 1 and the chip's tables give the parameters; the others are predicted.",
            "Of run-time tiling only what stands before a launch's first transfer is exposed here: "
            f"cases 6 and 7 are {apart:.0f} cycles apart.",
            "Not modelled: cores that read the same address wait for each other, which is why case "
            "3 is measured faster than case 2.",
            f"Parameters {frozen()}.",
        ),
    )
