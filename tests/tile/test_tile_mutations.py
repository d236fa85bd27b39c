"""Programs with a fault are caught: by check before they run, by the interpreter when they do."""

import random
from collections.abc import Callable

import pytest

from tests.slow import but_fast
from tests.tile.interpreter import run
from tests.tile.tile_kernels import Case, case, machine, random_schedule
from tilewright.errors import TilewrightError
from tilewright.ir import ArrayAttr, IntegerAttr, StringAttr, i64
from tilewright.machine import Machine
from tilewright.planning.domain import Affine
from tilewright.planning.schedule import Level, Schedule
from tilewright.tile.attributes import WindowAttr
from tilewright.tile.dialect import BufferOp, ComputeOp, LoopOp, MoveOp, ProgramOp
from tilewright.tile.iteration import Order
from tilewright.tile.lower import tile
from tilewright.tile.passes import Check
from tilewright.tile.queues import commands_of
from tilewright.tile.races import Proof

TOY = machine()


def example(seed: int) -> tuple[Case, ProgramOp]:
    """A finished program in which every buffer is visited more often than it has slots."""
    # Seeds of convolutions, which have the most operands.
    found = case(6 * seed)
    return found, tile(found.kernel, random_schedule(found, TOY, seed), TOY)


def refused(drawn: Case, program: ProgramOp, toy: Machine = TOY) -> str:
    """The codes with which check refuses a program, or "" if it accepts it."""
    try:
        Check().run(program, toy)
    except TilewrightError as error:
        return " ".join(problem.code for problem in error.problems)
    return ""


def runs(found: Case, program: ProgramOp, tries: int = 12) -> bool:
    """Whether a program gives the right result, also when the engines run apart."""
    try:
        found.check(run(program, found.feeds, TOY)["y"])
        for seed in range(tries):
            found.check(run(program, found.feeds, TOY, interleave=seed)["y"])
    except (TilewrightError, AssertionError):
        return False
    return True


@pytest.mark.parametrize("seed", range(10))
def test_check_and_the_interpreter_accept_what_the_passes_make(seed: int) -> None:
    found, program = example(seed)
    assert refused(found, program) == ""
    assert runs(found, program, tries=3)


@pytest.mark.parametrize("seed", range(10))
def test_a_removed_move_is_caught(seed: int) -> None:
    for number in range(4):
        found, program = example(seed)
        moves = [op for op in program.walk() if isinstance(op, MoveOp)]
        if number < len(moves):
            move = moves[number]
            follower = move.next_op.next_op if move.next_op else None
            if isinstance(follower, MoveOp) and follower.joined is not None:
                continue
            move.detach()
            codes = refused(found, program)
            assert "tile-uninitialised" in codes or "tile-coverage" in codes
            assert not runs(found, program, tries=0)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "engines",
    but_fast(
        [("load", "store", "compute"), ("dma", "dma", "compute"), ("load", "store", "store")],
        [("dma", "dma", "compute"), ("load", "store", "store")],
    ),
    ids="-".join,
)
def test_every_wait_is_needed_and_its_removal_is_caught(
    engines: tuple[str, str, str],
) -> None:
    """Waits are the fewest: without any one of them, some execution may go wrong."""
    toy = machine(engines=engines)
    removed = caught_by_running = 0
    for seed in range(30):
        drawn = case(seed)
        program = tile(drawn.kernel, random_schedule(drawn, toy, seed), toy)
        for op in commands_of(program):
            waits = op.wait_list
            for place, wait in enumerate(waits):
                op.set("waits", (*waits[:place], *waits[place + 1 :]))
                problems = Proof(Order(program)).races()
                assert problems, f"{seed}: {wait} is superfluous"
                assert refused(drawn, program, toy) == " ".join(["tile-race"] * len(problems))
                assert any(race.later is op and race.wait == wait for race in problems)
                removed += 1
                if seed < 4:
                    caught_by_running += not runs(drawn, program)
                op.set("waits", waits)
    assert removed > 50
    assert caught_by_running > 4


def shrink(buffer: BufferOp) -> None:
    shape = list(buffer.get("shape"))
    axis = max(range(len(shape)), key=lambda i: shape[i])
    shape[axis] -= 1
    buffer.set("shape", tuple(shape))


