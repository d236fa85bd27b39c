"""allocator: how far above the bound each heuristic and the exact search place buffers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.allocator.files import check, read_problem
from benchmarks.allocator.shapes import SHAPES
from benchmarks.report import Column, Table, percent, seconds, whole
from tilewright.memory import (
    NODES,
    Problem,
    allocate,
    allocate_exactly,
    heuristic_peaks,
    improve,
)

TITLE = "Allocation of memory, far from the bound"

COUNTS = (40, 150, 300)

SEEDS = (1, 2)

PROBLEMS = tuple(
    f"{shape}-{count}-{seed}" for shape in SHAPES for count in COUNTS for seed in SEEDS
)
"""Shape, number of buffers, seed."""

NETWORKS = PROBLEMS

FILE_NODES = 4_000_000
"""Nodes for a problem of a file: a minute of one core where they run out."""


def problem(name: str) -> Problem:
    """The problem of a name such as ``cut-150-1``."""
    shape, count, seed = name.rsplit("-", 2)
    return Problem(tuple(SHAPES[shape](int(count), int(seed))), alignment=1)


def solved(given: Problem, nodes: int = NODES) -> tuple[int, ...]:
    """The offsets of the exact search."""
    exact = allocate_exactly(given, nodes=nodes)
    check(given.buffers, exact.offsets)
    return exact.offsets


def run(name: str, given: Problem, nodes: int = NODES) -> dict[str, Any]:
    """One problem: what everything needs above the bound, as a fraction of it."""
    buffers = given.buffers
    peaks = heuristic_peaks(given)
    start = time.perf_counter()
    found = allocate(given)
    middle = time.perf_counter()
    exact = allocate_exactly(given, nodes=nodes)
    end = time.perf_counter()
    bound = max(found.bound, 1)
    for plan in (found, exact):
        check(buffers, plan.offsets)
    return {
        "problem": name,
        "buffers": len(buffers),
        "bound": bound,
        "capacity": given.capacity,
        "fits": None if given.capacity is None else exact.peak <= given.capacity,
        **{f"peak {key}": peak / bound - 1 for key, peak in peaks.items()},
        "best": min(peaks.values()) / bound - 1,
        "default": found.peak / bound - 1,
        "default_seconds": middle - start,
        "exact": exact.peak / bound - 1,
        "proven": exact.optimal,
        "exact_seconds": end - middle,
    }


def _yes(value: bool) -> str:
    return "yes" if value else "open"


def _fits(value: bool) -> str:
    return "yes" if value else "no"


COLUMNS = (
    Column("problem", "problem"),
    Column("buffers", "buffers"),
    Column("bound", "bound", whole),
    Column("capacity", "capacity", whole),
    Column("fits", "fits", _fits),
    Column("peak by size, first fit", "by size", percent),
    Column("peak by lifetime, first fit", "by lifetime", percent),
    Column("peak by area, first fit", "by area", percent),
    Column("peak by birth, first fit", "by birth", percent),
    Column("best", "best of 12", percent),
    Column("default", "default", percent),
    Column("default_seconds", "s", seconds),
    Column("exact", "exact", percent),
    Column("proven", "proven", _yes),
    Column("exact_seconds", "s", seconds),
)


def table_of(problems: Sequence[tuple[str, Problem]], nodes: int = NODES) -> Table:
    """The table of some problems; capacities are told where there are any."""
    rows = [run(name, given, nodes) for name, given in problems]
    columns = [
        column
        for column in COLUMNS
        if column.key not in ("capacity", "fits") or any(row["fits"] is not None for row in rows)
    ]
    remarks = (
        "Percentages are bytes above the bound, the most that is live at one step; 0.0 % is proven "
        "to be least. `cut` problems can be filled without a gap, so their least is 0.0 %.",
        "Default: the best of six orders with first and best fit, then up to 200 rounds in which "
        "the buffers at the peak are placed earlier.",
        f"Exact: branch and bound, at most {nodes:,} placements (`--exact-memory`); `proven` says "
        "whether it is known that nothing less would do.",
    )
    return Table("Above the bound", columns, rows, remarks)


def tables(networks: Sequence[str]) -> list[Table]:
    """Place the named problems; files, or folders of files, make a table of their own."""
    named = [name for name in networks if name in PROBLEMS]
    paths = [Path(name) for name in networks if name not in PROBLEMS]
    found = [table_of([(name, problem(name)) for name in named])] if named else []
    return found + ([file_table([*_files(paths)])] if paths else [])


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        yield from sorted(path.glob("*.csv")) if path.is_dir() else [path]


FILE_COLUMNS = (
    Column("problem", "problem"),
    Column("buffers", "buffers"),
    Column("capacity", "capacity", whole),
    Column("bound", "bound", whole),
    Column("default", "default peak", whole),
    Column("peak", "exact peak", whole),
    Column("fits", "fits", _fits),
    Column("nodes", "nodes", whole),
    Column("seconds", "s", seconds),
)


def file_table(paths: Sequence[Path], nodes: int = FILE_NODES) -> Table:
    """The exact search on problems in files; where a name has a capacity it is enough to fit."""
    rows: list[dict[str, Any]] = []
    for path in paths:
        given, _ = read_problem(path)
        start = allocate(given)
        begin = time.process_time()
        exact = improve(given, start, nodes)
        spent = time.process_time() - begin
        check(given.buffers, exact.offsets)
        rows.append(
            {
                "problem": path.stem,
                "buffers": len(given.buffers),
                "capacity": given.capacity,
                "bound": exact.bound,
                "default": start.peak,
                "peak": exact.peak,
                "fits": None if given.capacity is None else exact.peak <= given.capacity,
                "nodes": exact.nodes,
                "seconds": spent,
            }
        )
    remarks = (
        "Bound: the most that is live at one step. Default: the greedy heuristics. Exact: branch "
        f"and bound with at most {nodes:,} nodes, until the buffers fit the capacity.",
        "Seconds of one core's processor time; the offsets are checked for overlaps.",
    )
    return Table("Problems in files", FILE_COLUMNS, rows, remarks)
