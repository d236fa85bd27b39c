"""Flags and barriers: every one is needed, and the proof and the host core say so when it lacks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from benchmarks.papers.ascend.fractal import fractalise
from benchmarks.papers.ascend.handovers import synchronised
from benchmarks.papers.ascend.matmul import Matrices, Tiling, matmul
from tests.slow import but_fast, crossed
from tests.targets.ascend.attention_kernels import Heads
from tests.targets.ascend.element_kernels import broadcast, elementwise, folded, normal, pooled
from tests.targets.ascend.moved_kernels import move_program, surrounded, transposed
from tests.targets.ascend.mutations import Mutated, arguments, generated, loop_of, mutants

from tilewright.planning.domain import Kernel
from tilewright.targets.ascend.emit import kernel_text
from tilewright.targets.ascend.host import ORDERS, build
from tilewright.targets.ascend.kernels.normal import Norm
from tilewright.targets.ascend.machine import ASCEND_910
from tilewright.targets.ascend.program import Barrier, Flag, Loop, Program, statements, trace
from tilewright.targets.ascend.proof import prove
from tilewright.targets.ascend.vector_primitives import ROOM


def moved(of: Kernel) -> Program:
    """A kernel that moves elements."""
    return replace(move_program(of), name="kernel")


KERNELS: dict[str, Callable[[], Program]] = {
    "product": lambda: matmul(
        Matrices(32, 64, 48), Tiling(16, 32, 16, 16, 16, 16, l1=2, l0=2), ASCEND_910, "kernel"
    ),
    "product with bias": lambda: matmul(
        Matrices(32, 48, 64, bias=True, relu=True),
        Tiling(32, 48, 32, 16, 16, 16, l1=2, l0=2, l0c=2, ub=2),
        ASCEND_910,
        "kernel",
    ),
    "elementwise": lambda: elementwise(
        "add", "half", 1000, replace(ASCEND_910, ub=ROOM + 6 * 2 * 256), name="kernel"
    ),
    "elementwise with scalars": lambda: elementwise(
        *("clamp", "float", 700, replace(ASCEND_910, ub=ROOM + 4096)),
        scalars=("-1", "2"),
        name="kernel",
    ),
    "to blocks": lambda: fractalise(100, 48, "naive", ASCEND_910, "kernel"),
    "to blocks by copies": lambda: fractalise(50, 33, "dma", ASCEND_910, "kernel"),
    "softmax": lambda: normal((20, 70)),
    "softmax of many tiles": lambda: normal((300, 8)),
    "layer normalisation": lambda: normal(
        *((2, 9, 17), ASCEND_910, Norm(), ["scale"]), element="half", blocks=True
    ),
    "reduction in parts": lambda: folded("reduce_max", (9, 17_000), [1]),
    "broadcast": lambda: broadcast(
        "mul", (3, 20, 17), {"x": (3, 20, 17), "y": (20, 1)}, ASCEND_910, name="kernel"
    ),
    "transposition": lambda: moved(transposed((130, 3), (1, 0), "float")),
    "padding": lambda: moved(surrounded((3, 20), (1, 2, 0, 3), 1.5)),
    "attention": lambda: Heads(1, 2, 40, 33, 16, 16, 0.25, (1, 1, 1, 33)).program(),
    "pool": lambda: pooled("max_pool", (1, 48, 5, 7), (3, 2), pads=(1, 0, 1, 0)),
    "to rows": lambda: fractalise(33, 50, "improved", ASCEND_910, "kernel", back=True),
}


@pytest.mark.parametrize("name", but_fast(KERNELS, ["product", "elementwise"]))
def test_what_is_missing_or_misplaced_is_reported(name: str) -> None:
    program = synchronised(KERNELS[name]())
    check(program, 0)
    assert len(list(mutants(program))) >= 5


def check(program: Program, orders: int) -> None:
    """Nothing is reported of a program, and each of its mutants by the proof and the host core."""
    assert not prove(program)
    assert not prove(program, binary=False)
    mutated = Mutated.of(program)
    assert mutated.problems(orders) == []
    for number, (what, mutant) in enumerate(mutated.mutants, 1):
        assert prove(mutant), what
        assert mutated.reported(number), what


@pytest.mark.parametrize("number", but_fast(range(16), range(3)))
def test_kernels_at_random(number: int) -> None:
    """More of them: ``python -m tests.targets.ascend.mutations``."""
    _, program = generated(number)
    check(program, 50)


@pytest.mark.few(3)
@pytest.mark.parametrize(("name", "binary"), crossed(KERNELS, [True, False]))
def test_nothing_is_reported_of_what_is_right(name: str, binary: bool) -> None:
    program = synchronised(KERNELS[name]())
    kernel = build(kernel_text(program), "kernel")
    for order in (*ORDERS, *range(100, 150)):
        assert kernel.run(arguments(program), order=order, binary=binary).problems == ()


@pytest.mark.few(6)
@pytest.mark.parametrize("slots", [1, 2, 3])
@pytest.mark.parametrize("trips", [1, 2, 3, 5])
def test_few_iterations(slots: int, trips: int) -> None:
    check(synchronised(loop_of(slots, trips)), 1)


def test_a_vector_loop_needs_four_flags_and_no_barrier() -> None:
    """AscendNPU-IR's injectors put four sets, four waits and a barrier in; stores are disjoint."""
    program = synchronised(loop_of(2, 64))
    loop = next(one for one in program.body if isinstance(one, Loop))
    flags = [one for one in loop.body if isinstance(one, Flag)]
    assert (
        [one.kind for one in flags].count("set") == [one.kind for one in flags].count("wait") == 4
    )
    assert not any(isinstance(one, Barrier) for one in loop.body)


