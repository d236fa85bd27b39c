"""Programs whose commands one engine gives to the others, in the order of the text."""

from __future__ import annotations

from itertools import permutations

import pytest

from tests.slow import but_fast
from tests.tile.test_assign_events import KERNELS, mutations, refused, runs, with_slots
from tests.tile.tile_kernels import Case, machine, random_schedule
from tilewright.errors import TilewrightError
from tilewright.ir import integer, to_text
from tilewright.machine import Machine
from tilewright.machine.synchronisation import Synchronisation
from tilewright.tile.dialect import BufferOp, ProgramOp, own_loops
from tilewright.tile.handovers import statement_in
from tilewright.tile.lower import tile
from tilewright.tile.operations import ComputeOp, MoveOp
from tilewright.tile.passes import Check

ISSUER = Synchronisation(style="replies", ids=64, issuer="compute")


def toy_machine() -> Machine:
    """A machine in which the compute engine issues."""
    toy = machine(joined=False, engines=("load", "store", "compute"))
    return toy.model_copy(update={"synchronisation": ISSUER})


def program_of(kind: str, seed: int, slots: int) -> tuple[Case, Machine, ProgramOp]:
    found, toy = KERNELS[kind](seed), toy_machine()
    schedule = with_slots(random_schedule(found, toy, seed), slots, found)
    return found, toy, tile(found.kernel, schedule, toy)


@pytest.mark.few(1)
@pytest.mark.parametrize("slots", but_fast([1, 2, 3], [2]))
@pytest.mark.parametrize("kind", KERNELS)
def test_transfers_may_end_in_any_order(kind: str, slots: int) -> None:
    for seed in range(2):
        found, toy, program = program_of(kind, seed, slots)
        assert runs(found, program, toy), to_text(program)
        for move in [op for op in program.walk() if isinstance(op, MoveOp)]:
            ahead = move.loads and move.buffer.slot_count > 1
            assert (move.ahead is not None) == ahead
            assert not ahead or own_loops(move)


@pytest.mark.parametrize("slots", but_fast([1, 2], [2]))
@pytest.mark.parametrize("kind", KERNELS)
def test_every_word_and_wait_is_needed(kind: str, slots: int) -> None:
    for seed in range(2):
        _, toy, program = program_of(kind, seed, slots)
        assert not refused(program, toy)
        text = to_text(program)
        for fault in mutations(program, toy.synchronisation.count):
            assert refused(program, toy), f"{seed}: {fault} is not caught in\n{text}"
        assert to_text(program) == text


def test_tiles_at_addresses_of_others_are_refused() -> None:
    caught = 0
    for seed in range(6):
        _, toy, program = program_of("convolution", seed, 2)
        buffers = [op for op in program.walk() if isinstance(op, BufferOp)]
        for buffer, other in permutations(buffers, 2):
            if buffer.memory == other.memory:
                address, buffer.address = buffer.address, integer(other.get("address"))
                with pytest.raises(TilewrightError, match=r"tile-(capacity|race)"):
                    Check().run(program, toy)
                buffer.address, caught = address, caught + 1
        Check().run(program, toy)
    assert caught > 4


def test_what_is_stored_before_it_is_computed_is_refused() -> None:
    _, toy, program = program_of("elementwise", 1, 2)
    (compute,) = [op for op in program.walk() if isinstance(op, ComputeOp)]
    (store,) = [op for op in program.walk() if isinstance(op, MoveOp) and not op.loads]
    block, following = store.parent_block(), store.next_op
    assert block is not None and following is not None
    statement = statement_in(block, compute)
    statement.detach()
    block.insert_op_after(statement, following)
    with pytest.raises(TilewrightError, match=r"tile-(race|uninitialised)"):
        Check().run(program, toy)


def test_as_many_slots_as_a_load_needs_within_a_part() -> None:
    _, _, program = program_of("product", 0, 3)
    for buffer in program.walk():
        if isinstance(buffer, BufferOp) and not own_loops(buffer):
            assert buffer.slot_count == 1
