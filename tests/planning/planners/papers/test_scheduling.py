"""Schedules by hand: swTVM's primitives, what they give, and what they refuse."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tests.planning.planners.test_cores import in_floats
from tests.planning.planning_kernels import conv, dense, pool
from tilewright.errors import TilewrightError
from tilewright.machine import Machine
from tilewright.machine.load import load_machine
from tilewright.planning import Planner
from tilewright.planning.planners.ldm.planner import Ldm
from tilewright.planning.planners.papers.scheduling import Scheduling
from tilewright.planning.planners.stated import stated_plan
from tilewright.targets.cambricon_x.machine import MACHINE as CAMBRICON_X
from tilewright.targets.cpu.machine import machine as cpu
from tilewright.targets.sunway.machine import MACHINE
from tilewright.tile.build import build
from tilewright.tile.dialect import BufferOp, LoopOp, enclosing_loops, programs_of
from tilewright.tile.passes.place_moves import PlaceMoves

ONE = MACHINE.with_values({"cores": 1, "own.sunway.spawn_cycles": 0})
PRODUCT = in_floats(dense(1024, 1024))
"""The paper's product: n, co and ci are its x, y and k."""


def papers(machine: Machine = ONE, y: int = 128, k: int = 64) -> Scheduling:
    """The nest of the paper's example."""
    schedule = Scheduling(PRODUCT, machine)
    n, co, ci = schedule.axes("n", "co", "ci")
    yo, yi = schedule.split(co, y)
    ko, ki = schedule.split(ci, k)
    schedule.reorder(n, yo, ko, yi, ki)
    schedule.buffer_read("input", ki)
    schedule.buffer_read("weight", yi, ki)
    schedule.buffer_write(yi)
    return schedule


def test_the_papers_nest_is_a_schedule() -> None:
    found = papers().finished()
    (level,) = found.levels
    assert level.order == ("co", "ci")
    assert dict(level.tile) == {"n": 1, "co": 128, "ci": 64}
    (program,) = programs_of(build(PRODUCT, found, ONE))
    PlaceMoves().run(program, ONE)
    depths = {
        op.get("role"): len(enclosing_loops(op))
        for op in program.walk()
        if isinstance(op, BufferOp)
    }
    # y before ko, x and w within it.
    assert depths == {"input": 2, "weight": 2, "bias": 1, "output": 1}


def test_it_is_priced_as_the_planner_that_finds_the_same() -> None:
    # LDM as the paper's example has it: 64 KB, one slot.
    machine = ONE.with_values({"memory.ldm.reserved": 0})
    found = Planner(machine, search=Ldm(buffers=1)).plan(PRODUCT)
    # Weights lie along k here, and the planner fills that dim first.
    by_hand = stated_plan(PRODUCT, machine, papers(machine, 64, 128).finished(), "by-hand")
    assert by_hand.schedule == found.schedule
    assert by_hand.predicted_cycles == found.predicted_cycles


def test_cores_share_what_athread_parallel_names() -> None:
    schedule = papers(MACHINE)
    schedule.athread_parallel(schedule.order[0])
    # One iteration: nothing is split.
    assert schedule.finished().shared == ""
    schedule.athread_parallel(schedule.fuse(*schedule.order[:2]))
    found = schedule.finished()
    assert found.shared == "co" and found.levels[0].tile == (("co", 128),)
    assert found.levels[1].order == ("ci",)


@pytest.mark.parametrize(("extent", "each"), [(1024, 16), (1000, 16), (63, 1), (65, 2)])
def test_each_core_takes_a_run_of_iterations(extent: int, each: int) -> None:
    schedule = Scheduling(in_floats(dense(64, extent)), MACHINE)
    n, co, ci = schedule.axes("n", "co", "ci")
    schedule.reorder(co, n, ci)
    schedule.buffer_read("weight", ci)
    schedule.buffer_read("input", ci)
    schedule.athread_parallel(co)
    found = schedule.finished()
    assert dict(found.levels[0].tile) == {"co": each}
    assert ("co" in found.levels[1].order) == (each > 1)


def test_other_machines_with_scratchpads_take_it() -> None:
    kernel = dense(256, 256)
    schedule = Scheduling(kernel, CAMBRICON_X)
    co, ci = schedule.axes("co", "ci")
    co_outer, co_inner = schedule.split(co, 16)
    schedule.reorder(co_outer, *schedule.axes("n"), co_inner, ci)
    schedule.buffer_read("weight", co_inner, ci)
    schedule.buffer_read("input", ci)
    schedule.buffer_write(co_inner)
    schedule.double_buffer("weight")
    schedule.athread_parallel(co_outer)
    found = schedule.finished()
    assert found.shared == ""  # It has one core.
    assert found.slots("w") == 2
    assert build(kernel, found, CAMBRICON_X)