@pytest.mark.parametrize(("slots", "turns"), [(5, 1), (6, 3), (8, 4)])
def test_of_more_slots_than_events_fewer_take_turns(slots: int, turns: int) -> None:
    """With four events; no flag can be left out. There are slots to spare, so some flags may stand
    past the command beside them: of each the proof and the host core say the same."""
    program = synchronised(loop_of(slots, 2 * slots + 1))
    events = {step.event for step in trace(program) if isinstance(step.statement, Flag)}
    assert events == set(range(turns))
    assert not prove(program)
    mutated = Mutated.of(program)
    assert mutated.problems(0) == []
    for number, (what, mutant) in enumerate(mutated.mutants, 1):
        assert bool(prove(mutant)) == mutated.reported(number), what
        assert mutated.reported(number) or what.startswith("moved"), what


def two_loops() -> Program:
    """Two loops, one after the other in the same memory, each of which hands three slots on."""
    first, second = loop_of(3, 3), loop_of(3, 3, names="uv", index="j")
    tensors, buffers = first.tensors + second.tensors, first.buffers + second.buffers
    return Program("kernel", tensors, [*first.body, second.body[1]], buffers)


def test_of_too_few_events_barriers_of_all_pipes_take_the_place() -> None:
    """With one event a pair; each barrier is needed, as each flag is."""
    program = synchronised(two_loops(), events=1)
    barriers = [each for each in statements(program.body) if isinstance(each, Barrier)]
    assert [barrier.pipe for barrier in barriers] == ["ALL", "ALL"]
    assert {step.event for step in trace(program) if isinstance(step.statement, Flag)} == {0}
    assert not prove(program)
    for what, mutant in mutants(program):
        # A flag beside a barrier of all pipes may stand on either side of it.
        assert prove(mutant) or what.startswith("moved"), what


def test_loops_share_events_where_there_are_too_few() -> None:
    """Six events of four."""
    program = synchronised(two_loops())
    flags = [step.event for step in trace(program) if isinstance(step.statement, Flag)]
    assert max(flags) < 4
    assert not prove(program)
    for what, mutant in mutants(program):
        assert prove(mutant), what
    kernel = build(kernel_text(program), "kernel")
    for order in ORDERS:
        assert kernel.run(arguments(program), order=order).problems == ()


def test_an_event_for_all_iterations_is_a_second_set() -> None:
    """As the vendor's injectors use EVENT_ID0 for what is handed on, though two slots take turns:
    right where events count, wrong where they are up or down."""
    program = synchronised(loop_of(2, 8))
    loop = next(one for one in program.body if isinstance(one, Loop))
    for place, one in enumerate(loop.body):
        if isinstance(one, Flag) and (one.source, one.target) == ("MTE2", "V"):
            loop.body[place] = Flag(one.kind, one.source, one.target, 0)
    assert {problem.kind for problem in prove(program)} == {"again"}
    assert not prove(program, binary=False)
    kernel = build(kernel_text(program), "kernel")
    assert "again" in kernel.run(arguments(program)).problems[0]
    assert kernel.run(arguments(program), binary=False).problems == ()


def test_messages_name_pipes_event_and_line() -> None:
    program = synchronised(loop_of(2, 8))
    loop = next(one for one in program.body if isinstance(one, Loop))
    place = next(
        n for n, one in enumerate(loop.body) if isinstance(one, Flag) and one.kind == "set"
    )
    del loop.body[place]
    text = kernel_text(program)
    lines = text.splitlines()
    number = next(n for n, line in enumerate(lines, 1) if "wait_flag(PIPE_MTE2, PIPE_V" in line)
    problems = build(text, "kernel").run(arguments(program)).problems
    assert f"line {number}: wait_flag(MTE2, V, 0): nothing has set it, V stands still" in problems
    assert any("V reads ub at 0x0" in problem and "MTE2, line" in problem for problem in problems)
