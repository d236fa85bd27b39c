"""Waits for rows: each command has one for each buffer that it uses, and none follows."""

from __future__ import annotations

import pytest

from tests.tile.interpreter import run
from tests.tile.tile_kernels import Case, case, machine, random_schedule
from tilewright.errors import TilewrightError
from tilewright.ir import ModuleOp, Parser, to_text
from tilewright.machine import Machine
from tilewright.machine.synchronisation import Synchronisation
from tilewright.targets.base import find_target
from tilewright.tile.dialect import MoveOp, ProgramOp, context
from tilewright.tile.iteration import Order
from tilewright.tile.lower import tile
from tilewright.tile.passes import Check
from tilewright.tile.queues import Queues, commands_of, fills, users_of, wait_parts
from tilewright.tile.races import Proof

SEEDS = range(16)


def by_rows() -> Machine:
    return machine().model_copy(
        update={"synchronisation": Synchronisation(style="tokens", grain="rows")}
    )


def tiled(seed: int) -> tuple[Case, Machine, ProgramOp]:
    toy, random = by_rows(), case(seed)
    return random, toy, tile(random.kernel, random_schedule(random, toy, seed), toy)


@pytest.mark.few(9)
@pytest.mark.parametrize("seed", SEEDS)
def test_programs_are_right_when_the_engines_run_apart(seed: int) -> None:
    random, toy, program = tiled(seed)
    text = to_text(program)
    assert " rows of " in text and "tile.signal" not in text
    again = Parser(context(), text).parse_module()
    again.verify()
    assert to_text(again) == to_text(ModuleOp([program.clone()]))
    for order in range(3):
        random.check(run(program, random.feeds, toy, interleave=order)["y"])


@pytest.mark.parametrize("seed", SEEDS)
def test_each_wait_is_needed(seed: int) -> None:
    """Where no command waits for a whole buffer, which may say that others are free, too."""
    _, toy, program = tiled(seed)
    every = [wait for op in commands_of(program) for wait in op.wait_list]
    if not all(" rows of " in wait for wait in every):
        assert any(op.joined is not None for op in program.walk() if isinstance(op, MoveOp))
        return
    for op in commands_of(program):
        waits = op.wait_list
        for lost in waits:
            op.set("waits", tuple(wait for wait in waits if wait != lost))
            with pytest.raises(TilewrightError, match="tile-race") as error:
                Check().run(program, toy)
            assert any(f"'{lost}'" in problem.help for problem in error.value.problems)
        op.set("waits", waits)
    Check().run(program, toy)


def test_a_wait_for_rows_says_nothing_of_another_buffer() -> None:
    """What orders the program command by command does not when only rows are waited for."""
    weaker = 0
    for seed in SEEDS:
        random, toy = case(seed), machine()
        program = tile(random.kernel, random_schedule(random, toy, seed), toy)
        assert not Proof(Order(program)).races()
        users = {buffer.symbol.data: users_of(buffer) for buffer in Queues(Order(program)).buffers}
        for op in commands_of(program):
            waits = [wait_parts(wait) for wait in op.wait_list]
            op.set(
                "waits",
                tuple(
                    f"{verb} {'rows of ' if op in users[name] else ''}{name}"
                    for verb, _, name in waits
                ),
            )
        weaker += bool(Proof(Order(program)).races())
    assert weaker > len(SEEDS) // 2


def test_rows_of_a_buffer_that_is_not_used_are_refused() -> None:
    _, _, program = tiled(0)
    ops = commands_of(program)
    buffers = Queues(Order(program)).buffers
    op, buffer = next(
        (op, buffer) for op in ops for buffer in buffers if op not in users_of(buffer)
    )
    op.set("waits", (f"ready rows of {buffer.symbol.data}",))
    with pytest.raises(Exception, match="which it does not use"):
        op.verify()
    assert any(fills(op, buffer) for op in ops)


@pytest.mark.parametrize("target", ["shidiannao", "cpu", "ascend910"])
def test_targets_without_such_instructions_refuse_it(target: str) -> None:
    device = find_target(target)
    wanted = device.machine().model_copy(
        update={"synchronisation": Synchronisation(style="tokens", grain="rows")}
    )
    with pytest.raises(TilewrightError, match=r"synchronisation\.grain"):
        device.check_machine(wanted)
    zu2 = find_target("zu2")
    zu2.check_machine(zu2.machine())
