"""Flags that AscendNPU-IR puts into HIVM, read into our proof: what it finds, and beside ours."""

from __future__ import annotations

import pytest
from benchmarks.papers.ascend.injected import Injected
from benchmarks.papers.ascend.loops import LOOPS
from benchmarks.papers.ascend.synchronisation import CORE, EVENTS, MANY, counts, executions
from tests.targets.ascend.oracle import needs_oracle

from tilewright.targets.ascend.machine import ASCEND_910B1
from tilewright.targets.ascend.program import Barrier, Executed, Flag
from tilewright.targets.ascend.proof import prove_trace
from tilewright.targets.ascend.timing import simulate_trace

TILE = "memref<16x128xf16, #hivm.address_space<ub>>"
WHOLE = "memref<96x128xf16, #hivm.address_space<gm>>"
PART = "memref<16x128xf16, strided<[128, 1], offset: ?>, #hivm.address_space<gm>>"


def text(slots: int) -> str:
    """Six tiles through buffers of one or two slots: events of slots that are handed back take
    turns, those of contents do not."""
    event = "<EVENT_ID0>" if slots == 1 else "%2"
    presets = [
        f"hivm.hir.{{}}_flag[<PIPE_{pipes}>, <EVENT_ID{number}>]"
        for pipes in ("V>, <PIPE_MTE2", "MTE3>, <PIPE_V")
        for number in range(slots)
    ]
    addresses = ("%c0_i64", "%c4096_i64"), ("%c8192_i64", "%c12288_i64")
    a, b = (", ".join(each[:slots]) for each in addresses)
    return "\n".join(
        [
            "#map = affine_map<()[s0] -> ((s0 floordiv 16) mod 2)>",
            "module {",
            f"func.func @k(%arg0: {WHOLE}, %arg1: {WHOLE}) {{",
            *(f"%c{n}_i64 = arith.constant {n} : i64" for n in (0, 4096, 8192, 12288)),
            *(f"%c{n} = arith.constant {n} : index" for n in (0, 16, 96)),
            *(line.format("set") for line in presets),
            "scf.for %arg2 = %c0 to %c96 step %c16 {",
            "%2 = affine.apply #map()[%arg2]",
            f"%a = hivm.hir.pointer_cast({a}) : {TILE}",
            f"%b = hivm.hir.pointer_cast({b}) : {TILE}",
            f"%x = memref.subview %arg0[%arg2, 0] [16, 128] [1, 1] : {WHOLE} to {PART}",
            f"hivm.hir.wait_flag[<PIPE_V>, <PIPE_MTE2>, {event}]",
            f"hivm.hir.load ins(%x : {PART}) outs(%a : {TILE})",
            "hivm.hir.set_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID0>]",
            "hivm.hir.wait_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID0>]",
            f"hivm.hir.wait_flag[<PIPE_MTE3>, <PIPE_V>, {event}]",
            f"hivm.hir.vexp ins(%a : {TILE}) outs(%b : {TILE})",
            f"hivm.hir.set_flag[<PIPE_V>, <PIPE_MTE2>, {event}]",
            "hivm.hir.set_flag[<PIPE_V>, <PIPE_MTE3>, <EVENT_ID0>]",
            f"%y = memref.subview %arg1[%arg2, 0] [16, 128] [1, 1] : {WHOLE} to {PART}",
            "hivm.hir.wait_flag[<PIPE_V>, <PIPE_MTE3>, <EVENT_ID0>]",
            f"hivm.hir.store ins(%b : {TILE}) outs(%y : {PART})",
            f"hivm.hir.set_flag[<PIPE_MTE3>, <PIPE_V>, {event}]",
            "}",
            *(line.format("wait") for line in presets),
            "return",
        ]
    )


def kinds(steps: list[Executed], *, binary: bool) -> set[str]:
    problems = prove_trace(steps, events=EVENTS, binary=binary, most=MANY)
    return {problem.kind for problem in problems}


def without(steps: list[Executed], statement: object) -> list[Executed]:
    return [one for one in steps if one.statement is not statement]


@pytest.mark.parametrize("slots", [1, 2])
def test_an_event_is_set_twice_where_slots_share_it(slots: int) -> None:
    steps = Injected.of(text(slots)).steps
    assert kinds(steps, binary=False) == set()
    assert kinds(steps, binary=True) == ({"again"} if slots == 2 else set())
    for statement in {id(one.statement): one.statement for one in steps}.values():
        if isinstance(statement, Flag):
            assert kinds(without(steps, statement), binary=False)


@needs_oracle
@pytest.mark.oracle
@pytest.mark.parametrize("name", LOOPS)
def test_the_vendors_flags_are_right_where_events_count_and_ours_everywhere(name: str) -> None:
    """Ours are no more a loop's iteration, and take no longer, but for what one event for two
    operands costs. Each of the vendor's flags is needed, and none of its barriers."""
    found = executions(name)
    ours = found.pop("ours")
    assert kinds(ours, binary=True) == kinds(ours, binary=False) == set()
    assert len(found) == 2
    for steps in found.values():
        assert kinds(steps, binary=True) == {"again"}
        assert kinds(steps, binary=False) == set()
        for kind, number in counts(ours).items():
            assert number <= counts(steps)[kind]
        assert simulate_trace(ours, CORE).cycles <= 1.01 * simulate_trace(steps, CORE).cycles
        for statement in {id(one.statement): one.statement for one in steps}.values():
            left = kinds(without(steps, statement), binary=False)
            if isinstance(statement, Barrier):
                assert not left
            elif isinstance(statement, Flag):
                assert left


def test_the_loops_fit_on_the_chip() -> None:
    for _, program in LOOPS.values():
        for buffer in program.buffers:
            end = buffer.address + buffer.slots * buffer.bytes
            assert end <= {"ub": 192 << 10, "cbuf": ASCEND_910B1.l1, "cc": 128 << 10}.get(
                buffer.memory, 64 << 10
            )
