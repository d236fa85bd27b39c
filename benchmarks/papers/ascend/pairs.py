"""Pairs of tilings that the vendor measured on one product: does the simulation rank them alike?

catlass' guide to tuning (``catlass_optimize_guidance``) multiplies five shapes on an Ascend 910B,
each with two tilings or two orders of its blocks, and prints what each took. A core computes its
blocks of C one after another; a block is ``ladder.nest`` of one tile of C, timed with the ladder's
parameters. Nothing here was fitted to these runs, whose clock and chip the guide does not name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from math import ceil
from typing import Any

from benchmarks.papers.ascend.handovers import synchronised
from benchmarks.papers.ascend.ladder import DDR, L2, Case, Layout, nest
from benchmarks.report import Column, Table
from tilewright.targets.ascend.machine import ASCEND_910B1
from tilewright.targets.ascend.timing import simulate

LINE = 512
"""Bytes of main memory that are read together: the alignment that the vendor asks for."""

ELEMENT = 2
"""Bytes of an element. One of float32 counts as two along K; the cube multiplies half as many."""


@dataclass(frozen=True)
class Work:
    """A product, and the cores that compute it."""

    m: int
    n: int
    k: int
    cores: int
    layout: Layout = "columns"


@dataclass(frozen=True)
class Choice:
    """How the product was cut, and what that took."""

    tile: tuple[int, int, int]
    """M, N, K of a tile in L1; K of a ``mad`` is a quarter."""
    microseconds: float
    """Measured."""
    columns: int = 1
    """Columns of blocks that follow each other before the next row of blocks does (``swizzle``)."""


@dataclass(frozen=True)
class Pair:
    """Two choices for one product."""

    name: str
    work: Work
    first: Choice
    second: Choice


WIDE, SHORT = (128, 256, 256), (32, 320, 128)

PAIRS = (
    Pair(
        "1024 x 576 x 6144, tiles",
        Work(1024, 576, 6144, 20),
        Choice(WIDE, 72.5),
        Choice((256, 128, 256), 48.6),
    ),
    Pair(
        "20 x 6144 x 16384, B in fractals, tiles",
        Work(20, 6144, 16384, 20, "fractals"),
        Choice(WIDE, 181.4),
        Choice(SHORT, 139.6),
    ),
    Pair(
        "20 x 6144 x 16384, B by rows, tiles",
        Work(20, 6144, 16384, 20, "rows"),
        Choice(WIDE, 238.8),
        Choice(SHORT, 252.4),
    ),
    Pair(
        "160 x 6144 x 2048, B in fractals, order",
        Work(160, 6144, 2048, 20, "fractals"),
        Choice(WIDE, 40.6, 3),
        Choice(WIDE, 35.3, 4),
    ),
    Pair(
        "1 x 768 x 5120 of float32, tiles",
        Work(1, 768, 2 * 5120, 24),
        Choice((128, 128, 512), 36.3),
        Choice((16, 32, 2048), 15.5),
    ),
)


@dataclass(frozen=True)
class Block:
    """A block of C: its place in the grid, and its sizes."""

    row: int
    column: int
    m: int
    n: int


def blocks(work: Work, choice: Choice) -> list[Block]:
    """The blocks in the order in which cores take them: groups of columns, each row by row, every
    second one from below (catlass' ``GemmIdentityBlockSwizzle`` of direction 1)."""
    m, n, _ = choice.tile
    down, across = ceil(work.m / m), ceil(work.n / n)
    order: list[Block] = []
    for number, left in enumerate(range(0, across, choice.columns)):
        rows = range(down) if number % 2 == 0 else reversed(range(down))
        for row in rows:
            for column in range(left, min(left + choice.columns, across)):
                sizes = min(m, work.m - row * m), min(n, work.n - column * n)
                order.append(Block(row, column, *sizes))
    return order


def simulated(work: Work, choice: Choice, *, shared_lines: bool = False) -> float:
    """Microseconds until the last core is done. A line of main memory that two cores need is read
    by each of them, or once for both (``shared_lines``)."""
    order = blocks(work, choice)
    cycles = [0.0] * work.cores
    seen: set[tuple[str, int]] = set()
    for start in range(0, len(order), work.cores):
        wave = order[start : start + work.cores]
        rate = _rate(work, choice, wave, seen, shared_lines=shared_lines)
        for core, block in enumerate(wave):
            cycles[core] += _block_cycles(block.m, block.n, work.k, choice.tile, work.layout, rate)
    return max(cycles) / ASCEND_910B1.clock_hz * 1e6


def _rate(
    work: Work, choice: Choice, wave: list[Block], seen: set[tuple[str, int]], *, shared_lines: bool
) -> float:
    """Bytes a cycle that a core of a wave loads. Panels that no core has read come from main
    memory, whose rate the cores at work share; all others come from L2."""
    requested, fresh = 0, 0
    for block in wave:
        panels = {
            ("a", block.row): block.m * work.k * ELEMENT,
            ("b", block.column): block.n * work.k * ELEMENT,
        }
        requested += sum(panels.values())
        for panel, size in panels.items():
            if panel in seen:
                continue
            seen.add(panel)
            fresh += size
            if panel[0] == "b" and work.layout == "rows" and not shared_lines:
                first = block.column * choice.tile[1] * ELEMENT
                last = first + block.n * ELEMENT
                fresh += (ceil(last / LINE) * LINE - first // LINE * LINE - (last - first)) * work.k
    share = min(L2, DDR * work.cores / len(wave))
    return requested / (requested / L2 + fresh * (1 / share - 1 / L2))


@cache
def _block_cycles(
    m: int, n: int, k: int, tile: tuple[int, int, int], layout: Layout, rate: float
) -> float:
    case = Case(0, "", 0.0, (m, n, tile[2] // 4), (1, 1), (4, 4), 2, 1, 1, layout=layout)
    paths = {**ASCEND_910B1.paths, ("gm", "cbuf"): rate}
    program = synchronised(nest(case, 1, k, n), events=ASCEND_910B1.events)
    return simulate(program, replace(ASCEND_910B1, paths=paths)).cycles


def pairs() -> Iterator[dict[str, Any]]:
    """A row for each pair; ratios are of the second choice over the first."""
    for pair in PAIRS:
        times = [simulated(pair.work, choice) for choice in (pair.first, pair.second)]
        once = [
            simulated(pair.work, choice, shared_lines=True) for choice in (pair.first, pair.second)
        ]
        yield {
            "pair": pair.name,
            "first": pair.first.microseconds,
            "second": pair.second.microseconds,
            "measured": pair.second.microseconds / pair.first.microseconds,
            "simulated_first": times[0],
            "simulated_second": times[1],
            "simulated": times[1] / times[0],
            "once": once[1] / once[0],
        }


def table() -> Table:
    """The pairs as a table."""

    def tenths(value: float) -> str:
        return f"{value:.1f}"

    def hundredths(value: float) -> str:
        return f"{value:.2f}"

    return Table(
        "Pairs of tilings that the vendor measured",
        (
            Column("pair", "M x N x K, what differs"),
            Column("first", "measured us", tenths),
            Column("second", "the other", tenths),
            Column("measured", "ratio", hundredths),
            Column("simulated_first", "simulated us", tenths),
            Column("simulated_second", "the other", tenths),
            Column("simulated", "ratio", hundredths),
            Column("once", "ratio, lines read once", hundredths),
        ),
        list(pairs()),
        (
            "Ladder's parameters; the guide names neither the chip nor its clock, so ratios count.",
            "A line of 512 bytes that two cores need is read from main memory by each; the last "
            "column has it read once for both.",
        ),
    )
