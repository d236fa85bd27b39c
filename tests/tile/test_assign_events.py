"""Signals in place of waits: proven, run, and every one of them needed, in each style."""

from collections.abc import Callable, Iterator

import pytest

from tests.slow import but_fast
from tests.tile.interpreter import run
from tests.tile.tile_kernels import (
    Case,
    case,
    convolution,
    machine,
    other,
    product,
    random_schedule,
)
from tilewright.errors import TilewrightError
from tilewright.ir import Block, ModuleOp, Operation, Parser, StringAttr, to_text
from tilewright.machine import Machine
from tilewright.machine.synchronisation import Synchronisation
from tilewright.planning.schedule import Schedule
from tilewright.tile.dialect import BufferOp, ProgramOp, TensorOp, context
from tilewright.tile.iteration import Order
from tilewright.tile.lower import tile
from tilewright.tile.operations import BarrierOp, EventOp, SignalOp, WaitOp
from tilewright.tile.passes import AssignEvents, Check
from tilewright.tile.races import Proof

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


def of_style(name: str, engines: tuple[str, str, str] = ("load", "store", "compute")) -> Machine:
    toy = machine(engines=engines)
    return toy.model_copy(update={"synchronisation": STYLES[name]})


def with_slots(schedule: Schedule, slots: int, found: Case) -> Schedule:
    names = [operand.name for operand in found.kernel.operands]
    return Schedule(schedule.primitive, schedule.levels, tuple((name, slots) for name in names))


def refused(program: ProgramOp, toy: Machine) -> bool:
    """Whether check refuses a program for what orders it, without the rest that it checks."""
    proof, limits = Proof(Order(program)), toy.synchronisation
    ids = [number for op in orderings(program) if isinstance(op, EventOp) for number in op.id_list]
    return max(ids, default=0) >= limits.count or bool(proof.faults(limits) or proof.races())


def orderings(program: ProgramOp) -> list[EventOp | BarrierOp]:
    return [op for op in program.walk() if isinstance(op, (EventOp, BarrierOp))]


def is_preset(signal: Operation) -> bool:
    """Whether a signal stands before the program's first statement."""
    before = signal.prev_op
    while isinstance(before, (SignalOp, BufferOp)):
        before = before.prev_op
    return isinstance(before, TensorOp)


def insert(op: Operation, block: Block, following: Operation | None) -> None:
    if following is None:
        block.add_op(op)
    else:
        block.insert_op_before(op, following)


def mutations(program: ProgramOp, ids: int) -> Iterator[str]:
    """Each fault in turn: the program has it while the name is yielded, and then no more."""
    for op in orderings(program):
        block, following = op.parent_block(), op.next_op
        assert block is not None

        op.detach()
        yield f"without {to_text(op)}"
        insert(op, block, following)
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
        insert(signal, block, following)
        yield f"{to_text(wait)} before its signal"
        signal.detach()
        block.insert_op_before(signal, wait)
        wait.detach()
        insert(wait, block, following)


CASES = [(style, kind, slots) for style in STYLES for kind in KERNELS for slots in "123"]
FAST = [("flags", "convolution", "2"), *((style, "elementwise", "2") for style in STYLES)]


@pytest.mark.few(3)
@pytest.mark.parametrize("which", but_fast(CASES, FAST), ids="-".join)
def test_every_signal_is_needed_and_every_fault_is_caught(which: tuple[str, str, str]) -> None:
    style, kind, slots = which[0], which[1], int(which[2])
    toy = of_style(style)
    for seed in range(2):
        found = KERNELS[kind](seed)
        schedule = with_slots(random_schedule(found, toy, seed), slots, found)
        program = tile(found.kernel, schedule, toy)
        assert not refused(program, toy)
        text = to_text(program)
        for fault in mutations(program, toy.synchronisation.count):
            assert refused(program, toy), f"{seed}: {fault} is not caught in\n{text}"
        assert to_text(program) == text


ENGINES = [
    ("load", "store", "compute"),
    ("dma", "dma", "compute"),
    ("load", "store", "store"),
]


@pytest.mark.slow
@pytest.mark.parametrize("style", but_fast(STYLES, ["reply words"]))
def test_programs_are_right_when_the_engines_run_apart(style: str) -> None:
    for seed in range(24):
        toy = of_style(style, ENGINES[seed % 3])
        found = case(seed)
        program = tile(found.kernel, random_schedule(found, toy, seed), toy)
        text = to_text(program)
        assert "waits" not in text
        again = Parser(context(), text).parse_module()
        again.verify()
        assert to_text(again) == to_text(ModuleOp([program.clone()]))
        for order in range(3):
            found.check(run(program, found.feeds, toy, interleave=order)["y"])


def runs(found: Case, program: ProgramOp, toy: Machine) -> bool:
    """Whether a program gives the right result, also when the engines run apart."""
    try:
        for seed in range(16):
            found.check(run(program, found.feeds, toy, interleave=seed)["y"])
    except (TilewrightError, AssertionError):
        return False
    return True


@pytest.mark.parametrize("style", ["flags", "reply words", "tokens"])
def test_faults_that_the_proof_finds_show_when_the_program_runs(style: str) -> None:
    """Not in every order; but of all faults in most."""
    toy, found = of_style(style), KERNELS["elementwise"](1)
    schedule = with_slots(random_schedule(found, toy, 1), 2, found)
    program = tile(found.kernel, schedule, toy)
    assert runs(found, program, toy)
    caught = [not runs(found, program, toy) for _ in mutations(program, toy.synchronisation.count)]
    assert sum(caught) > 0.8 * len(caught) > 4


def test_too_few_ids_become_barriers_that_say_why() -> None:
    counts: list[int] = []
    for ids in (16, 4, 2, 1):
        limits = Synchronisation(style="replies", ids=ids)
        toy = machine().model_copy(update={"synchronisation": limits})
        found = KERNELS["convolution"](0)
        program = tile(found.kernel, random_schedule(found, toy, 0), toy)
        barriers = [op for op in program.walk() if isinstance(op, BarrierOp)]
        assert all(op.reason.data.endswith(f"; {ids} exist") for op in barriers)
        counts.append(len(barriers))
        assert not refused(program, toy)
    assert counts[0] == 0 < counts[-1] and counts == sorted(counts)


def test_check_names_what_is_wrong() -> None:
    toy, found = of_style("flags"), KERNELS["product"](0)
    schedule = with_slots(random_schedule(found, toy, 0), 2, found)
    program = tile(found.kernel, schedule, toy)
    signal = next(op for op in program.walk() if isinstance(op, SignalOp) and op.turns_of)
    given = signal.id_list
    for ids, reason in (
        ((given[0], 7), r"tile-event.*sends a signal that nothing waits for"),
        ((given[0], 8), r"tile-event.*there are ids 0 to 7"),
    ):
        signal.set("ids", ids)
        with pytest.raises(TilewrightError, match=reason):
            Check().run(program, toy)
    signal.set("ids", given)
    with pytest.raises(TilewrightError, match=r"tile-event.*the machine has counters"):
        Check().run(program, machine())


def test_commands_out_of_the_order_of_the_text_are_refused() -> None:
    toy, found = of_style("flags"), KERNELS["product"](0)
    counted = machine()
    program = tile(found.kernel, random_schedule(found, counted, 0), counted)
    program.groups = StringAttr("dlir")
    with pytest.raises(TilewrightError, match=r"tile-event.*another order than the program"):
        AssignEvents().run(program, toy)
