"""A model down the whole road, as the driver goes it, for tests of instruction targets."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tilewright.graph.dialect import KernelOp, network_of
from tilewright.graph.interpreter import interpret
from tilewright.graph.kernels import kernel_of, operand_values
from tilewright.graph.operations import context as graph_context
from tilewright.graph.passes import place_pipeline, prepare_pipeline
from tilewright.graph.passes.memory_plan import MemoryPlan
from tilewright.graph.placement import arenas_of, placement_of
from tilewright.graph.values import value_names
from tilewright.graph.weights import Weights
from tilewright.ir import ModuleOp
from tilewright.machine import Machine
from tilewright.passes import CompilerContext, PassRunner
from tilewright.planning import Plan, plan
from tilewright.targets.base import Compilation, CompiledKernel, Runner, Target
from tilewright.tile.lower import tile_module
from tilewright.types import Array, element_dtype, tensor_type


@dataclass
class Travelled:
    """A compiled network."""

    module: ModuleOp
    weights: Weights
    directory: Path
    target: Target
    plans: list[Plan] = field(default_factory=list[Plan])

    def load(self) -> Runner:
        return self.target.load(self.directory)

    def expected(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        return interpret(self.module, self.weights, dict(inputs))


def travel(
    module: ModuleOp,
    weights: Weights,
    target: Target,
    machine: Machine,
    directory: Path | None = None,
    *,
    timed: bool = True,
    host: tuple[str, ...] = (),
    samples: list[dict[str, Array]] | None = None,
) -> Travelled:
    """Compile a network; values are calibrated on seeded random inputs unless samples are given."""
    where = directory or Path(tempfile.mkdtemp())
    where.mkdir(parents=True, exist_ok=True)
    module = module.clone()
    runner = PassRunner(_context(machine, weights, {}))
    runner.run(module, prepare_pipeline(machine, host))
    if machine.element == "fixed16":
        ranges: dict[str, tuple[float, float]] = {}

        def observe(name: str, array: Array) -> None:
            low, high = ranges.get(name, (0.0, 0.0))
            ranges[name] = (min(low, float(array.min())), max(high, float(array.max())))

        for sample in samples or [draw(module, seed) for seed in (100, 101)]:
            interpret(module, weights, sample, observe)
        runner.context = _context(machine, weights, ranges)
    runner.run(module, place_pipeline(machine))
    network = network_of(module)
    names = value_names(module)
    timer = target.timer(machine) if timed else None
    compiled: list[CompiledKernel] = []
    plans: list[Plan] = []
    cache: dict[object, Plan] = {}
    for op in network.block.ops:
        if not isinstance(op, KernelOp):
            continue
        kernel = kernel_of(op, names)
        if op.on_host:
            compiled.append(CompiledKernel(kernel))
            continue
        found = plan(kernel, machine, timer=timer, cache=cache)  # type: ignore[arg-type]
        plans.append(found)
        placements = {}
        for name, value in operand_values(op, names).items():
            place = placement_of(value)
            placements[name] = (place.arena, place.offset, place.strides)
        program = tile_module(kernel, found.schedule, machine, placements)
        compiled.append(CompiledKernel(kernel, found.schedule, program, found.predicted_cycles))
    arenas = arenas_of(network)
    target.emit(Compilation(machine, module, weights, tuple(compiled), arenas), where)
    return Travelled(module, weights, where, target, plans)


def draw(module: ModuleOp, seed: int) -> dict[str, Array]:
    """Random inputs of a network."""
    pick = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    for name, value in network_of(module).inputs:
        kind = tensor_type(value)
        shape, dtype = kind.get_shape(), element_dtype(kind.element_type)
        found[name] = pick.normal(0, 1, shape).astype(dtype)
    return found


def _context(
    machine: Machine, weights: Weights, ranges: Mapping[str, tuple[float, float]]
) -> CompilerContext:
    made = CompilerContext(machine, weights, ranges)
    for dialect in graph_context().loaded_dialects:
        made.load_dialect(dialect)
    return made


__all__ = ["MemoryPlan", "Travelled", "draw", "travel"]