def narrow(buffer: BufferOp) -> None:
    buffer.bytes = IntegerAttr(buffer.get("bytes") - 8, i64)


def beyond(buffer: BufferOp) -> None:
    buffer.address = IntegerAttr((1 << 20) - 8, i64)


@pytest.mark.parametrize("change", [shrink, narrow, beyond])
@pytest.mark.parametrize("seed", range(6))
def test_a_buffer_that_is_too_small_is_caught(
    seed: int, change: Callable[[BufferOp], None]
) -> None:
    found, program = example(seed)
    buffers = [op for op in program.walk() if isinstance(op, BufferOp)]
    change(buffers[seed % len(buffers)])
    assert "tile-capacity" in refused(found, program)
    if change is not narrow:
        assert not runs(found, program, tries=0)


@pytest.mark.parametrize("seed", range(10))
def test_a_shifted_window_is_caught(seed: int) -> None:
    found, program = example(seed)
    rng = random.Random(seed)
    buffer = rng.choice([op for op in program.walk() if isinstance(op, BufferOp)])
    axes = list(buffer.window.data)
    axis = rng.randrange(len(axes))
    axes[axis] = Affine(axes[axis].terms, axes[axis].offset + 1)
    buffer.window = WindowAttr(tuple(axes))
    codes = refused(found, program)
    assert "tile-bounds" in codes or "tile-coverage" in codes
    assert not runs(found, program, tries=0)


def test_a_shifted_window_of_a_stage_is_caught() -> None:
    found, program = example(1)
    stage = next(op for op in program.walk() if isinstance(op, ComputeOp)).stages[0]
    windows = list(stage.windows.data)
    axes = list(windows[1].data)
    axes[0] = Affine(axes[0].terms, axes[0].offset + 1)
    windows[1] = WindowAttr(tuple(axes))
    stage.windows = ArrayAttr(windows)
    assert "tile-bounds" in refused(found, program)
    assert not runs(found, program, tries=0)


@pytest.mark.parametrize("seed", range(6))
def test_a_loop_that_leaves_iterations_out_is_caught(seed: int) -> None:
    found, program = example(seed)
    loops = [op for op in program.walk() if isinstance(op, LoopOp)]
    loop = loops[seed % len(loops)]
    loop.upper = IntegerAttr(loop.upper_bound - 1, i64)
    assert "tile-coverage" in refused(found, program)
    assert not runs(found, program, tries=0)


def test_fewer_slots_than_the_waits_were_made_for_are_caught() -> None:
    found = case(42)
    levels = (Level("compute", tuple((d, 1) for d in ("co", "oh")), ("co", "oh")),)
    schedule = Schedule("any", levels, (("x", 2), ("y", 2)))
    program = tile(found.kernel, schedule, TOY)
    assert refused(found, program) == ""
    for buffer in [op for op in program.walk() if isinstance(op, BufferOp)]:
        buffer.slots = IntegerAttr(1, i64)
    assert "tile-race" in refused(found, program)
    assert not runs(found, program)


def test_overlapping_addresses_are_caught() -> None:
    found, program = example(7)
    in_b = [op for op in program.walk() if isinstance(op, BufferOp) and op.memory == "b"]
    assert len(in_b) == 2
    in_b[1].address = in_b[0].address
    assert "tile-capacity" in refused(found, program)
    assert not runs(found, program, tries=2)


def test_limits_and_whole_dims_are_checked() -> None:
    found, program = example(2)
    name = found.kernel.anchor.dims[1].name
    extent = found.kernel.anchor.dims[1].extent
    for change, reason in (
        ({"limits": {name: 0}}, f"takes at most 0 of {name}"),
        ({"whole": (name,)}, f"takes the whole of {name}, {extent}"),
    ):
        primitive = TOY.primitives[0].model_copy(update=change)
        changed = TOY.model_copy(update={"primitives": (primitive,)})
        compute = next(op for op in program.walk() if isinstance(op, ComputeOp))
        if "whole" in change:
            loop = next(op for op in program.walk() if isinstance(op, LoopOp))
            loop.dim = StringAttr(name)
        with pytest.raises(TilewrightError, match=reason):
            Check().run(program, changed)
        assert compute.primitive.data == "any"
