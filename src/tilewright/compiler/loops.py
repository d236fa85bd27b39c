"""Loops: the body of each is compiled as a network of its own, for the same machine.

A loop of a network is a kernel of the host that runs the rounds (codegen/program/rounds.py). Its
body goes through the whole pipeline, once, and then takes the place of the one that was imported:
the interpreter runs what the machine runs. The body's package lies within the program's folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tilewright import frontends
from tilewright.codegen.program.interface import CompiledKernel
from tilewright.codegen.program.rounds import LOOPS
from tilewright.compiler.state import CompilationState, context_of
from tilewright.errors import refuse
from tilewright.graph.dialect import KernelOp, NetworkOp, OutputOp, WeightOp, YieldOp, network_of
from tilewright.graph.interpreter import interpret, round_of
from tilewright.graph.operations import LoopOp
from tilewright.graph.operations.loops import loop_in, loop_operands
from tilewright.graph.passes.unroll_loops import UnrollLoops
from tilewright.graph.placement import WEIGHTS, arenas_of
from tilewright.graph.values import value_names
from tilewright.graph.weights import Weights
from tilewright.ir import Block, ModuleOp, SSAValue, StringAttr
from tilewright.ir.passes import PassEntry
from tilewright.ir.types import Array, tensor_type
from tilewright.numbers.calibration import samples_of
from tilewright.numbers.calibration.samples import SampleStream
from tilewright.runtime.manifest import Manifest, read_own


@dataclass(frozen=True)
class CompiledLoop:
    """A loop, and its body as a network of its own."""

    rounds: int
    body: CompilationState


def takes_loops(state: CompilationState) -> bool:
    """Return True if loops may stay loops, and the target takes them."""
    return state.loops_kept and state.target.takes_loops(state.machine)


def settle_loops(state: CompilationState) -> None:
    """Write out a network's loops where the target takes none; else keep the samples, which are
    read once more for each loop."""
    network = network_of(state.network)
    if not any(isinstance(op, LoopOp) for op in network.operations):
        return
    if not takes_loops(state):
        state.runner.run(state.network, [PassEntry(UnrollLoops(), "they are not taken")], "graph-")
        return
    if state.samples is not None:
        stream = samples_of(network, state.samples)
        state.loop_samples = list(stream)
        state.samples = SampleStream(state.loop_samples, stream.count)


def compile_loops(state: CompilationState) -> None:
    """Take the body of each loop through the pipeline."""
    network = network_of(state.network)
    found = {
        op.symbol.data: (op, loop)
        for op in network.kernels
        if (loop := loop_in(op)) is not None and op.symbol.data not in state.loops
    }
    if not found:
        return
    observed = _observed(state, found) if _calibrates(state) else {}
    for number, (symbol, (op, loop)) in enumerate(found.items()):
        state.progress("loops", number, len(found))
        body = _compiled(state, symbol, loop, observed.get(symbol))
        state.loops[symbol] = CompiledLoop(loop.count, body)
        op.reason = StringAttr(f"it runs {loop.count} rounds of a network of its own")
        _take(loop, network_of(body.network))
        state.weights = state.weights.beside(
            {name: body.weights.get(name) for name in body.weights if name not in state.weights}
        )
        state.notes += [note for note in body.notes if note not in state.notes]
    state.runner.context = context_of(state, state.runner.context.ranges)


def _calibrates(state: CompilationState) -> bool:
    """Return True if the numbers of bodies follow from the ranges of their values."""
    numbers = state.numbers
    fixed = state.machine.number.kind == "fixed"
    return fixed or (numbers is not None and numbers.needs_ranges)


def _compiled(
    state: CompilationState,
    symbol: str,
    loop: LoopOp,
    samples: Sequence[Mapping[str, Array]] | None,
) -> CompilationState:
    """A body taken through the pipeline, to its last form."""
    from tilewright.compiler.build import settle_engines  # It builds on this module.
    from tilewright.compiler.pipeline import run_pipeline

    module, weights = _network(symbol, loop, state.weights)
    target = state.target
    body = run_pipeline(
        frontends.Imported(module, weights, symbol, 0, "", nodes=state.nodes),
        target,
        state.machine,
        calibration=samples,
        ranges=None if samples is None else _carried(loop, samples),
        numbers=state.numbers,
        progress=state.progress,
        exact_memory=state.exact_memory,
        hold=state.hold,
        until="calibrate" if target.falls_back else "tile",
        name=symbol,
        loops=True,
        settled=True,
        planner=state.planner,
    )
    settle_engines(body)
    if state.samples is None:
        body.samples = None  # They were drawn: nothing is told of what they lose.
    return body


def _network(symbol: str, loop: LoopOp, store: Weights) -> tuple[ModuleOp, Weights]:
    """A loop's body as a network, and its constants."""
    block = loop.body.block
    names = input_names(loop)
    yielded = list(loop.yielded.values)
    outputs = [f"value_{number}" for number in range(len(yielded))]
    kinds = [tensor_type(argument) for argument in block.args]
    network = NetworkOp.of(symbol, list(zip(names, kinds, strict=True)), outputs)
    values: dict[SSAValue, SSAValue] = dict(zip(block.args, network.block.args, strict=True))
    _copy(block, network.block, values)
    network.block.add_op(OutputOp.build(operands=[[values[value] for value in yielded]]))
    symbols = [op.symbol.data for op in network.walk() if isinstance(op, WeightOp)]
    module = ModuleOp([network])
    module.verify()
    return module, store.subset(symbols)


