"""The processor's measured performance: clock, peak, bandwidths, register tiles.

The description of a processor is otherwise nominal. Register tiles are priced by the linear form
of swATOP's Eq. 2, fitted to measurements of each micro-kernel: K steps of the reduction on a tile
of P points and V vectors take a K + b cycles, with a and b for each P and V. Sizes between two that
were measured take what lies between. There are two micro-kernels: the one of products and
convolutions, and that of blocks in scratch, whose inputs lie as it reads them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tilewright.codegen.c.compiler import compiler_version
from tilewright.codegen.host.library import arena
from tilewright.errors import refuse
from tilewright.machine import Machine
from tilewright.machine.forms import first_reason
from tilewright.planning.domain import Affine, Dim, Kernel, Operand, Stage
from tilewright.planning.schedule import Level, Schedule
from tilewright.system.files import need_file
from tilewright.targets.cpu.candidates import Sources, built, loaded, timed_text
from tilewright.targets.cpu.headers import SUPPORT
from tilewright.targets.cpu.machine import machine
from tilewright.targets.cpu.planning.registers import REGISTERS, registers_of
from tilewright.targets.cpu.primitives.ahead import Ahead
from tilewright.targets.cpu.primitives.block_products import part_text
from tilewright.targets.cpu.primitives.code import NAME
from tilewright.targets.cpu.processors import Processor, this_processor
from tilewright.targets.cpu.tiles import tiles_granted

TRIALS = 5
"""Measurements of each figure; the best counts, as anything else disturbs."""

LARGEST_FILE = 1 << 20
_PANEL_BYTES = 24 << 10
"""Weights of the deeper of a tile's two products: in the first cache, as what lies further is
priced apart, and as deep as that allows, or what a call takes would blur what a step takes."""
POINTS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24, 28)
"""Points of the tiles that are measured, and the most that fit."""
_VECTORS = (1, 2, 3, 4, 6, 8)
FEW_POINTS = 5
TURNS = 100
"""Measurements of a tile at each depth."""
TURN_SECONDS = 1e-3

Tile = tuple[float, float, float, float]


class Calibration(BaseModel):
    """The measurements of a processor, as they are stored."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    processor: str
    """Lanes and compiler: a calibration is of no use to another processor or compiler."""
    clock_hz: float = Field(gt=1e6, lt=1e11)
    vectors_per_cycle: float = Field(gt=0.01, lt=64)
    bandwidths: tuple[float, float, float, float]
    """Bytes per cycle that are read from the first, second and third cache, and main memory."""
    tiles: tuple[Tile, ...] = Field(max_length=1000)
    """Eq. 2: vectors, points, cycles of each step of the reduction and of a call."""
    parts: tuple[Tile, ...] = Field(default=(), max_length=1000)
    """Rows like those of ``tiles``, for blocks in scratch; empty in older files: ``tiles`` stands
    for them."""
    block_cycles: float | None = Field(default=None, gt=0.1, lt=1e6)
    """``Processor.block_cycles``; older files, and processors without matrix tiles, have none."""

    def applied(self) -> Processor:
        """The processor at hand with what was measured; refuses (``cpu-calibration``) another's."""
        here = this_processor()
        if self.processor != _identity(here):
            raise refuse(
                "cpu-calibration", "it was made for another processor or compiler",
                self.processor, "run tilewright calibrate here",
            )  # fmt: skip
        return replace(
            here,
            clock_hz=self.clock_hz,
            vectors_per_cycle=self.vectors_per_cycle,
            bandwidths=self.bandwidths,
            tiles=self.tiles,
            parts=self.parts or self.tiles,
            block_cycles=(self.block_cycles or here.block_cycles) if here.block_cycles else 0.0,
        )

    @classmethod
    def read(cls, path: Path) -> Calibration:
        """Read what ``tilewright calibrate`` wrote; refuses anything else."""
        need_file(path, "cpu-calibration", "run tilewright calibrate")
        try:
            if path.stat().st_size > LARGEST_FILE:
                raise ValueError("the file is too large")
            return cls.model_validate_json(path.read_text())
        except (OSError, ValueError, ValidationError) as error:
            raise refuse(
                "cpu-calibration", f"is no calibration: {first_reason(error)}", str(path),
                "run tilewright calibrate",
            ) from None  # fmt: skip


def _identity(processor: Processor) -> str:
    return f"{processor.lanes} lanes, {processor.registers} registers, {compiler_version()}"


def _quiet(activity: str, done: int, total: int) -> None:
    del activity, done, total


