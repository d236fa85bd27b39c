"""The state that the stages of the pipeline (compiler/pipeline.py) pass on."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright import frontends
from tilewright.codegen.program.interface import CompiledKernel
from tilewright.errors import Problem
from tilewright.graph.dialect import WeightOp
from tilewright.graph.operations import context as graph_context
from tilewright.graph.passes.stated_points import StatedPoints
from tilewright.graph.run_sizes import OutputEnd
from tilewright.graph.weights import Weights
from tilewright.ir import ModuleOp
from tilewright.ir.passes import CompilerContext, PassRunner
from tilewright.ir.types import Array
from tilewright.machine import Machine
from tilewright.network.fusion.plan import StayingTensor
from tilewright.numbers.calibration import Samples
from tilewright.numerics.formats import Numbers
from tilewright.planning import Plan, Planner
from tilewright.runtime.executable import Progress
from tilewright.shapes.forms import Shapes
from tilewright.shapes.lists import NO_LISTS, Lists
from tilewright.targets.base import Target

if TYPE_CHECKING:
    from tilewright.compiler.loops import CompiledLoop

Model = (
    str
    | Path
    | frontends.Imported
    | frontends.Opened
    | frontends.Exported
    | frontends.TorchModule
    | frontends.OnnxModel
)
"""A model file's path, what ``tilewright.load`` or ``frontends.open_model`` returned, a function
that JAX exported, or a PyTorch module."""


@dataclass(frozen=True)
class Formed:
    """A network whose kernels are formed, before numbers, layouts and places are chosen."""

    network: ModuleOp
    weights: Weights
    context: CompilerContext
    notes: int
    """The number of the compilation's notes at that time."""


@dataclass
class CompilationState:
    """The state that the stages of the pipeline pass on."""

    target: Target
    machine: Machine
    model: Model
    shapes: Shapes
    samples: Samples | None
    progress: Progress
    runner: PassRunner
    planner: Planner
    """Plans this machine's kernels; passes that choose methods ask it ``for_methods``."""
    exact_memory: bool = False
    network: ModuleOp = field(default_factory=lambda: ModuleOp([]))
    weights: Weights = field(default_factory=Weights)
    name: str = ""
    """The name of the package's functions and files; "" until the model gives it."""
    nodes: tuple[frontends.ModelNode, ...] = ()
    kernels: list[CompiledKernel] = field(default_factory=list[CompiledKernel])
    plans: dict[str, Plan] = field(default_factory=dict[str, Plan])
    notes: list[str] = field(default_factory=list[str])
    files: tuple[frontends.MappedFile, ...] = ()
    """The model's files, which weights are views of."""
    empty: tuple[frontends.EmptyOutput, ...] = ()
    """The model's outputs without elements, which no program gives."""
    ends: tuple[OutputEnd, ...] = ()
    """The axes of outputs whose sizes a run computes."""
    lists: Lists = NO_LISTS
    """The model's sequences, and optionals that hold nothing."""
    caffemodel: str | Path | None = None
    """The file of the weights, for model formats that keep them apart."""
    ranges: Mapping[str, tuple[float, float]] | None = None
    """Ranges of values that are known already, from samples of another shape."""
    factors: Mapping[str, Array] | None = None
    """Divisors of the channels of values, if known already (pass equalise)."""
    numbers: Numbers | None = None
    """The number format asked for; None is the machine's own."""
    hold: bool = True
    """True if tensors may stay on the chip between kernels (network/residency.py)."""
    staying: tuple[StayingTensor, ...] = ()
    """The tensors that stay for all kernels that read them (network/residency.py)."""
    loops_kept: bool = False
    """True if loops may stay loops, where the target takes them (compiler/loops.py)."""
    settled: bool = False
    """True for the body of a loop: the network around has settled which numbers are asked for."""
    loop_samples: Sequence[Mapping[str, Array]] | None = None
    """The samples, where a network has loops: others may read ``samples`` to their end."""
    loops: dict[str, CompiledLoop] = field(default_factory=dict[str, "CompiledLoop"])
    """The loops whose bodies have been compiled, by the symbols of their kernels."""
    formed: Formed | None = None
    """The state to which compiler/fall_back.py goes back."""
    stated: StatedPoints | None = None
    """Binary points that a quantised model states, for machines of fixed point."""
    apart: dict[str, Problem] = field(default_factory=dict[str, Problem])
    """Reasons why kernels are computed as they were formed, not in chains or by several steps, by
    their symbols."""
    refused: dict[Hashable, Problem] = field(default_factory=dict[Hashable, Problem])
    """Reasons why kernels that the machine computes run on the host: by their symbols as they were
    formed, or by the forms of those that passes inserted later (graph/passes/insertion.py)."""

    def refusal_of(self, symbol: str) -> Problem | None:
        """The reason why a kernel runs on the host although the machine computes it; None if it
        does not."""
        form = self.runner.context.inserted.get(symbol, symbol)
        return self.refused.get(form)


def reason_of(problem: Problem) -> str:
    """A refusal as the reason why a kernel is on the host."""
    hint = f" ({problem.help})" if problem.help else ""
    return f"{problem.reason} [{problem.code}]{hint}"


def context_of(
    state: CompilationState, ranges: Mapping[str, tuple[float, float]]
) -> CompilerContext:
    """Return the context of the passes: the machine, the weights so far, and ranges of values."""
    compiler_context = CompilerContext(state.machine, state.weights, ranges, state.factors)
    # What has been inserted outlives a change of the weights, and of the kernel at hand.
    compiler_context.inserted = state.runner.context.inserted
    compiler_context.refused = {form: reason_of(problem) for form, problem in state.refused.items()}
    compiler_context.apart = state.apart.keys()
    compiler_context.planner = state.planner.for_methods()
    for dialect in graph_context().loaded_dialects:
        compiler_context.load_dialect(dialect)
    return compiler_context


def drop_dead_weights(state: CompilationState) -> None:
    """Keep only the weights that the network still reads: large ones would pile up."""
    live = [op.symbol.data for op in state.network.walk() if isinstance(op, WeightOp)]
    state.weights = state.weights.subset(live)
    state.runner.context = context_of(state, state.runner.context.ranges)