def input_names(loop: LoopOp) -> list[str]:
    """The names of a body's inputs: what is carried, parts of sequences, what is given."""
    states, sequences = loop.states, len(loop.sequences)
    given = len(loop.inputs) - states - sequences
    return [
        *(f"state_{number}" for number in range(states)),
        *(f"part_{number}" for number in range(sequences)),
        *(f"given_{number}" for number in range(given)),
    ]


def _take(loop: LoopOp, network: NetworkOp) -> None:
    """Let a network be the body of a loop."""
    old = loop.body.detach_block(0)
    for op in reversed(list(old.ops)):
        op.detach()
        op.erase()
    block = Block(arg_types=[argument.type for argument in network.block.args])
    for argument, outer in zip(block.args, network.block.args, strict=True):
        argument.name_hint = outer.name_hint
    values: dict[SSAValue, SSAValue] = dict(zip(network.block.args, block.args, strict=True))
    _copy(network.block, block, values)
    results = [values[value] for _, value in network.outputs]
    block.add_op(YieldOp.build(operands=[results]))
    loop.body.add_block(block)


def _copy(source: Block, target: Block, values: dict[SSAValue, SSAValue]) -> None:
    """Append copies of a block's operations to another, but of the last one."""
    for op in source.ops:
        if not isinstance(op, OutputOp | YieldOp):
            target.add_op(op.clone(values))


def _observed(
    state: CompilationState, found: Mapping[str, tuple[KernelOp, LoopOp]]
) -> dict[str, list[dict[str, Array]]]:
    """The inputs of all rounds of each loop on the samples, by the loops' symbols."""
    network, names = network_of(state.network), value_names(state.network)
    rounds: dict[str, list[dict[str, Array]]] = {symbol: [] for symbol in found}
    wanted = {names[value] for op, _ in found.values() for value in op.inputs}
    for sample in samples_of(network, state.loop_samples):
        seen: dict[str, Array] = {}

        def observe(name: str, array: Array, seen: dict[str, Array] = seen) -> None:
            if name in wanted:
                seen[name] = array

        with np.errstate(all="ignore"):
            _ = interpret(state.network, state.weights, sample, observe, names=names)
        for symbol, (op, loop) in found.items():
            operands = [
                state.weights.get(value.owner.symbol.data)
                if isinstance(value.owner, WeightOp)
                else seen[names[value]]
                for value in loop_operands(op, loop)
            ]
            _record(loop, operands, state.weights, rounds[symbol])
    return rounds


