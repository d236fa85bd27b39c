"""Chains that keep rows in circular buffers: programs mean their kernels, and faults are found."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from tests.slow import but_fast
from tests.tile.interpreter import run
from tests.tile.test_chains import chain_of, machine_of, schedule_of
from tests.tile.tile_kernels import Case
from tilewright.errors import TilewrightError
from tilewright.ir import Parser, VerifyException, to_attribute, to_text
from tilewright.machine import Machine
from tilewright.planning.domain import Kernel
from tilewright.planning.schedule import Schedule
from tilewright.tile.circular import circle_of
from tilewright.tile.dialect import BufferOp, DomainOp, ProgramOp, context
from tilewright.tile.iteration import Order
from tilewright.tile.lower import tile
from tilewright.tile.passes import Boundary, Check
from tilewright.tile.queues import commands_of
from tilewright.tile.races import Proof

SEEDS = [s for s in range(40) if s not in (0, 3, 4, 23, 28, 32)]
"""Of the others, the last kernel cuts the channels that it reads, which moves two axes; 32 has
thousands of tiles, which take half a minute."""


def keeping(kernel: Kernel, schedule: Schedule, ahead: int = 0) -> Schedule:
    """The schedule with the rows of all producers' results kept, and so many computed ahead."""
    pairs = zip(kernel.producers, schedule.producers, strict=True)
    kept = tuple((producer.output.name, ahead) for producer in kernel.producers)
    producers = tuple(keeping(*pair, ahead) for pair in pairs)
    return replace(schedule, producers=producers, kept=kept)


def example(seed: int) -> tuple[Case, Machine, ProgramOp]:
    """A chain whose tiles go down the image, a few rows each, some further than is read."""
    of, machine, rng = chain_of(seed), machine_of(seed), random.Random(seed)
    schedule = schedule_of(of.kernel, machine, rng)
    (level,), reduced = schedule.levels, of.kernel.anchor.reduction
    order = [dim for dim in level.order if dim != "oh" and dim not in reduced]
    order += ["oh", *(dim for dim in level.order if dim in reduced)]
    sizes = dict(level.tile) | {"oh": rng.randint(1, 3)}
    level = replace(level, tile=tuple(sizes.items()), order=tuple(order))
    schedule = keeping(of.kernel, replace(schedule, levels=(level,)), ahead=seed % 3)
    return of, machine, tile(of.kernel, schedule, machine)


def rings(program: ProgramOp) -> list[BufferOp]:
    return [op for op in program.walk() if isinstance(op, BufferOp) and op.circular is not None]


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", but_fast(SEEDS, SEEDS[:4]))
def test_programs_mean_their_kernels_however_engines_run(seed: int) -> None:
    of, machine, program = example(seed)
    assert rings(program)
    of.check(run(program, of.feeds, machine)["y"])
    for turn in range(2):
        of.check(run(program, of.feeds, machine, interleave=turn)["y"])
    program.verify()
    text = to_text(program)
    assert "sliding [" in text
    assert to_text(Parser(context(), text).parse_op()) == text


@pytest.mark.slow
def test_rows_are_computed_once() -> None:
    """Of kernels with one image and whole channels, no row of a kept result is made twice."""
    compared = 0
    for seed in SEEDS:
        _, _, program = example(seed)
        order = Order(program)
        for ring in rings(program):
            block = ring.parent_block()
            assert block is not None
            rows = order.block(block)
            circle = circle_of(ring, rows)
            assert circle.new.sum() <= circle.sizes.sum()
            if len(np.unique(rows.run)) == 1:
                # Rows that no tile reads, between the windows of large strides, are not made.
                assert circle.new.sum() <= ring.tensor_shape[circle.axis]
                compared += int(circle.new.sum() < circle.sizes.sum())
    assert compared


@pytest.mark.slow
def test_every_row_that_a_circular_buffer_holds_is_needed() -> None:
    """With a row less, check refuses, and the interpreter finds rows that others have replaced."""
    wrong = 0
    for seed in SEEDS[:12]:
        of, machine, program = example(seed)
        for ring in rings(program):
            shape = list(ring.get("shape"))
            axis = ring.circular_axis
            assert axis is not None
            block = ring.parent_block()
            assert block is not None
            most = int(circle_of(ring, Order(program).block(block)).sizes.max())
            shape[axis] -= 1
            before = ring.get("shape")
            ring.set("shape", tuple(shape))
            with pytest.raises(TilewrightError, match="tile-capacity"):
                Check().run(program, machine)
            if shape[axis] >= most:
                try:
                    for turn in range(20):
                        of.check(run(program, of.feeds, machine, interleave=turn)["y"])
                except (TilewrightError, AssertionError):
                    wrong += 1
            ring.set("shape", before)
    assert wrong


@pytest.mark.parametrize("seed", but_fast(SEEDS[::9], SEEDS[:20:9]))
def test_a_missing_wait_is_found_unless_nothing_needs_it(seed: int) -> None:
    of, machine, program = example(seed)
    needed = 0
    for op in commands_of(program):
        waits = op.wait_list
        for place, wait in enumerate(waits):
            op.set("waits", (*waits[:place], *waits[place + 1 :]))
            if any(
                race.later is op and race.wait == wait for race in Proof(Order(program)).races()
            ):
                needed += 1
            else:
                of.check(run(program, of.feeds, machine, interleave=place)["y"])
            op.set("waits", waits)
    assert needed


@pytest.mark.parametrize("seed", SEEDS[:4])
def test_peeled_loops_keep_what_they_can(seed: int) -> None:
    """Loops without a second iteration have nothing to keep; programs mean what they meant."""
    of, machine, program = example(seed)
    Boundary(everywhere=True).run(program, machine)
    program.verify()
    of.check(run(program, of.feeds, machine)["y"])


def test_what_cannot_be_kept_is_refused() -> None:
    """Rows stay along the innermost loop, if it moves no other axis."""
    of, machine = chain_of(0), machine_of(0)
    schedule = keeping(of.kernel, schedule_of(of.kernel, machine, random.Random(0)))
    (level,) = schedule.levels
    for order, words in (((), "no tile reads rows"), (("ci",), "over ci")):
        sizes = {dim: 1 if dim in order else n for dim, n in of.kernel.anchor.extents.items()}
        other = replace(level, tile=tuple(sizes.items()), order=order)
        with pytest.raises(TilewrightError, match=words) as caught:
            tile(of.kernel, replace(schedule, levels=(other,)), machine)
        assert caught.value.problems[0].code == "schedule-invalid"


def test_the_verifier_refuses_what_does_not_slide() -> None:
    program = next(
        program
        for _, machine, program in map(example, SEEDS)
        if not any(move.name.startswith("c-a") for move in machine.moves)
    )
    (ring, *_) = rings(program)
    domain = next(op for op in program.walk() if isinstance(op, DomainOp) and op.sliding_dims)
    slid = domain.properties.pop("sliding")
    with pytest.raises(VerifyException, match="dims slide if"):
        program.verify()
    domain.properties["sliding"] = to_attribute(("n",))
    with pytest.raises(VerifyException, match=r"not n|dims slide if"):
        program.verify()
    domain.properties["sliding"] = slid
    program.verify()
    axis = ring.circular_axis
    assert axis is not None
    ring.set("circular", 9)
    with pytest.raises(VerifyException, match="axis to be circular along"):
        program.verify()
    ring.set("circular", axis)
    program.verify()
