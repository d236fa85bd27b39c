"""The DaVinci thesis' tables: traffic of products, tilings timed, changes of format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from benchmarks.papers.ascend import ladder, pairs
from benchmarks.papers.ascend.fractal import METHODS, fractalise
from benchmarks.papers.ascend.handovers import synchronised
from benchmarks.papers.ascend.matmul import Matrices, Tiling, matmul
from benchmarks.report import Column, Table, percent, whole
from tilewright.planning import Budget, Planner
from tilewright.planning.planners.stationary import KINDS, Product, Room, best_tile
from tilewright.targets.ascend.lowering.cube import cube_kernel
from tilewright.targets.ascend.machine import ASCEND_910, DaVinci
from tilewright.targets.ascend.network import network_machine
from tilewright.targets.ascend.program import Command, trace
from tilewright.targets.ascend.target import AscendTarget
from tilewright.targets.ascend.timing import simulate
from tilewright.tile.lower import tile

TITLE = "DaVinci: the thesis' product and its changes of format"

NETWORKS: tuple[str, ...] = ()

SIZES = (512, 768, 768)
"""M, N, K: a layer of BERT."""

ROOMS = {
    "one of each; 256 KB of sums": Room(32_768, 32_768, 65_536),
    "two of A and B": Room(16_384, 16_384, 65_536),
    "two of all": Room(16_384, 16_384, 32_768),
    "one of each; 128 KB of sums": Room(32_768, 32_768, 32_768),
    "two of all; 128 KB of sums": Room(16_384, 16_384, 16_384),
}

TILINGS = {
    "(256,128,256), one of each": Tiling(256, 128, 256, 256, 128, 256),
    "(256,64,256), two of A and B": Tiling(*(256, 64, 256, 256, 64, 256), l1=2, l0=2, ub=2),
    "(256,64,128), two of all": Tiling(*(256, 64, 128, 256, 64, 128), l1=2, l0=2, l0c=2, ub=2),
    "(128,128,128), two of all": Tiling(*(128, 128, 128, 128, 128, 128), l1=2, l0=2, l0c=2, ub=2),
    "L1 (512,768,64), A resident": Tiling(512, 768, 64, 256, 64, 64, l1=2, l0=2, l0c=2, ub=2),
    "L1 (256,768,64), A resident": Tiling(256, 768, 64, 256, 64, 64, l1=2, l0=2, l0c=2, ub=2),
}

LAYERS = {
    "Q, K, V, output": (512, 768, 768),
    "feed-forward, up": (512, 768, 3072),
    "feed-forward, down": (512, 3072, 768),
}
"""M, N, K of BERT-base's products."""

RATES = (37.5, 64.0, 128.0)


def traffic() -> list[dict[str, Any]]:
    """The fewest loaded elements of each kind."""
    of = Product(*SIZES)
    rows: list[dict[str, Any]] = []
    for name, room in ROOMS.items():
        row: dict[str, Any] = {"buffers": name}
        for kind in KINDS:
            found = best_tile(kind, of, room)
            if found is not None:
                loads, tile = found
                row |= {kind: loads, f"{kind}_tile": f"({tile.m},{tile.n},{tile.k})"}
        rows.append(row)
    return rows


def core_with(rate: float) -> DaVinci:
    """The 910's core with another share of main memory."""
    return replace(ASCEND_910, paths={**ASCEND_910.paths, ("gm", "cbuf"): rate})


def products() -> list[dict[str, Any]]:
    """Emitted kernels, simulated."""
    rows: list[dict[str, Any]] = []
    for name, tiling in TILINGS.items():
        program = synchronised(matmul(Matrices(*SIZES), tiling, ASCEND_910))
        row: dict[str, Any] = {"tiles": name}
        for rate in RATES:
            found = simulate(program, core_with(rate))
            row[str(rate)] = found.cube
            row["loads"] = found.main_bytes // 2 - SIZES[0] * SIZES[2]
        rows.append(row)
    return rows


