"""A layer of BERT-base on 1 to 32 cores of an Ascend 910, with L2 and without it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.report import Column, Table, percent, whole
from tilewright.errors import TilewrightError
from tilewright.machine import Machine
from tilewright.planning import Budget, plan
from tilewright.targets.ascend.flags import synchronised
from tilewright.targets.ascend.kernels.attention import Heads, attention
from tilewright.targets.ascend.kernels.elementwise import elementwise
from tilewright.targets.ascend.kernels.matmul import Matrices
from tilewright.targets.ascend.kernels.normal import Norm, Rows, layer_norm
from tilewright.targets.ascend.lower import PARTS
from tilewright.targets.ascend.lowering.cube import cube_kernel
from tilewright.targets.ascend.machine import ASCEND_910, DaVinci
from tilewright.targets.ascend.network import chip_machine
from tilewright.targets.ascend.parts import parted
from tilewright.targets.ascend.program import Program
from tilewright.targets.ascend.sharing import (
    MainMemory,
    estimate,
    main_memory,
    simulate_blocks,
)
from tilewright.targets.ascend.timing import Timing
from tilewright.tile.lower import tile

TITLE = "DaVinci: kernels on several cores"

NETWORKS: tuple[str, ...] = ()

CORES = (1, 2, 4, 8, 16, 32)
BATCHES = {1: 7, 8: 4}
"""Batch -> how many kinds of a layer's kernels: all, or what has products (functions of eight times
as many elements take long to prove, and are eight times as long)."""

TOKENS = 128
WIDTH, INNER, HEADS = 768, 3072, 12
"""BERT-base (Devlin et al., section 3)."""

SQUARE = (512, 768, 768)
"""M, N, K of one of its products at 512 tokens."""

Make = Callable[[DaVinci, bool], Program]
"""A vector kernel for a core, in even portions or not."""


@dataclass(frozen=True)
class Part:
    """A kind of kernel, and how many of it a layer has."""

    name: str
    count: int
    of: Matrices | Make


def layer(batch: int) -> list[Part]:
    """The kernels of an encoder layer."""
    rows = batch * TOKENS
    heads = Heads(batch * HEADS, TOKENS, TOKENS, WIDTH // HEADS, WIDTH // HEADS, 0.125)
    norm = Norm(1e-12, scaled=True, shifted=True)

    def function(operation: str, columns: int) -> Make:
        return lambda core, even: elementwise(
            operation, "half", rows * columns, core, name=operation, even=even
        )

    def product(inner: int, columns: int) -> Matrices:
        return Matrices(rows, inner, columns, transposed=True, bias=True)

    return [
        Part("products of 768 x 768", 4, product(WIDTH, WIDTH)),
        Part("768 x 3,072", 1, product(WIDTH, INNER)),
        Part("3,072 x 768", 1, product(INNER, WIDTH)),
        Part("attention", 1, lambda core, _: attention(heads, core)),
        Part("gelu", 1, function("gelu", INNER)),
        Part("sums", 2, function("add", WIDTH)),
        Part(
            "layer normalisation",
            2,
            lambda core, _: layer_norm(Rows(1, rows, WIDTH, "half", True), core, norm),
        ),
    ]


def machine_with(cores: int) -> Machine:
    """The 910 with so many cores at work."""
    return chip_machine(ASCEND_910).with_values({"cores": cores})


def program_of(part: Part, machine: Machine) -> Program:
    """The kernel with its flags, as it is compiled for a machine."""
    memory = main_memory(machine)
    assert memory is not None
    if isinstance(part.of, Matrices):
        kernel = part.of.kernel("product")
        schedule = plan(kernel, machine, budget=Budget(greedy=False)).schedule
        return synchronised(cube_kernel(tile(kernel, schedule, machine), ASCEND_910, "product"))
    make, cores = part.of, memory.cores
    variants: list[tuple[float, int, Program]] = []
    for parts in PARTS if cores > 1 else (1,):
        small = replace(ASCEND_910, ub=ASCEND_910.ub // parts)
        try:
            program = make(small, cores > 1)
        except TilewrightError:  # Less than a tile has room.
            continue
        if cores > 1:
            program = parted(program, cores)
        variants.append((estimate(program, ASCEND_910, memory), parts, program))
    return synchronised(min(variants, key=lambda variant: variant[:2])[2])


def times(program: Program, machine: Machine) -> Mapping[bool, Timing]:
    """With L2, and without it."""
    memory = main_memory(machine)
    assert memory is not None
    none: MainMemory = replace(memory, cached=0)
    return {
        True: simulate_blocks(program, ASCEND_910, memory),
        False: simulate_blocks(program, ASCEND_910, none),
    }


def square() -> list[dict[str, Any]]:
    """One product on so many cores."""
    rows: list[dict[str, Any]] = []
    part = Part("product", 1, Matrices(*SQUARE, transposed=True, bias=True))
    for cores in CORES:
        machine = machine_with(cores)
        program = program_of(part, machine)
        by_cache = times(program, machine)
        row: dict[str, Any] = {"cores": cores, "blocks": program.blocks}
        row["loads"] = by_cache[True].main_bytes // 2 - SQUARE[0] * SQUARE[2]
        for held, time in by_cache.items():
            row |= {f"cycles_{held}": time.cycles, f"cube_{held}": time.cube}
        rows.append(row)
    return rows


def layers(batch: int) -> list[dict[str, Any]]:
    """A layer's kernels, one after the other."""
    totals: dict[tuple[int, bool], float] = {}
    busy: dict[tuple[int, bool], float] = {}
    rows: list[dict[str, Any]] = []
    for part in layer(batch)[: BATCHES[batch]]:
        row: dict[str, Any] = {"kernel": part.name, "count": part.count}
        for cores in CORES:
            machine = machine_with(cores)
            program = program_of(part, machine)
            for held, time in times(program, machine).items():
                key = cores, held
                totals[key] = totals.get(key, 0.0) + part.count * time.cycles
                busy[key] = busy.get(key, 0.0) + part.count * time.busy["M"]
                if held:
                    row[str(cores)] = part.count * time.cycles
        rows.append(row)
    for held, name in ((True, "all"), (False, "all, without L2")):
        sums = {str(cores): totals[cores, held] for cores in CORES}
        rows.append({"kernel": name, **sums})
        faster = {str(cores): totals[1, held] / totals[cores, held] for cores in CORES}
        rows.append({"kernel": f"{name}: times as fast as one core", **faster, "ratio": True})
        part_of = {str(cores): busy[cores, held] / totals[cores, held] for cores in CORES}
        rows.append({"kernel": f"{name}: part of the cubes' peak", **part_of, "percent": True})
    return rows


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row whose cells say what they are."""
    shown = dict(row)
    for cores in CORES:
        value = row[str(cores)]
        form = percent if row.get("percent") else "{:.1f}".format if row.get("ratio") else whole
        shown[str(cores)] = form(value)
    return shown


def tables(networks: Sequence[str]) -> list[Table]:
    """One product, and a layer for each batch; they need no network."""
    del networks
    remarks = (
        "Cycles of the emitted kernels: one core is simulated for each kind of block, with all "
        "cores at work; a launch ends with its last block, and kernels follow one another.",
        "Without L2 the same kernels are timed: tiles and grids are those planned with it.",
        "With L2, memory is read once for all cores; without it each load is one of memory. L2 is "
        "empty when a kernel begins. What a launch takes to start is not public, and 0 here.",
    )
    pages = [
        Table(
            "(512, 768, 768) on several cores",
            (
                Column("cores", "cores"),
                Column("blocks", "blocks"),
                Column("loads", "loaded elements", whole),
                Column("cycles_True", "cycles", whole),
                Column("cube_True", "part of the cubes' peak", percent),
                Column("cycles_False", "cycles without L2", whole),
                Column("cube_False", "part of the peak", percent),
            ),
            square(),
            remarks,
        )
    ]
    for batch in BATCHES:
        columns = (Column("kernel", "kernels"), Column("count", "number"))
        what = "A layer" if batch == 1 else "Products and attention of a layer"
        pages.append(
            Table(
                f"{what} of BERT-base, {TOKENS} tokens, batch {batch}: cycles by cores",
                (*columns, *(Column(str(cores), str(cores)) for cores in CORES)),
                [_shown(row) for row in layers(batch)],
            )
        )
    return pages
