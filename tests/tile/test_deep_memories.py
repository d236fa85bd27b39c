"""Operands that pass a memory on the way to the primitive's own: programs mean their kernels."""

import pytest

from tests.slow import but_fast
from tests.tile.interpreter import run
from tests.tile.tile_kernels import case, deep_machine, deep_schedule
from tilewright.errors import TilewrightError
from tilewright.ir import to_text
from tilewright.machine import Synchronisation
from tilewright.tile.build import build_program
from tilewright.tile.dialect import BufferOp, ComputeOp, MoveOp, SignalOp
from tilewright.tile.iteration import Order
from tilewright.tile.lower import tile
from tilewright.tile.passes import Check, GroupLoads, TilePass, pipeline
from tilewright.tile.queues import commands_of
from tilewright.tile.races import Proof


@pytest.mark.parametrize("seed", but_fast(range(24), range(1, 24, 2)))
def test_programs_mean_their_kernels_however_engines_run(seed: int) -> None:
    of, machine = case(seed), deep_machine(seed)
    program = tile(of.kernel, deep_schedule(of, seed), machine)
    of.check(run(program, of.feeds, machine)["y"])
    for turn in range(2):
        of.check(run(program, of.feeds, machine, interleave=turn)["y"])


@pytest.mark.parametrize("seed", but_fast(range(24), range(1, 24, 4)))
def test_loads_that_go_together_leave_fewer_flags_or_as_many(seed: int) -> None:
    """And programs mean what they do without, however engines run.

    Ids suffice for all: a barrier, which takes the place of a flag, orders more than its flag."""
    of, flags = case(seed), Synchronisation(style="flags", ids=64)
    machine = deep_machine(seed).model_copy(update={"synchronisation": flags})
    program = tile(of.kernel, deep_schedule(of, seed), machine)
    for turn in range(3):
        of.check(run(program, of.feeds, machine, interleave=turn)["y"])
    apart = build_program(of.kernel, deep_schedule(of, seed), machine)
    for entry in pipeline(machine):
        if isinstance(entry.step, TilePass) and not isinstance(entry.step, GroupLoads):
            entry.step.run(apart, machine)
    signals = [sum(isinstance(op, SignalOp) for op in each.walk()) for each in (program, apart)]
    assert signals[0] <= signals[1]


@pytest.mark.parametrize("style", ["counters", "flags"])
@pytest.mark.parametrize("seed", but_fast(range(24), range(1, 24, 4)))
def test_what_is_read_at_the_store_is_there_then(seed: int, style: str) -> None:
    """The engine of the result's way out reads biases and residuals, and no compute waits for
    them."""
    of, machine = case(seed), deep_machine(seed)
    (primitive,) = machine.primitives
    operands = {
        role: storage.model_copy(update={"at_store": role in ("bias", "residual"), "joined": None})
        for role, storage in primitive.operands.items()
    }
    primitive = primitive.model_copy(update={"operands": operands})
    events = Synchronisation(style="flags", ids=64) if style == "flags" else Synchronisation()
    machine = machine.model_copy(update={"primitives": (primitive,), "synchronisation": events})
    program = tile(of.kernel, deep_schedule(of, seed), machine)
    of.check(run(program, of.feeds, machine)["y"])
    for turn in range(3):
        of.check(run(program, of.feeds, machine, interleave=turn)["y"])
    late = {op.symbol.data for op in program.walk() if isinstance(op, BufferOp) and op.at_store}
    assert not any(
        wait.removeprefix("ready ") in late
        for op in commands_of(program)
        if isinstance(op, ComputeOp)
        for wait in op.wait_list
    )


@pytest.mark.parametrize("seed", range(8))
def test_every_wait_is_needed_and_its_removal_is_caught(seed: int) -> None:
    of, machine = case(seed), deep_machine(seed)
    program = tile(of.kernel, deep_schedule(of, seed), machine)
    for op in commands_of(program):
        waits = op.wait_list
        for place, wait in enumerate(waits):
            op.set("waits", (*waits[:place], *waits[place + 1 :]))
            found = Proof(Order(program)).races()
            assert any(race.later is op and race.wait == wait for race in found), (wait, op.name)
            op.set("waits", waits)


@pytest.mark.parametrize("seed", range(8))
def test_a_removed_move_is_caught(seed: int) -> None:
    of, machine = case(6 * seed), deep_machine(seed)
    program = tile(of.kernel, deep_schedule(of, seed), machine)
    moves = [op for op in program.walk() if isinstance(op, MoveOp) and op.joined is None]
    last = moves[seed % len(moves)]
    follower = last.next_op.next_op if last.next_op is not None else None
    if isinstance(follower, MoveOp) and follower.joined is not None:
        return
    last.detach()
    with pytest.raises(TilewrightError) as refusal:
        Check().run(program, machine)
    codes = {problem.code for problem in refusal.value.problems}
    assert codes & {"tile-uninitialised", "tile-coverage"}


def test_a_buffer_on_the_way_is_of_the_tensor_and_the_next_of_it() -> None:
    of, machine = case(0), deep_machine(0)
    text = to_text(tile(of.kernel, deep_schedule(of, 0), machine))
    program = tile(of.kernel, deep_schedule(of, 0), machine)
    buffers = {op.symbol.data: op for op in program.walk() if isinstance(op, BufferOp)}
    assert buffers["x"].outer_buffer is buffers["x.l1"]
    assert buffers["x.l1"].outer_buffer is None
    assert buffers["y"].outer_buffer is buffers["y.ub"]
    assert buffers["x"].tensor_op is buffers["x.l1"].tensor_op
    assert '"x.l1" of %x ' in text
    assert '"x" of %x_l1 ' in text
