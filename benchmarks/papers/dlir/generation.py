"""dlir-generation: DLIR's instruction generation and memory manager beside ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.allocator.shapes import SHAPES
from benchmarks.measuring import alone, kept
from benchmarks.papers.dlir.code import code_of
from benchmarks.papers.dlir.experiments import KEPT, ORIGINAL, mean
from benchmarks.papers.dlir.layers import LAYERS
from benchmarks.papers.dlir.layers import layer as laid_out
from benchmarks.papers.dlir.measure import source_of
from benchmarks.report import Column, Table, percent, whole

TITLE = "DLIR's instruction generation (5.2.6) and memory manager (5.2.5.1) beside ours"

NETWORKS = ("lenet5", "cifar10_quick", "alexnet")

CORES = 1

OPTIONS = ("resume",)
"""What ``tables`` takes of the command line."""

PAPER = "70.8 % to 97.7 %"
"""Of hand-optimised code (figure 5.13), where loads and computes hide each other."""

SHAPE_COUNTS = (40, 150)

GENERATION = (
    Column("network", "network or layer"),
    Column("target", "target"),
    Column("naive", "single buffers", whole),
    Column("paired", "DLIR's generator", whole),
    Column("ours", "ours", whole),
    Column("share", "DLIR's of ours", percent),
    Column("least", "least kernel", percent),
    Column("paper", "thesis, of hand-optimised"),
)
PLACED = (
    Column("network", "network or layer"),
    Column("target", "target"),
    Column("kernels", "kernels"),
    Column("fitted", "best fit, bytes", whole),
    Column("beside", "ours, bytes", whole),
    Column("differ", "kernels that differ"),
)
MEMORY = (
    Column("problem", "problem"),
    Column("buffers", "buffers"),
    Column("bound", "bound", whole),
    Column("best_fit", "best fit above it", percent),
    Column("ours", "ours above it", percent),
)


@dataclass(frozen=True)
class Generated:
    """What is found of one kernel."""

    single: float
    """Cycles with single buffers."""
    paired: float | None
    """Doubled in DLIR's containers; None where a machine has no waits."""
    double: float
    """Doubled, with waits alone."""
    fitted: int
    """Bytes of all memories on the chip that its buffers need by best fit."""
    beside: int
    """And as we place them."""


def placed_bytes(kernel: Any, schedule: Any, machine: Any, *, best_fit: bool) -> int:
    """Bytes of the memories on the chip up to the last buffer of a kernel's program."""
    from benchmarks.papers.dlir.passes import BestFit
    from tilewright.tile.build import build_program
    from tilewright.tile.dialect import BufferOp
    from tilewright.tile.passes import Allocate, DoubleBuffer, PlaceMoves

    program = build_program(kernel, schedule, machine)
    for step in (PlaceMoves(), DoubleBuffer(), BestFit() if best_fit else Allocate()):
        step.run(program, machine)
    ends: dict[str, int] = {}
    for op in program.walk():
        if isinstance(op, BufferOp):
            end = op.get("address") + op.slot_count * op.get("bytes")
            ends[op.memory] = max(ends.get(op.memory, 0), end)
    return sum(ends.values())


def generated(kernels: Sequence[Any], target: str) -> list[Generated]:
    """Kernels that run alone."""
    from benchmarks.papers.dlir.passes import PAIRED
    from tilewright.compiler.pipeline import resolve
    from tilewright.planning import PlanCache, Planner
    from tilewright.planning.planners.greedy import Greedy
    from tilewright.simulate.timing import simulate
    from tilewright.targets.generic.target import InstructionTarget
    from tilewright.targets.generic.timer import placed_alone, timed_kernel
    from tilewright.tile.lower import tile

    known, machine = resolve(target)
    timer = known.timer(machine)
    assert timer is not None
    found: list[Generated] = []
    caches: dict[int, PlanCache] = {1: {}, 2: {}}
    for kernel in kernels:
        schedules = {
            buffers: Planner(machine, search=Greedy("granule", buffers), cache=caches[buffers])
            .plan(kernel)
            .schedule
            for buffers in (1, 2)
        }
        paired: float | None = None
        if isinstance(known, InstructionTarget):
            places, lowering = placed_alone(kernel, known.instruction_set(machine))
            program = tile(kernel, schedules[2], machine, places, check=False, order=PAIRED)
            paired = float(simulate(timed_kernel(program, lowering), machine).cycles)
        single, double = (timer(kernel, schedules[buffers]) for buffers in (1, 2))
        fitted, beside = (
            placed_bytes(kernel, schedules[2], machine, best_fit=fit) for fit in (True, False)
        )
        found.append(Generated(single, paired, double, fitted, beside))
    return found