def calibrate(progress: Callable[[str, int, int], None] = _quiet) -> Calibration:
    """Measure the processor at hand, on one core; about thirty seconds. Raises TilewrightError."""
    here = this_processor()
    text = f"#define LANES {here.lanes}\n{(SUPPORT / 'calibrate.c').read_text()}"
    with loaded({"calibrate.c": text}) as library:
        for name in ("rotations", "products", "reads", *(["pieces"] if here.block_cycles else [])):
            getattr(library, f"calibrate_{name}").restype = ctypes.c_double
        progress("calibrate", 0, 7)
        clock = _clock(library)
        progress("calibrate", 1, 7)
        vectors = _peak(library, clock)
        block = _block(library) * clock if here.block_cycles and tiles_granted() else None
        bandwidths: list[float] = []
        sizes = (here.level1_bytes // 2, here.level2_bytes // 2, here.level3_bytes // 2)
        for number, size in enumerate((*sizes, max(8 * here.level3_bytes, 64 << 20))):
            progress("calibrate", 2 + number, 7)
            bandwidths.append(_bandwidth(library, here, size) / clock)
    progress("calibrate", 6, 7)
    first, second, third, main = bandwidths
    tiles, parts = _tiles(replace(here, clock_hz=clock, vectors_per_cycle=vectors), progress)
    return Calibration(
        processor=_identity(here),
        clock_hz=clock,
        vectors_per_cycle=vectors,
        bandwidths=(first, second, third, main),
        tiles=tiles,
        parts=parts,
        block_cycles=block,
    )


def _best(run: Callable[[int], float], start: int = 1) -> float:
    """Least seconds of one of ``count`` repetitions, with enough of them to be told apart."""
    count = start
    while run(count) < 5e-3 and count < 1 << 40:
        count *= 4
    return min(run(count) for _ in range(TRIALS)) / count


def _clock(library: ctypes.CDLL) -> float:
    """Cycles in a second: dependent rotations take one each."""
    return 16 / _best(lambda n: float(library.calibrate_rotations(ctypes.c_long(n))), 1 << 12)


def _peak(library: ctypes.CDLL, clock: float) -> float:
    """Multiply-adds on whole vectors in a cycle."""
    factor = ctypes.c_float(0.5)
    took = _best(lambda n: float(library.calibrate_products(ctypes.c_long(n), factor)), 1 << 12)
    return 12 / (took * clock)


def _block(library: ctypes.CDLL) -> float:
    """Seconds of one block of products in pieces: a register tile's step has four."""
    data = arena(1 << 13)
    pointer = ctypes.c_void_p(data.ctypes.data)
    return _best(lambda n: float(library.calibrate_pieces(pointer, ctypes.c_long(n))), 1 << 10) / 4


def _bandwidth(library: ctypes.CDLL, here: Processor, size: int) -> float:
    """Bytes in a second that are read from a buffer of about ``size`` bytes."""
    count = max(size // 4 // (8 * here.lanes), 1) * 8 * here.lanes
    data = arena(4 * count)
    data[:] = 0
    pointer = ctypes.c_void_p(data.ctypes.data)
    took = _best(
        lambda n: float(library.calibrate_reads(pointer, ctypes.c_long(count), ctypes.c_long(n)))
    )
    return 4 * count / took


def _tiles(
    here: Processor, progress: Callable[[str, int, int], None]
) -> tuple[tuple[Tile, ...], tuple[Tile, ...]]:
    """Eq. 2's coefficients of both micro-kernels' register tiles, in cycles."""
    described = machine(here)
    primitive = next(p for p in described.primitives if "matmul" in p.operations)
    registers = registers_of(described, primitive)
    sizes: list[tuple[int, int]] = []
    for vectors in _VECTORS:
        most = max((p for p in range(1, 33) if registers.fits(p, vectors)), default=0)
        sizes += [(vectors, points) for points in sorted({*POINTS, most}) if 0 < points <= most]
    if len(sizes) < 8:
        raise refuse("cpu-calibration", "no register tile could be measured")
    families: list[tuple[Tile, ...]] = []
    with ExitStack() as stack:
        runs = _products(stack, here, described, primitive.name, sizes, progress)
        runs += stack.enter_context(_parts(here, sizes))
        cycles = [seconds * here.clock_hz for seconds in _in_turns(runs)]
    for start in (0, 2 * len(sizes)):
        tiles: list[Tile] = []
        for number, (vectors, points) in enumerate(sizes):
            taken = cycles[start + 2 * number : start + 2 * number + 2]
            least = _least(vectors, points, here.vectors_per_cycle)
            fitted = _fit(depths_of(vectors, here.lanes), taken, least)
            tiles.append((vectors, points, *fitted))
        families.append(_straight(tiles, here.vectors_per_cycle))
    return families[0], families[1]


Run = Callable[[int], float]
"""Function that runs a kernel a number of times and returns the seconds of one run."""


def _in_turns(runs: Sequence[Run]) -> list[float]:
    """The least seconds of each run. Runs take turns, so that none is measured only while the
    processor is slower, or more loaded, than for the others."""
    repeats = [max(1, int(TURN_SECONDS / max(run(8), 1e-9))) for run in runs]
    least = [inf] * len(runs)
    for _ in range(TURNS):
        for number, run in enumerate(runs):
            least[number] = min(least[number], run(repeats[number]))
    return least


def _products(
    stack: ExitStack,
    here: Processor,
    described: Machine,
    primitive: str,
    sizes: Sequence[tuple[int, int]],
    progress: Callable[[str, int, int], None],
) -> list[Run]:
    """Register tiles of products, each at its two depths."""
    runs: list[Run] = []
    for number, (vectors, points) in enumerate(sizes):
        progress("register tiles", number, len(sizes))
        for depth in depths_of(vectors, here.lanes):
            kernel = _product(points, vectors * here.lanes, depth)
            tile = (("ci", depth), ("co", vectors * here.lanes), ("m", points))
            schedule = Schedule(primitive, (Level(REGISTERS, tile, ("m", "co", "ci")),))
            sources = Sources.of(kernel, described, [schedule])
            if not sources.distinct:
                raise refuse("cpu-calibration", "a register tile cannot be built")
            candidates = stack.enter_context(built(sources, (0,)))
            runs.append(partial(candidates.seconds, 0))
    return runs


@contextmanager
def _parts(here: Processor, sizes: Sequence[tuple[int, int]]) -> Generator[list[Run]]:
    """Register tiles of blocks in scratch, each at its two depths."""
    shapes = [
        (vectors, points, depth)
        for vectors, points in sizes
        for depth in depths_of(vectors, here.lanes)
    ]
    # As kernels do, each step asks for a line of the weights that come next.
    hint = Ahead(here.lanes, 1, here.lanes, near=True)
    texts: dict[str, str] = {}
    for number, (vectors, points, depth) in enumerate(shapes):
        places = [each * depth * here.lanes for each in range(vectors)]
        name = f"part_{number}"
        text = part_text(points, places, depth, here.lanes, points, share=hint)
        pointers = "const float *u, const float *v, float *m"
        text = timed_text(here.lanes, text.replace(NAME, name), name, pointers, "u, v, m, u")
        texts[f"{name}.c"] = text
    # Weights, inputs and results of the largest, each with room to spare.
    space = arena(3 * LARGEST_FILE).view(np.float32)
    u, v, m = (space.ctypes.data + which * LARGEST_FILE for which in range(3))
    with loaded(texts) as library:

        def run(number: int, repeats: int) -> float:
            function = getattr(library, f"part_{number}_seconds")
            function.restype = ctypes.c_double
            pointers = map(ctypes.c_void_p, (u, v, m))
            return float(function(*pointers, ctypes.c_long(repeats))) / repeats

        yield [partial(run, number) for number in range(len(shapes))]


def _least(vectors: float, points: float, vectors_per_cycle: float) -> float:
    """Cycles of a step at the processor's peak: what takes less was measured amid disturbance."""
    return vectors * points / vectors_per_cycle


def _straight(tiles: Sequence[Tile], vectors_per_cycle: float) -> tuple[Tile, ...]:
    """The tiles with steps on the line, by points, through all of as many vectors.

    So noise of one measurement makes no tile look better than its neighbours. Of a few points steps
    wait for what they load, and stay as they were measured.
    """
    fitted: list[Tile] = []
    for vectors in sorted({tile[0] for tile in tiles}):
        alike = [tile for tile in tiles if tile[0] == vectors]
        wide = [tile for tile in alike if tile[1] > FEW_POINTS]
        fitted += [tile for tile in alike if tile not in wide or len(wide) < 3]
        if len(wide) < 3:
            continue
        rows = np.array([(1.0 / step, points / step) for _, points, step, _ in wide])
        base, each = np.linalg.lstsq(rows, np.ones(len(wide)), rcond=None)[0]
        call = float(np.median([tile[3] for tile in wide]))
        for _, points, _, _ in wide:
            least = _least(vectors, points, vectors_per_cycle)
            fitted.append((vectors, points, max(float(base + each * points), least), call))
    return tuple(fitted)


def depths_of(vectors: int, lanes: int) -> tuple[int, int]:
    """Steps of the two products that a tile's line is drawn through."""
    long = _PANEL_BYTES // (4 * lanes * vectors)
    return long // 3, long


def _fit(depths: Sequence[int], cycles: Sequence[float], least: float) -> tuple[float, float]:
    """The line through the cycles at two depths: those of a step and of a call.

    A step takes at least ``least``, the processor's peak, and a call no less than 0: so no
    disturbed measurement makes a tile look free.
    """
    (short, long), (first, last) = depths, cycles
    step = max(least, min((last - first) / (long - short), last / long))
    return step, max(0.0, last - step * long)


def _product(points: int, columns: int, depth: int) -> Kernel:
    def at(*dims: str) -> Sequence[Affine]:
        return tuple(Affine(((dim, 1),)) for dim in dims)

    lanes = this_processor().lanes
    dims = (Dim("m", points), Dim("co", columns), Dim("ci", depth, "reduction"))
    x = Operand("x", (points, depth), tuple(at("m", "ci")))
    w = Operand("w", (columns, depth), tuple(at("co", "ci")), role="weight", layout=f"OI{lanes}o")
    y = Operand("y", (points, columns), tuple(at("m", "co")), role="output")
    return Kernel("tile", (Stage("matmul", dims, (x, w), y),))