def _split_by_none(s: Scheduling) -> None:
    s.split(s.axes("co")[0], 0)


def _unknown_axis(s: Scheduling) -> None:
    s.axes("depth")


def _split_twice(s: Scheduling) -> None:
    (co,) = s.axes("co")
    s.split(co, 4)
    s.split(co, 4)


def _twice_in_order(s: Scheduling) -> None:
    (co,) = s.axes("co")
    s.reorder(co, co)


def _no_neighbours(s: Scheduling) -> None:
    n, ci = s.axes("n", "ci")
    s.fuse(n, ci)


def _no_operand(s: Scheduling) -> None:
    s.buffer_read("mask")


def _not_its_axis(s: Scheduling) -> None:
    s.buffer_read("input", *s.axes("co"))


def _reads_the_result(s: Scheduling) -> None:
    s.buffer_read("output", *s.axes("co"))


def _leaves_one_out(s: Scheduling) -> None:
    co, ci = s.axes("co", "ci")
    s.buffer_read("weight", co)
    s.buffer_read("input", ci)


def _tile_outside(s: Scheduling) -> None:
    co, ci = s.axes("co", "ci")
    outer, inner = s.split(ci, 64)
    s.reorder(inner, outer)
    s.buffer_read("weight", co, inner)
    s.buffer_read("input", inner)
    s.buffer_write(co)


def _sums_outside(s: Scheduling) -> None:
    co, ci = s.axes("co", "ci")
    yo, yi = s.split(co, 64)
    ko, ki = s.split(ci, 64)
    s.reorder(ko, yo, yi, ki)
    s.buffer_read("input", ki)
    s.buffer_read("weight", yi, ki)
    s.buffer_write(yi)


def _two_loops(s: Scheduling) -> None:
    co, ci = s.axes("co", "ci")
    _, inner = s.split(co, 64)
    s.split(inner, 8)
    s.buffer_read("input", ci)
    s.buffer_read("weight", ci)


def _too_large(s: Scheduling) -> None:
    co, ci = s.axes("co", "ci")
    s.buffer_read("input", ci)
    s.buffer_read("weight", co, ci)
    s.buffer_write(co)


def _not_outermost(s: Scheduling) -> None:
    s.athread_parallel(s.axes("co")[0])


def _shared_reduction(s: Scheduling) -> None:
    n, co, ci = s.axes("n", "co", "ci")
    s.reorder(ci, n, co)
    s.athread_parallel(ci)


@pytest.mark.parametrize(
    ("steps", "code", "words"),
    [
        (_split_by_none, "schedule-split", "factor from 1 to 1024"),
        (_unknown_axis, "schedule-axis", "n, co, ci"),
        (_split_twice, "schedule-axis", "was split"),
        (_twice_in_order, "schedule-order", "twice"),
        (_no_neighbours, "schedule-fuse", "neighbouring"),
        (_no_operand, "schedule-buffer", "x (input)"),
        (_not_its_axis, "schedule-buffer", "does not depend on co"),
        (_reads_the_result, "schedule-buffer", "buffer_write"),
        (_leaves_one_out, "schedule-buffer", "leaves out ci"),
        (_tile_outside, "schedule-order", "within that over"),
        (_sums_outside, "schedule-partial-sums", "reduces"),
        (_two_loops, "schedule-order", "two loops"),
        (_too_large, "schedule-capacity", "57,344"),
        (_not_outermost, "schedule-parallel", "not outermost"),
        (_shared_reduction, "schedule-parallel", "same elements"),
    ],
)
def test_refusals(steps: Callable[[Scheduling], None], code: str, words: str) -> None:
    schedule = Scheduling(PRODUCT, MACHINE)
    with pytest.raises(TilewrightError) as raised:
        steps(schedule)
        schedule.finished()
    (problem,) = raised.value.problems
    assert problem.code == code
    assert words in str(problem)


def test_tiles_that_the_primitive_does_not_compute() -> None:
    schedule = Scheduling(in_floats(pool(8, 12, 2, 2)), MACHINE)
    with pytest.raises(TilewrightError, match="schedule-tile"):
        schedule.finished()


def test_operands_that_pass_memories_on_the_way_are_refused_with_these() -> None:
    machine = load_machine(LENET.parents[1] / "machines" / "three-levels.toml")
    with pytest.raises(TilewrightError) as caught:
        Scheduling(conv(8, 8, 8), machine)
    (problem,) = caught.value.problems
    assert problem.code == "schedule-path"
    assert "l3 and l2" in problem.reason and "from dram to feature" in problem.reason
    assert "planner" in problem.help and "move from dram to feature" in problem.help