def _record(
    loop: LoopOp, operands: Sequence[Array], weights: Weights, into: list[dict[str, Array]]
) -> None:
    """Run a loop; its rounds' inputs are added to ``into``."""
    meaning, names = round_of(loop, weights), input_names(loop)

    def run(arrays: list[Array]) -> list[Array]:
        into.append(dict(zip(names, arrays, strict=True)))
        return meaning(arrays)

    with np.errstate(all="ignore"):
        _ = loop.run(operands, run)


def _carried(
    loop: LoopOp, samples: Sequence[Mapping[str, Array]]
) -> dict[str, tuple[float, float]]:
    """The ranges of what is carried: those of all rounds, so that one format holds for all."""
    ranges: dict[str, tuple[float, float]] = {}
    for name in input_names(loop)[: loop.states]:
        arrays = [sample[name] for sample in samples]
        if arrays and arrays[0].dtype.kind == "f":
            low = min(float(array.min()) for array in arrays)
            high = max(float(array.max()) for array in arrays)
            ranges[name] = low, high
    return ranges


def check_rooms(state: CompilationState) -> None:
    """Refuse (``memory-capacity``) a network that, with the bodies of its loops beside it, is
    larger than the memories that its values are in; each alone has been looked at before."""
    if not state.loops:
        return
    machine, taken = state.machine, _taken(state)
    homes: dict[str, int] = {}
    for constant, size in zip((True, False), taken, strict=True):
        home = machine.home(constant=constant)
        homes[home] = homes.get(home, 0) + size
    for home, size in homes.items():
        room = machine.memory(home).room
        if room is not None and size > room:
            reason = (
                f"weights and activations of the network and of the bodies of its loops take "
                f"{size:,} bytes of {home}, which has {room:,}: {size - room:,} too few"
            )
            raise refuse(
                "memory-capacity", reason, help="a smaller model, or fewer bits of weights"
            )


def _taken(state: CompilationState) -> tuple[int, int]:
    """The bytes of the weights, and of the activations, of a network and of all bodies."""
    arenas = arenas_of(network_of(state.network))
    weights = arenas.get(WEIGHTS, 0)
    activations = sum(size for name, size in arenas.items() if name != WEIGHTS)
    for loop in state.loops.values():
        inner = _taken(loop.body)
        weights, activations = weights + inner[0], activations + inner[1]
    return weights, activations


@dataclass(frozen=True)
class EveryKernel:
    """A kernel of a network, or of a loop's body."""

    state: CompilationState
    """The compilation of the network that it is a kernel of."""
    compiled: CompiledKernel
    name: str
    """The kernel's symbol; in a loop's body, after the loop's name and a dot."""
    rounds: int
    """The number of times that the kernel runs."""


def every_kernel(
    state: CompilationState, before: str = "", rounds: int = 1
) -> Iterator[EveryKernel]:
    """Yield a network's kernels in order, those of a loop's body in the place of the loop."""
    for compiled in state.kernels:
        symbol = compiled.kernel.symbol
        loop = state.loops.get(symbol)
        if loop is None:
            yield EveryKernel(state, compiled, f"{before}{symbol}", rounds)
        else:
            yield from every_kernel(loop.body, f"{before}{symbol}.", rounds * loop.rounds)


def write_loops(state: CompilationState, program: Path) -> dict[str, tuple[int, Manifest]]:
    """Write the packages of bodies into a program's folder; their rounds and manifests, by the
    loops' symbols."""
    from tilewright.compiler.build import emit  # It builds on this module.

    written: dict[str, tuple[int, Manifest]] = {}
    for symbol, loop in state.loops.items():
        place = program / LOOPS / symbol
        place.mkdir(parents=True)
        emit(loop.body, place)
        written[symbol] = loop.rounds, read_own(place)
    return written
