"""What the processor at hand reaches, measured once: clock, peak, bandwidths, register tiles.

The description of a processor is otherwise nominal. Register tiles are priced by the linear form
of swATOP's Eq. 2, fitted to measured ones: K steps of the reduction on a tile of p points and v
vectors take a K + b K v + c K p v + d cycles.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tilewright.errors import refuse
from tilewright.planning.domain import Affine, Dim, Kernel, Operand, Stage
from tilewright.planning.registers import FOLDED, REGISTERS, registers_of
from tilewright.planning.schedule import Level, Schedule
from tilewright.targets.cpu.compiler import compiler_version
from tilewright.targets.cpu.library import loaded
from tilewright.targets.cpu.machine import machine
from tilewright.targets.cpu.measure import measure
from tilewright.targets.cpu.package import SUPPORT
from tilewright.targets.cpu.processors import Processor, this_processor
from tilewright.targets.cpu.runner import arena

TRIALS = 5
"""Measurements of each figure; the best counts, as anything else disturbs."""

LARGEST_FILE = 1 << 20
_DEPTHS = (64, 128, 256, 512)


class Calibration(BaseModel):
    """What was measured, as it is stored."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    processor: str
    """Lanes and compiler: a calibration is of no use to another processor or compiler."""
    clock_hz: float = Field(gt=1e6, lt=1e11)
    vectors_per_cycle: float = Field(gt=0.01, lt=64)
    bandwidths: tuple[float, float, float, float]
    """Bytes per cycle that are read from the first, second and third cache, and main memory."""
    tile: tuple[float, float, float, float]
    """Eq. 2: cycles for K, for K v, for K p v, and constant."""
    tile_error: float = Field(ge=0)
    """Mean relative error of the fit on the tiles that it was made from."""

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
            tile=self.tile,
        )

    @classmethod
    def read(cls, path: Path) -> Calibration:
        """Read what ``tilewright calibrate`` wrote; refuses anything else."""
        try:
            if path.stat().st_size > LARGEST_FILE:
                raise ValueError("the file is too large")
            return cls.model_validate_json(path.read_text())
        except (OSError, ValueError, ValidationError) as error:
            raise refuse(
                "cpu-calibration", f"is no calibration: {str(error)[:200]}", str(path),
                "run tilewright calibrate",
            ) from None  # fmt: skip


def _identity(processor: Processor) -> str:
    return f"{processor.lanes} lanes, {processor.registers} registers, {compiler_version()}"


def _quiet(what: str, done: int, total: int) -> None:
    del what, done, total


def calibrate(progress: Callable[[str, int, int], None] = _quiet) -> Calibration:
    """Measure the processor at hand, on one core; about ten seconds. Raises TilewrightError."""
    here = this_processor()
    text = f"#define LANES {here.lanes}\n{(SUPPORT / 'calibrate.c').read_text()}"
    with loaded({"calibrate.c": text}) as library:
        for name in ("additions", "products", "reads"):
            getattr(library, f"calibrate_{name}").restype = ctypes.c_double
        progress("calibrate", 0, 7)
        clock = _clock(library)
        progress("calibrate", 1, 7)
        vectors = _peak(library, clock)
        bandwidths: list[float] = []
        sizes = (here.level1_bytes // 2, here.level2_bytes // 2, here.level3_bytes // 2)
        for number, size in enumerate((*sizes, max(8 * here.level3_bytes, 64 << 20))):
            progress("calibrate", 2 + number, 7)
            bandwidths.append(_bandwidth(library, here, size) / clock)
    progress("calibrate", 6, 7)
    one, two, three, main = bandwidths
    tile, error = _tiles(replace(here, clock_hz=clock, vectors_per_cycle=vectors))
    return Calibration(
        processor=_identity(here),
        clock_hz=clock,
        vectors_per_cycle=vectors,
        bandwidths=(one, two, three, main),
        tile=tile,
        tile_error=error,
    )


def _best(run: Callable[[int], float], start: int = 1) -> float:
    """Least seconds of one of ``count`` repetitions, with enough of them to be told apart."""
    count = start
    while run(count) < 5e-3 and count < 1 << 40:
        count *= 4
    return min(run(count) for _ in range(TRIALS)) / count


def _clock(library: ctypes.CDLL) -> float:
    """Cycles in a second: dependent additions take one each."""
    return 16 / _best(lambda n: float(library.calibrate_additions(ctypes.c_long(n))), 1 << 12)


def _peak(library: ctypes.CDLL, clock: float) -> float:
    """Multiply-adds on whole vectors in a cycle."""
    factor = ctypes.c_float(0.5)
    took = _best(lambda n: float(library.calibrate_products(ctypes.c_long(n), factor)), 1 << 12)
    return 12 / (took * clock)


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


def _tiles(here: Processor) -> tuple[tuple[float, float, float, float], float]:
    """Eq. 2's coefficients in cycles, and the fit's mean relative error.

    Relative errors are minimised; no coefficient is negative, as more work takes no less time.
    """
    described = machine(here)
    primitive = next(p for p in described.primitives if "matmul" in p.operations)
    registers = registers_of(described, primitive)
    rows: list[tuple[float, float, float, float]] = []
    cycles: list[float] = []
    for vectors in (1, 2, 3, 4):
        most = max((p for p in range(1, 33) if registers.fits(p, vectors)), default=0)
        # Fewer points are priced by what they load (registers.py).
        for points in sorted(p for p in {most, most - most // 4, most // 2} if p > FOLDED):
            kernels = [_product(points, vectors * here.lanes, depth) for depth in _DEPTHS]
            for kernel, depth in zip(kernels, _DEPTHS, strict=True):
                tile = (("ci", depth), ("co", vectors * here.lanes), ("m", points))
                schedule = Schedule(primitive.name, (Level(REGISTERS, tile, ("m", "co", "ci")),))
                seconds = measure(kernel, described, [schedule])[0]
                if seconds < inf:
                    rows.append((depth, depth * vectors, depth * points * vectors, 1.0))
                    cycles.append(seconds * here.clock_hz)
    if len(rows) < 8:
        raise refuse("cpu-calibration", "no register tile could be measured")
    found = _fit(np.array(rows), np.array(cycles))
    error = float(np.mean(np.abs(np.array(rows) @ found / np.array(cycles) - 1.0)))
    a, b, c, d = (float(value) for value in found)
    return (a, b, c, d), error


def _fit(rows: np.ndarray, cycles: np.ndarray) -> np.ndarray:
    """Least squares of relative errors without negative coefficients: these are left out."""
    scaled, ones = rows / cycles[:, None], np.ones(len(cycles))
    kept = list(range(rows.shape[1]))
    while True:
        found = np.zeros(rows.shape[1])
        found[kept] = np.linalg.lstsq(scaled[:, kept], ones, rcond=None)[0]
        if (found >= 0).all() or len(kept) == 1:
            return np.maximum(found, 0.0)
        kept.remove(int(np.argmin(found)))


def _product(points: int, columns: int, depth: int) -> Kernel:
    def at(*dims: str) -> Sequence[Affine]:
        return tuple(Affine(((dim, 1),)) for dim in dims)

    lanes = this_processor().lanes
    dims = (Dim("m", points), Dim("co", columns), Dim("ci", depth, "reduction"))
    x = Operand("x", (points, depth), tuple(at("m", "ci")))
    w = Operand("w", (columns, depth), tuple(at("co", "ci")), role="weight", layout=f"OI{lanes}o")
    y = Operand("y", (points, columns), tuple(at("m", "co")), role="output")
    return Kernel("tile", (Stage("matmul", dims, (x, w), y),))