def network_row(network: str, target: str) -> dict[str, Any]:
    """All kernels of a network that the accelerator runs."""
    from tilewright.compiler.pipeline import resolve, run_pipeline

    model, options = source_of(network)
    known, machine = resolve(target)
    state = run_pipeline(model, known, machine, until="plan", hold=False, **options)
    kernels = [item.kernel for item in state.kernels if item.schedule is not None]
    return row_of(network, target, generated(kernels, target))


def layer_row(layer: str, target: str) -> dict[str, Any]:
    """One of the thesis' five layers."""
    from tilewright.compiler.pipeline import resolve

    _, machine = resolve(target)
    return row_of(layer, target, generated([laid_out(layer, machine)], target))


def row_of(name: str, target: str, kernels: Sequence[Generated]) -> dict[str, Any]:
    """Sums over kernels, and the kernel that DLIR's generator serves worst."""
    row: dict[str, Any] = {
        "network": name,
        "target": target,
        "naive": sum(one.single for one in kernels),
        "ours": sum(one.double for one in kernels),
        "paper": PAPER,
        "kernels": len(kernels),
        "fitted": sum(one.fitted for one in kernels),
        "beside": sum(one.beside for one in kernels),
        "differ": sum(one.fitted != one.beside for one in kernels),
    }
    shares = [one.double / one.paired for one in kernels if one.paired is not None]
    if shares:
        row["paired"] = sum(one.paired for one in kernels if one.paired is not None)
        row |= {"share": row["ours"] / row["paired"], "least": min(shares)}
    return row


def memory_rows() -> list[dict[str, Any]]:
    """Peaks of the manager, which sees buffers come and go, and of ours, which sees all at once."""
    from benchmarks.papers.dlir.passes import place_as_they_come
    from tilewright.memory import Problem, allocate

    rows: list[dict[str, Any]] = []
    for shape, make in SHAPES.items():
        for count in SHAPE_COUNTS:
            problem = Problem(tuple(sorted(make(count, 1), key=lambda b: (b.first, b.name))), 1)
            peak = problem.peak(place_as_they_come(problem))
            ours = allocate(problem)
            rows.append(
                {
                    "problem": f"{shape}-{count}",
                    "buffers": len(problem.buffers),
                    "bound": ours.bound,
                    "best_fit": peak / ours.bound - 1,
                    "ours": ours.peak / ours.bound - 1,
                }
            )
    return rows


def measured(measure: Callable[..., Any], name: str, target: str) -> dict[str, Any]:
    """One row, in a process of its own."""
    return alone(CORES, measure, name, target)


def tables(networks: Sequence[str], resume: bool = False) -> list[Table]:
    """Generation over networks and the thesis' layers; memory over shapes of buffers."""
    from tilewright.system.choices import target_names

    targets = [name for name in ORIGINAL if name in target_names()]
    rows: list[dict[str, Any]] = []
    for target in targets:
        for measure, names in ((network_row, networks), (layer_row, LAYERS)):
            for name in names:
                path = KEPT / f"generation-{target}-{name}.json"
                code = code_of(target)
                rows.append(kept(path, resume, measured, measure, name, target, code=code))
    means: list[dict[str, Any]] = []
    for target in targets:
        mine = [row for row in rows if row["target"] == target and "share" in row]
        if mine:
            shares, least = [row["share"] for row in mine], min(row["least"] for row in mine)
            means.append({"network": "mean", "target": target, "share": mean(shares)})
            means[-1] |= {"least": least, "paper": PAPER}
    return [
        Table(
            "The same schedules, generated both ways",
            GENERATION,
            [*rows, *means],
            (
                "Tiles are those of `greedy{start=granule}` with single and with double buffers. "
                "DLIR's generator runs units of two engines at a time, in containers that follow "
                "one another (benchmarks/papers/dlir/passes/containers.py); ours waits for "
                "dependences alone.",
                "ACC-C's words hold no waits that containers could be written as: its lowering "
                "merges two iterations itself (docs/papers/dlir.md).",
                "The thesis compares with code written by hand on machines of its own.",
            ),
        ),
        Table(
            "On-chip memory of these programs: the manager and ours",
            PLACED,
            rows,
            (
                "Sums over kernels of what their buffers need in all memories on the chip, "
                "doubled. Buffers of a program live to its end, side by side where they fit.",
            ),
        ),
        Table(
            "On-chip memory where buffers come and go: the manager and ours",
            MEMORY,
            memory_rows(),
            ("These problems are those of `python -m benchmarks allocator`.",),
        ),
    ]