def layers() -> list[dict[str, Any]]:
    """Products of BERT-base at 512 tokens as they are planned: two levels, bias included."""
    machine = network_machine(ASCEND_910)
    rows: list[dict[str, Any]] = []
    for name, sizes in LAYERS.items():
        kernel = Matrices(*sizes, transposed=True, bias=True).kernel("product")
        schedule = Planner(machine, budget=Budget(greedy=False)).plan(kernel).schedule
        program = cube_kernel(
            tile(kernel, schedule, machine, honours=AscendTarget.honours), ASCEND_910, "product"
        )
        found = simulate(synchronised(program), ASCEND_910)
        stored = sizes[0] * sizes[2]
        rows.append(
            {
                "layer": name,
                "tiles": f"{dict(schedule.levels[0].tile)}, {dict(schedule.levels[1].tile)}",
                "loads": found.main_bytes // 2 - stored,
                "cycles": found.cycles,
                "cube": found.cube,
            }
        )
    return rows


def formats() -> list[dict[str, Any]]:
    """512 x 768 to Nz by each method."""
    rows: list[dict[str, Any]] = []
    for method in METHODS:
        program = synchronised(fractalise(SIZES[0], SIZES[1], method, ASCEND_910))
        steps = [one for one in trace(program) if isinstance(one.statement, Command)]
        commands = [one for one in steps if one.statement.pipe != "S"]  # type: ignore[union-attr]
        stores = [one.writes[0] for one in commands if one.writes[0].home.startswith("gm ")]
        found = simulate(program, ASCEND_910)
        rows.append(
            {
                "method": method,
                "vector": found.busy["V"],
                "commands": len(commands),
                "bursts": sum(access.counts[0] for access in stores),
                "cycles": found.cycles,
            }
        )
    return rows


def tables(networks: Sequence[str]) -> list[Table]:
    """All of them; they need no network."""
    del networks
    fields = ("mad_head", "queue", "latency", "barrier_blocks", "hit")
    rates = {name: getattr(ASCEND_910, name) for name in fields}
    rates |= {f"{source} -> {target}": rate for (source, target), rate in ASCEND_910.paths.items()}
    assumed = ", ".join(f"{name} {rate:g}" for name, rate in rates.items())
    kinds = [
        column
        for kind in KINDS
        for column in (Column(kind, kind, whole), Column(f"{kind}_tile", f"{kind} tile"))
    ]
    return [
        Table(
            "Fewest loaded elements of (512, 768, 768)",
            (Column("buffers", "buffers"), *kinds),
            traffic(),
            ("Results, 393,216 elements, are stored once in each.",),
        ),
        Table(
            "Part of the cube's peak, by bytes of main memory a cycle",
            (
                Column("tiles", "tiles (m,n,k)"),
                Column("loads", "loaded elements", whole),
                *(Column(str(rate), f"{rate:g}", percent) for rate in RATES),
            ),
            products(),
            (f"Simulated from the emitted kernels. Assumed of the 910: {assumed}.",),
        ),
        Table(
            "Products of BERT-base at 512 tokens, as planned",
            (
                Column("layer", "product"),
                Column("tiles", "tiles in L1, in L0"),
                Column("loads", "loaded elements", whole),
                Column("cycles", "cycles", whole),
                Column("cube", "part of the cube's peak", percent),
            ),
            layers(),
            ("One core, 64 bytes of main memory a cycle.",),
        ),
        Table(
            "512 x 768 from rows to Nz",
            (
                Column("method", "method"),
                Column("vector", "vector cycles", whole),
                Column("commands", "instructions", whole),
                Column("bursts", "bursts stored", whole),
                Column("cycles", "cycles", whole),
            ),
            formats(),
            ("Pieces follow each other: each buffer is there once.",),
        ),
        ladder.table(),
        pairs.table(),
    ]
