"""ascend-sweeps: the thesis' four sweeps over tiles (m, k) of (512, 768, 768), for several n.

Section 6.4.1 plots the time of the strategy ``os`` without optimisation, with second buffers, on
several cores, and with both; what the plots show is lost. Here each tile's kernel is emitted and
simulated: tiles of C follow each other alike, so kernels of three and of five of them say what any
number takes. On several cores a tile of C is a block, and blocks are dealt to 32 cores, which share
1,200 bytes of main memory a cycle. results/ascend-sweeps.csv has every point, ascend-sweeps.svg
draws them.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from math import ceil
from pathlib import Path
from typing import Any

from benchmarks.papers.ascend import SIZES, core_with
from benchmarks.papers.ascend.handovers import synchronised
from benchmarks.papers.ascend.matmul import Matrices, Tiling, matmul
from benchmarks.papers.ascend.sweep_picture import draw
from benchmarks.report import RESULTS, Column, Table, percent, whole
from tilewright.errors import TilewrightError
from tilewright.planning.planners.stationary import Kind, Stationary, Tile
from tilewright.targets.ascend.lowering.cube import cube_kernel
from tilewright.targets.ascend.machine import ASCEND_910
from tilewright.targets.ascend.network import network_machine
from tilewright.targets.ascend.program import Program
from tilewright.targets.ascend.timing import simulate
from tilewright.tile.lower import tile as tile_program

TITLE = "DaVinci: the thesis' sweeps over tiles of (512, 768, 768)"

NETWORKS: tuple[str, ...] = ()

ROWS = (32, 64, 128, 256, 512)
COLUMNS = (32, 64, 96, 128, 192, 256, 384, 768)
DEPTHS = (16, 32, 64, 128, 256)
"""m, k and n."""

CORES = 32
OWN, SHARED = 64.0, 1200.0
"""Bytes of main memory a cycle: of one core at most, and of all."""

THESIS = Tile(256, 128, 256)

MODES: Mapping[str, tuple[bool, int]] = {
    "one of each buffer": (False, 1),
    "second buffers": (True, 1),
    "32 cores": (False, CORES),
    "both": (True, CORES),
}

SECOND = ({"l1": 2, "l0": 2, "ub": 2, "l0c": 2}, {"l1": 2, "l0": 2, "ub": 2}, {"l1": 2, "l0": 2})
"""Second buffers of all, of all but sums, and of operands: what fits and is fastest is taken."""

OTHERS: Mapping[Kind, tuple[Tile, ...]] = {
    "is": (Tile(32, 768, 32), Tile(64, 32, 768), Tile(64, 16, 768)),
    "ws": (Tile(32, 768, 32), Tile(512, 64, 128), Tile(512, 32, 128)),
}
"""The thesis' best of the other strategies, and those that load the least of all."""


@cache
def _program(tile: Tile, count: int, slots: tuple[tuple[str, int], ...]) -> Program | None:
    """The kernel of so many tiles of C side by side; None where its buffers do not fit."""
    _, depth, _ = SIZES
    tiling = Tiling(tile.m, tile.n, tile.k, tile.m, tile.n, tile.k, **dict(slots))
    try:
        return synchronised(matmul(Matrices(tile.m, depth, tile.k * count), tiling, ASCEND_910))
    except TilewrightError:
        return None


