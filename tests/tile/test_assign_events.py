"""Signals in place of waits: proven, run, and every one of them needed, in each style."""

from collections.abc import Callable, Iterator

import pytest

from tests.tile.tile_kernels import (
    Case,
    convolution,
    machine,
    other,
    product,
    random_schedule,
)
from tilewright.ir import Operation, StringAttr, to_text
from tilewright.machine import Machine
from tilewright.machine.synchronisation import Synchronisation
from tilewright.planning.schedule import Schedule
from tilewright.tile.dialect import ProgramOp, TensorOp
from tilewright.tile.iteration import Order
from tilewright.tile.lower import tile
from tilewright.tile.operations import BarrierOp, EventOp, SignalOp, WaitOp
from tilewright.tile.queues import Queues
from tilewright.tile.races import faults, races

STYLES = {
    "flags": Synchronisation(style="flags", ids=8),
    "two flags": Synchronisation(style="flags", ids=2),
    "one flag": Synchronisation(style="flags", ids=1),
    "counting flags": Synchronisation(style="flags", ids=4, depth=16),
    "reply words": Synchronisation(style="replies", ids=16),
    "four reply words": Synchronisation(style="replies", ids=4),
    "tokens": Synchronisation(style="tokens"),
    "two tokens": Synchronisation(style="tokens", depth=2),
}

KERNELS: dict[str, Callable[[int], Case]] = {
    "convolution": lambda seed: convolution(seed, fixed=True),
    "product": lambda seed: product(seed, fixed=True),
    "elementwise": lambda seed: other(seed, fixed=True),
}


def of_style(name: str, **parts: tuple[str, str, str]) -> Machine:
    return machine(**parts).model_copy(update={"synchronisation": STYLES[name]})


def with_slots(schedule: Schedule, slots: int, found: Case) -> Schedule:
    names = [operand.name for operand in found.kernel.operands]
    return Schedule(schedule.primitive, schedule.levels, tuple((name, slots) for name in names))


def refused(program: ProgramOp, toy: Machine) -> bool:
    """Whether check refuses a program for what orders it, without the rest that it checks."""
    order = Order(program)
    queues, limits = Queues(order), toy.synchronisation
    ids = [number for op in orderings(program) if isinstance(op, EventOp) for number in op.id_list]
    return max(ids, default=0) >= limits.count or bool(
        faults(queues, limits) or races(order, queues)
    )


def orderings(program: ProgramOp) -> list[EventOp | BarrierOp]:
    return [op for op in program.walk() if isinstance(op, (EventOp, BarrierOp))]


def is_preset(signal: Operation) -> bool:
    """Whether a signal stands before the program's first statement."""
    before = signal.prev_op
    while isinstance(before, SignalOp):
        before = before.prev_op
    return isinstance(before, TensorOp)


def mutations(program: ProgramOp, ids: int) -> Iterator[str]:
    """Each fault in turn: the program has it while the name is yielded, and then no more."""
    for op in orderings(program):
        block, following = op.parent_block(), op.next_op
        assert block is not None

        def back(op=op, block=block, following=following) -> None:
            if following is None:
                block.add_op(op)
            else:
                block.insert_op_before(op, following)

        op.detach()
        yield f"without {to_text(op)}"
        back()
        if isinstance(op, BarrierOp):
            continue
        given = op.id_list
        for place in range(len(given)):
            for number in {(given[place] + 1) % max(ids, 2), ids - 1, given[0]} - {given[place]}:
                op.set("ids", (*given[:place], number, *given[place + 1 :]))
                yield f"{to_text(op)} for {given}"
                op.set("ids", given)
        source, target = op.source_engine, op.target_engine
        op.properties |= {"source": StringAttr(target), "target": StringAttr(source)}
        yield f"{to_text(op)} turned round"
        op.properties |= {"source": StringAttr(source), "target": StringAttr(target)}
    for wait in [op for op in program.walk() if isinstance(op, WaitOp)]:
        # The signal that answers it changes places with it.
        signal = wait.prev_op
        while signal is not None and not (
            isinstance(signal, SignalOp)
            and (signal.source_engine, signal.target_engine, signal.id_list)
            == (wait.source_engine, wait.target_engine, wait.id_list)
        ):
            signal = signal.prev_op
        if signal is None or is_preset(signal):
            continue  # A slot that is never free is a narrower program, and no wrong one.
        block, following = wait.parent_block(), wait.next_op
        assert block is not None
        wait.detach()
        block.insert_op_before(wait, signal)
        signal.detach()
        if following is None:
            block.add_op(signal)
        else:
            block.insert_op_before(signal, following)
        yield f"{to_text(wait)} before its signal"
        signal.detach()
        block.insert_op_before(signal, wait)
        wait.detach()
        if following is None:
            block.add_op(wait)
        else:
            block.insert_op_before(wait, following)


@pytest.mark.parametrize("slots", [1, 2, 3])
@pytest.mark.parametrize("kind", KERNELS)
@pytest.mark.parametrize("style", STYLES)
def test_every_signal_is_needed_and_every_fault_is_caught(
    style: str, kind: str, slots: int
) -> None:
    toy = of_style(style)
    for seed in range(4):
        found = KERNELS[kind](seed)
        schedule = with_slots(random_schedule(found, toy, seed), slots, found)
        program = tile(found.kernel, schedule, toy)
        assert not refused(program, toy)
        text = to_text(program)
        for fault in mutations(program, toy.synchronisation.count):
            assert refused(program, toy), f"{seed}: {fault} is not caught in\n{text}"
        assert to_text(program) == text
