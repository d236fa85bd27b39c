"""Values that stay on the chip: the same results, less traffic, and only where they may."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tilewright.compiler.pipeline import resolve, run_pipeline
from tilewright.compiler.state import CompilationState
from tilewright.targets.cambricon.capabilities import CambriconMemory
from tilewright.tile.dialect import BufferOp, programs_of
from tilewright.tile.passes.allocate import held

LENET = Path(__file__).parents[2] / "examples" / "lenet5" / "lenet5.onnx"


@cache
def planned_network(*, hold: bool, holds: bool = True) -> CompilationState:
    target, machine = resolve("cambricon")
    memories = tuple(
        memory.model_copy(
            update={"own": CambriconMemory(holds=memory.own.keeps_values() and holds)}
        )
        for memory in machine.memories
    )
    return run_pipeline(LENET, target, machine.model_copy(update={"memories": memories}), hold=hold)


def held_tensors(state: CompilationState) -> set[str]:
    """Names of the tensors that some kernel's tile program finds on the chip."""
    return {
        op.tensor_op.symbol.data
        for item in state.kernels
        if item.program is not None
        for program in programs_of(item.program)
        for op in program.walk()
        if isinstance(op, BufferOp) and held(op)
    }


@pytest.mark.slow
def test_small_activations_stay_and_cost_nothing() -> None:
    state = planned_network(hold=True)
    assert held_tensors(state)
    alone = planned_network(hold=False)
    assert not held_tensors(alone)
    for symbol, one in state.held.items():
        assert one.plan.moved_bytes <= alone.plans[symbol].moved_bytes
    total = sum(plan.cycles for plan in state.plans.values())
    assert total < sum(plan.cycles for plan in alone.plans.values())


@pytest.mark.slow
def test_biases_of_short_kernels_are_held() -> None:
    kernels = [one.kernel for one in planned_network(hold=True).held.values()]
    biases = [operand for one in kernels for operand in one.inputs if operand.role == "bias"]
    assert len(biases) == 5
    assert all(operand.held for operand in biases)


@pytest.mark.slow
def test_what_is_held_meets_no_buffer_and_nothing_that_lives_with_it() -> None:
    state = planned_network(hold=True)
    whole = state.machine.memory("vsm").bytes or 0
    for item in state.kernels:
        if item.program is None or item.machine is None:
            continue
        left = item.machine.memory("vsm").bytes or 0
        addresses = state.held[item.kernel.symbol].addresses
        assert all(left <= address < whole for address in addresses.values())
        for program in programs_of(item.program):
            for op in program.walk():
                if isinstance(op, BufferOp) and op.memory == "vsm" and not held(op):
                    assert op.get("address") + op.get("bytes") * op.slot_count <= left


@pytest.mark.slow
def test_what_leaves_the_chip_is_not_held() -> None:
    """The network's inputs and outputs, and what the host reads, pass main memory."""
    state = planned_network(hold=True)
    first = next(item.kernel for item in state.kernels if item.schedule is not None)
    last = state.kernels[-1].kernel
    assert not first.inputs[0].held
    assert not last.output.held


@pytest.mark.slow
def test_a_memory_that_holds_nothing_is_left_alone() -> None:
    assert not planned_network(hold=True, holds=False).held


@pytest.mark.slow
@pytest.mark.parametrize("kilobytes", [8, 16])
def test_results_do_not_depend_on_what_is_held(kilobytes: int, tmp_path: Path) -> None:
    values = {"memory.vsm.bytes": kilobytes << 10, "memory.vsm.reserved": kilobytes << 7}
    made = tilewright.compile(LENET, "cambricon", values=values, directory=tmp_path / "p")
    sample = {
        info.name: np.random.default_rng(kilobytes)
        .normal(0, 1, [int(size) for size in info.shape])
        .astype(info.dtype)
        for info in made.inputs
    }
    check = made.check(sample, made.run(sample))
    assert check.equal and check.exact and check.mismatches == 0