def cycles(tile: Tile, *, second: bool, cores: int) -> float | None:
    """What the product takes with a tile; None where it does not fit."""
    rows, _, columns = SIZES
    blocks = (rows // tile.m) * (columns // tile.k)
    count = ceil(blocks / cores)
    core = core_with(min(OWN, SHARED / min(blocks, cores)))
    times: list[float] = []
    for slots in SECOND if second else ({},):
        words = tuple(slots.items())
        if count <= 5:
            program = _program(tile, count, words)
            if program is not None:
                times.append(simulate(program, core).cycles)
            continue
        few, more = (_program(tile, number, words) for number in (3, 5))
        if few is None or more is None:
            continue
        three, five = simulate(few, core).cycles, simulate(more, core).cycles
        times.append(three + (five - three) / 2 * (count - 3))
    return min(times, default=None)


def points() -> Iterator[dict[str, Any]]:
    """Every tile under every mode, where it fits."""
    for n, m, k in product(DEPTHS, ROWS, COLUMNS):
        for mode, (second, cores) in MODES.items():
            time = cycles(Tile(m, n, k), second=second, cores=cores)
            if time is not None:
                yield {"mode": mode, "m": m, "n": n, "k": k, "cycles": time}


def other(kind: Kind, tile: Tile, *, second: bool) -> float | None:
    """What one core takes under another strategy; None where the tile does not fit."""
    machine = network_machine(ASCEND_910)
    kernel = Matrices(*SIZES).kernel("product")
    try:
        planner = Stationary(kind, 2 if second else 1)
        schedule = planner.schedule(kernel, machine, tile)
        kernel_program = cube_kernel(tile_program(kernel, schedule, machine), ASCEND_910, "product")
    except TilewrightError:
        return None
    return simulate(synchronised(kernel_program), core_with(OWN)).cycles


def _named(tile: Tile) -> str:
    return f"({tile.m},{tile.n},{tile.k})"


def summary(rows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Each sweep: its best tile, the thesis', and the best of the other strategies."""
    cube = SIZES[0] * SIZES[1] * SIZES[2] / 4096
    for mode, (second, cores) in MODES.items():
        mine = sorted(
            (simulated for simulated in rows if simulated["mode"] == mode),
            key=lambda simulated: simulated["cycles"],
        )
        best = mine[0]
        row: dict[str, Any] = {
            "mode": mode,
            "best": _named(Tile(best["m"], best["n"], best["k"])),
            "cycles": best["cycles"],
            "peak": cube / min(cores, CORES) / best["cycles"],
        }
        for place, simulated in enumerate(mine, 1):
            if Tile(simulated["m"], simulated["n"], simulated["k"]) == THESIS:
                row |= {"thesis": simulated["cycles"], "place": f"{place} of {len(mine)}"}
        for kind, tiles in OTHERS.items() if cores == 1 else ():
            times = [
                (time, simulated)
                for simulated in tiles
                if (time := other(kind, simulated, second=second))
            ]
            if times:
                time, tile = min(times)
                row |= {kind: time, f"{kind}_tile": _named(tile)}
        yield row


def best_of_each(rows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """The best (m, k) for each n."""
    for n in DEPTHS:
        row: dict[str, Any] = {"n": n}
        for mode in MODES:
            mine = [
                simulated for simulated in rows if (simulated["mode"], simulated["n"]) == (mode, n)
            ]
            best = min(mine, key=lambda simulated: simulated["cycles"], default=None)
            if best is not None:
                row[mode] = f"({best['m']},{best['k']}): {best['cycles']:,.0f}"
        yield row


def keep_points(rows: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """The points as a table for other programs, and as a picture."""
    with (folder / "ascend-sweeps.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["mode", "m", "n", "k", "cycles"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    (folder / "ascend-sweeps.svg").write_text(draw(rows, list(MODES), DEPTHS, ROWS, COLUMNS))


def tables(networks: Sequence[str]) -> list[Table]:
    """Both tables; points go beside them."""
    del networks
    rows = list(points())
    keep_points(rows, RESULTS)
    columns = (
        *(
            Column("mode", "os with"),
            Column("best", "best tile"),
            Column("cycles", "cycles", whole),
        ),
        Column("peak", "part of the cubes' peak", percent),
        Column("thesis", f"{_named(THESIS)} takes", whole),
        Column("place", "its place"),
        *(Column("is", "is", whole), Column("is_tile", "with")),
        *(Column("ws", "ws", whole), Column("ws_tile", "with")),
    )
    return [
        Table(
            "Four sweeps",
            columns,
            list(summary(rows)),
            (
                "64 bytes of main memory a cycle and core, 1,200 in all; is and ws on one core.",
                "Of second buffers those are taken that fit and are fastest.",
            ),
        ),
        Table(
            "The best (m,k) for each n",
            (Column("n", "n"), *(Column(mode, mode) for mode in MODES)),
            list(best_of_each(rows)),
        ),
    ]