def test_machines_that_compute_in_place() -> None:
    with pytest.raises(TilewrightError, match="schedule-machine"):
        Scheduling(in_floats(conv(8, 8, 8)), cpu())


LENET = Path(__file__).parents[4] / "examples" / "lenet5" / "lenet5.onnx"


def _second(s: Scheduling) -> None:
    n, co, oh, ow, ci, kh, kw = s.axes("n", "co", "oh", "ow", "ci", "kh", "kw")
    oh_outer, oh_inner = s.split(oh, 4)
    ci_outer, ci_inner = s.split(ci, 4)
    s.reorder(n, co, oh_outer, ci_outer, oh_inner, ow, ci_inner, kh, kw)
    s.buffer_read("input", oh_inner, ow, ci_inner, kh, kw)
    s.buffer_read("weight", ci_inner, kh, kw)
    s.buffer_write(oh_inner, ow)
    s.double_buffer("input")
    s.athread_parallel(s.fuse(n, co, oh_outer))


@pytest.mark.slow
def test_a_network_with_a_layer_by_hand_runs() -> None:
    package = tilewright.compile(LENET, "sunway", schedules={"conv2": _second})
    inputs = {
        info.name: np.random.default_rng(4)
        .normal(size=[int(n) for n in info.shape])
        .astype(np.float32)
        for info in package.inputs
    }
    assert package.check(inputs, package.run(inputs)).equal
    program = Path(str(package.runner.directory))  # type: ignore[attr-defined]
    text = next(program.glob("layers/*conv2_slave.c")).read_text()
    # 16 channels in three runs of rows each, of four rows and two.
    assert "48 parts, 1 for each CPE" in text and "TILE(input, input_slot)" in text


def _many_parts(s: Scheduling) -> None:
    n, co, oh, ow, ci, kh, kw = s.axes("n", "co", "oh", "ow", "ci", "kh", "kw")
    s.reorder(n, co, oh, ow, ci, kh, kw)
    s.buffer_read("input", ow, ci, kh, kw)
    s.buffer_read("weight", ci, kh, kw)
    s.buffer_write(ow)
    s.athread_parallel(s.fuse(n, co, oh))


@pytest.mark.slow
def test_more_parts_than_cores_are_runs_of_them() -> None:
    package = tilewright.compile(LENET, "sunway", schedules={"conv2": _many_parts})
    inputs = {
        info.name: np.random.default_rng(5).normal(size=[int(n) for n in info.shape]).astype("f4")
        for info in package.inputs
    }
    assert package.check(inputs, package.run(inputs)).equal
    text = next(Path(str(package.runner.directory)).glob("layers/*conv2_slave.c")).read_text()  # type: ignore[attr-defined]
    assert "160 parts, 3 for each CPE" in text


@pytest.mark.slow
def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    example = LENET.parents[1] / "scheduling" / "by_hand.py"
    runpy.run_path(str(example))["main"]()
    assert "passed: True" in capsys.readouterr().out


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("node", "steps", "code"),
    [("conv9", _second, "schedule-node"), ("fc1", _second, "schedule-axis")],
)
def test_what_cannot_be_scheduled_stops_the_compilation(
    node: str, steps: Callable[[Scheduling], None], code: str
) -> None:
    with pytest.raises(TilewrightError, match=code):
        tilewright.compile(LENET, "sunway", schedules={node: steps})


def test_loops_of_the_program_are_those_of_the_schedule() -> None:
    kernel = in_floats(conv(32, 48, 20))
    schedule = Scheduling(kernel, MACHINE)
    n, co, oh, ow, ci, kh, kw = schedule.axes("n", "co", "oh", "ow", "ci", "kh", "kw")
    oh_outer, oh_inner = schedule.split(oh, 5)
    ci_outer, ci_inner = schedule.split(ci, 8)
    schedule.reorder(n, co, oh_outer, ci_outer, oh_inner, ow, ci_inner, kh, kw)
    schedule.buffer_read("input", oh_inner, ow, ci_inner, kh, kw)
    schedule.buffer_read("weight", ci_inner, kh, kw)
    schedule.buffer_write(oh_inner, ow)
    schedule.athread_parallel(schedule.fuse(n, co))
    (program,) = programs_of(build(kernel, schedule.finished(), MACHINE))
    loops = [(op.dim.data, op.step_size) for op in program.walk() if isinstance(op, LoopOp)]
    assert loops == [("co", 1), ("oh", 5), ("ci", 8)]
