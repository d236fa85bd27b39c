"""dlir-generation: DLIR's instruction generation and memory manager beside ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.allocator.shapes import SHAPES
from benchmarks.measuring import alone, kept
from benchmarks.papers.dlir.experiments import KEPT, ORIGINAL, mean
from benchmarks.papers.dlir.layers import LAYERS
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
MEMORY = (
    Column("problem", "problem"),
    Column("buffers", "buffers"),
    Column("bound", "bound", whole),
    Column("best_fit", "best fit above it", percent),
    Column("ours", "ours above it", percent),
)


def timed(kernels: Sequence[Any], target: str) -> list[tuple[float, float, float]]:
    """Cycles of kernels: single buffers, doubled in DLIR's containers, doubled with waits alone."""
    from tilewright.driver import resolve
    from tilewright.planning import Plan, plan
    from tilewright.planning.domain import Kernel
    from tilewright.planning.planners.greedy import Greedy
    from tilewright.simulate.timing import simulate
    from tilewright.targets.generic.lower import Lowering
    from tilewright.targets.generic.target import InstructionTarget
    from tilewright.targets.generic.timer import place_dense, timed_kernel
    from tilewright.tile.lower import tile

    known, machine = resolve(target)
    assert isinstance(known, InstructionTarget)
    instructions = known.instruction_set(machine)
    found: list[tuple[float, float, float]] = []
    caches: dict[int, dict[Kernel, Plan]] = {1: {}, 2: {}}
    for kernel in kernels:
        places, size = place_dense(kernel)
        cycles: list[float] = []
        for buffers, paired in ((1, False), (2, True), (2, False)):
            search = Greedy("granule", buffers)
            schedule = plan(kernel, machine, search=search, cache=caches[buffers]).schedule
            program = tile(kernel, schedule, machine, places, check=False, paired=paired)
            commands = timed_kernel(program, Lowering(instructions, {"alone": 0, "tables": size}))
            cycles.append(float(simulate(commands, machine).cycles))
        found.append((cycles[0], cycles[1], cycles[2]))
    return found


def network_row(network: str, target: str) -> dict[str, Any]:
    """All kernels of a network that the accelerator runs."""
    from tilewright.driver import resolve, travel

    model, options = source_of(network)
    known, machine = resolve(target)
    work = travel(model, known, machine, until="plan", **options)
    kernels = [item.kernel for item in work.kernels if item.schedule is not None]
    return row_of(network, target, timed(kernels, target))


def layer_row(layer: str, target: str) -> dict[str, Any]:
    """One of the thesis' five layers."""
    return row_of(layer, target, timed([LAYERS[layer]()], target))


def row_of(name: str, target: str, cycles: Sequence[tuple[float, float, float]]) -> dict[str, Any]:
    """Sums over kernels, and the kernel that DLIR's generator serves worst."""
    naive, paired, ours = (sum(column) for column in zip(*cycles, strict=True))
    return {
        "network": name,
        "target": target,
        "naive": naive,
        "paired": paired,
        "ours": ours,
        "share": ours / paired,
        "least": min(o / p for _, p, o in cycles),
        "paper": PAPER,
    }


def memory_rows() -> list[dict[str, Any]]:
    """Peaks of the manager, which sees buffers come and go, and of ours, which sees all at once."""
    from tilewright.graph.passes.allocator import allocate
    from tilewright.tile.best_fit import BestFit

    rows: list[dict[str, Any]] = []
    for shape, make in SHAPES.items():
        for count in SHAPE_COUNTS:
            buffers = make(count, 1)
            memory, held = BestFit(None), dict[str, int]()
            for buffer in sorted(buffers, key=lambda b: (b.first, b.name)):
                for other in [b for b in buffers if b.name in held and b.last < buffer.first]:
                    memory.release(held.pop(other.name))
                address = memory.allocate(buffer.size)
                assert address is not None
                held[buffer.name] = address
            ours = allocate(buffers, alignment=1)
            rows.append(
                {
                    "problem": f"{shape}-{count}",
                    "buffers": len(buffers),
                    "bound": ours.bound,
                    "best_fit": memory.peak / ours.bound - 1,
                    "ours": ours.peak / ours.bound - 1,
                }
            )
    return rows


def measured(measure: Callable[..., Any], name: str, target: str) -> dict[str, Any]:
    """One row, in a process of its own."""
    return alone(CORES, measure, name, target)


def tables(networks: Sequence[str], resume: bool = False) -> list[Table]:
    """Generation over networks and the thesis' layers; memory over shapes of buffers."""
    from tilewright.targets.base import find_target, target_names
    from tilewright.targets.generic.target import InstructionTarget

    targets = [
        name
        for name in ORIGINAL
        if name in target_names() and isinstance(find_target(name), InstructionTarget)
    ]
    rows = [
        kept(KEPT / f"generation-{target}-{name}.json", resume, measured, measure, name, target)
        for target in targets
        for measure, names in ((network_row, networks), (layer_row, LAYERS))
        for name in names
    ]
    means = [
        {
            "network": "mean",
            "target": target,
            "share": mean([row["share"] for row in rows if row["target"] == target]),
            "least": min(row["least"] for row in rows if row["target"] == target),
            "paper": PAPER,
        }
        for target in targets
    ]
    return [
        Table(
            "The same schedules, generated both ways",
            GENERATION,
            [*rows, *means],
            (
                "Tiles are those of `greedy{start=granule}` with single and with double buffers. "
                "DLIR's generator runs units of two engines at a time, in containers that follow "
                "one another (tile/containers.py); ours waits for dependences alone.",
                "The thesis compares with code written by hand on machines of its own.",
            ),
        ),
        Table(
            "On-chip memory: the manager and ours",
            MEMORY,
            memory_rows(),
            (
                "Buffers of programs lie side by side where they fit, and then both ways need the "
                "same. These problems are those of `python -m benchmarks allocator`: many buffers "
                "that come and go.",
            ),
        ),
    ]
