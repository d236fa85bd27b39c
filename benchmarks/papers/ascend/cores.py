"""A layer of BERT-base on 1 to 32 cores of an Ascend 910, with L2 and without it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.papers.ascend.handovers import synchronised
from benchmarks.papers.ascend.matmul import Matrices
from benchmarks.report import Column, Table, percent, whole
from tilewright.codegen.program.interface import CompiledKernel
from tilewright.machine import Machine
from tilewright.planning import Budget, Planner
from tilewright.planning.domain import Affine, Dim, Kernel, Operand, Role, Stage
from tilewright.targets.ascend.formats import heads as layout_of_heads
from tilewright.targets.ascend.formats import nz
from tilewright.targets.ascend.grids import GridPlans
from tilewright.targets.ascend.lower import lower_kernel
from tilewright.targets.ascend.lowering.cube import cube_kernel
from tilewright.targets.ascend.lowering.launches import Device
from tilewright.targets.ascend.machine import ASCEND_910
from tilewright.targets.ascend.network import chip_machine
from tilewright.targets.ascend.package import core_of
from tilewright.targets.ascend.program import Program
from tilewright.targets.ascend.sharing import simulate_blocks
from tilewright.targets.ascend.target import AscendTarget
from tilewright.targets.ascend.timing import Timing
from tilewright.tile.lower import tile, tile_module

TITLE = "DaVinci: kernels on several cores"

NETWORKS: tuple[str, ...] = ()

CORES = (1, 2, 4, 8, 16, 32)
BATCHES = (1, 8)

TOKENS = 128
WIDTH, INNER, HEADS = 768, 3072, 12
"""BERT-base (Devlin et al., section 3)."""

SQUARE = (512, 768, 768)
"""M, N, K of one of its products at 512 tokens."""


@dataclass(frozen=True)
class Part:
    """A kind of kernel, and how many of it a layer has."""

    name: str
    count: int
    of: Matrices | Kernel


def layer(batch: int) -> list[Part]:
    """The kernels of an encoder layer."""
    rows = batch * TOKENS

    def product(inner: int, columns: int) -> Matrices:
        return Matrices(rows, inner, columns, transposed=True, bias=True)

    return [
        Part("products of 768 x 768", 4, product(WIDTH, WIDTH)),
        Part("768 x 3,072", 1, product(WIDTH, INNER)),
        Part("3,072 x 768", 1, product(INNER, WIDTH)),
        Part("attention", 1, attention(batch)),
        Part("gelu", 1, on_rows("gelu", rows, INNER, "input")),
        Part("sums", 2, on_rows("add", rows, WIDTH, "input", "weight")),
        Part("layer normalisation", 2, normalisation(rows)),
    ]


def _operand(name: str, role: Role, axes: Mapping[str, int], layout: str = "") -> Operand:
    access = tuple(Affine(((dim, 1),)) for dim in axes)
    return Operand(name, tuple(axes.values()), access, "float16", role, layout=layout)


def on_rows(operation: str, rows: int, columns: int, *roles: Role) -> Kernel:
    """An elementwise kernel of matrices in Nz."""
    axes = {"d0": rows, "d1": columns}
    dims = tuple(Dim(name, extent) for name, extent in axes.items())
    given = tuple(_operand(f"x{n}", role, axes, nz()) for n, role in enumerate(roles))
    out = _operand("out", "output", axes, nz())
    return Kernel(operation, (Stage(operation, dims, given, out),))


def normalisation(rows: int) -> Kernel:
    """Layer normalisation of a matrix in Nz, with scale and shift."""
    axes = {"d0": rows, "axis": WIDTH}
    dims = (Dim("d0", rows), Dim("axis", WIDTH, "reduction"))
    row = {"axis": WIDTH}
    given = (
        _operand("x", "input", axes, nz()),
        _operand("scale", "weight", row),
        _operand("shift", "bias", row),
    )
    out = _operand("out", "output", axes, nz())
    stage = Stage("layer_norm", dims, given, out, (("epsilon", 1e-12),))
    return Kernel("layer_norm", (stage,))


def attention(batch: int) -> Kernel:
    """Attention of all heads, without a mask."""
    extents = {"b0": batch, "b1": HEADS, "m": TOKENS, "e": WIDTH // HEADS}
    summed = {"t": TOKENS, "d": WIDTH // HEADS}
    sizes = {**extents, **summed}
    dims = tuple(Dim(name, extent) for name, extent in extents.items())
    dims += tuple(Dim(name, extent, "reduction") for name, extent in summed.items())

    def operand(name: str, role: Role, rows: str, columns: str) -> Operand:
        axes = {dim: sizes[dim] for dim in ("b0", rows, "b1", columns)}
        return _operand(name, role, axes, layout_of_heads())

    given = tuple(
        operand(name, "input", *axes) for name, axes in (("q", "md"), ("k", "td"), ("v", "te"))
    )
    out = operand("out", "output", "m", "e")
    return Kernel("attention", (Stage("attention", dims, given, out, (("scale", 0.125),)),))


def machine_with(cores: int) -> Machine:
    """The 910 with so many cores at work."""
    return chip_machine(ASCEND_910).with_values({"cores": cores})


def program_of(part: Part, machine: Machine) -> Program:
    """The kernel with its flags, as it is compiled for a machine."""
    if isinstance(part.of, Matrices):
        kernel = part.of.kernel("product")
        schedule = Planner(machine, budget=Budget(greedy=False)).plan(kernel).schedule
        return synchronised(
            cube_kernel(
                tile(kernel, schedule, machine, honours=AscendTarget.honours), ASCEND_910, "product"
            )
        )
    found = GridPlans(machine, None)(part.of)
    assert found is not None
    module = tile_module(part.of, found.schedule, machine)
    device = Device(core_of(machine))
    lower_kernel(device, CompiledKernel(part.of, found.schedule, module), {})
    (program,) = device.programs.values()
    return program


def times(program: Program, machine: Machine) -> Mapping[bool, Timing]:
    """With L2, and without it."""
    core = core_of(machine)
    return {
        True: simulate_blocks(program, core),
        False: simulate_blocks(program, replace(core, l2=0)),
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
    for part in layer(batch):
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
        pages.append(
            Table(
                f"A layer of BERT-base, {TOKENS} tokens, batch {batch}: cycles by cores",
                (*columns, *(Column(str(cores), str(cores)) for cores in CORES)),
                [_shown(row) for row in layers(batch)],
            )
        )
    return pages
