"""Loops and computes of stages behind the tiles: they mean the kernel, each row once, in time."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tile.tile_kernels import Case, Chain
from tilewright.errors import TilewrightError
from tilewright.ir import IntegerAttr, i64
from tilewright.ir.passes import CompilerContext
from tilewright.machine import Machine
from tilewright.planning.schedule import Level, Schedule
from tilewright.targets.cpu.machine import machine as cpu
from tilewright.targets.cpu.processors import Processor
from tilewright.tile.build import build
from tilewright.tile.dialect import ComputeOp, LoopOp, ProgramOp, load_into, programs_of
from tilewright.tile.interpreter import run
from tilewright.tile.passes.boundary import Boundary
from tilewright.tile.passes.check import Check

MACHINE = cpu(Processor(lanes=4))


def normalised(shape: tuple[int, ...], width: int) -> Case:
    chain = Chain(False, np.random.default_rng(1))
    x, w = chain.operand("x", shape), chain.operand("w", (width, shape[-1]))
    b, r = chain.operand("b", (width,)), chain.operand("r", (*shape[:-1], width))
    scale, shift = chain.operand("scale", (width,)), chain.operand("shift", (width,))
    kernel, (feeds, expected) = chain.finish(
        lambda op: op(
            "layer_norm",
            op("add", op("matmul", x, w, b, transpose_b=True), r),
            *(scale, shift),
        ),
        "k",
    )
    return Case(kernel, feeds, expected)


def program_of(case: Case, levels: tuple[Level, ...], machine: Machine = MACHINE) -> ProgramOp:
    return programs_of(build(case.kernel, Schedule("matmul", levels), machine))[0]


LEVELS: dict[str, tuple[Level, ...]] = {
    "weights outside": (
        Level("registers", (("b0", 1), ("ci", 6), ("co", 4), ("m", 3)), ("b0", "co", "ci", "m")),
    ),
    "rows outside": (
        Level("registers", (("b0", 1), ("ci", 5), ("co", 4), ("m", 3)), ("m", "b0", "co", "ci")),
    ),
    "blocks of rows": (
        Level("l2", (("b0", 1), ("ci", 10), ("co", 9), ("m", 4)), ("b0", "m")),
        Level("registers", (("b0", 1), ("ci", 10), ("co", 4), ("m", 2)), ("co", "m")),
    ),
    "no loop": (Level("registers", (), ()),),
}


@pytest.mark.parametrize("name", LEVELS)
def test_rows_are_normalised_once_when_they_are_whole(name: str) -> None:
    case = normalised((2, 7, 10), 9)
    program = program_of(case, LEVELS[name])
    module = program.parent_op()
    assert module is not None
    context = CompilerContext(MACHINE)
    load_into(context)
    module.verify()
    case.check(run(program, case.feeds)["y"])
    for step in (Boundary(), Check()):
        step.apply(context, module)  # type: ignore[arg-type]
        case.check(run(program, case.feeds)["y"])


def test_both_computes_have_the_same_steps_along_what_cores_divide() -> None:
    program = program_of(normalised((1, 7, 10), 9), LEVELS["weights outside"])
    steps = [(loop.dim.data, loop.step_size) for loop in program.walk() if isinstance(loop, LoopOp)]
    assert steps == [("co", 4), ("ci", 6), ("m", 3), ("m", 3), ("m", 1)]


def test_rows_that_are_not_whole_are_refused() -> None:
    program = program_of(normalised((1, 7, 10), 9), LEVELS["weights outside"])
    tiles, behind = (op for op in program.walk() if isinstance(op, ComputeOp))
    behind.detach()
    block = tiles.parent_block()
    assert block is not None
    block.insert_op_after(behind, tiles)
    with pytest.raises(TilewrightError, match="tile-run"):
        run(program, normalised((1, 7, 10), 9).feeds)


def test_rows_that_are_left_out_are_refused() -> None:
    program = program_of(normalised((1, 7, 10), 9), LEVELS["weights outside"])
    *_, rows = (op for op in program.walk() if isinstance(op, LoopOp))
    rows.upper = IntegerAttr(2, i64)
    with pytest.raises(TilewrightError, match="tile-coverage"):
        Check().apply(CompilerContext(MACHINE), program.parent_op())  # type: ignore[arg-type]


def test_a_machine_without_the_primitive_is_refused() -> None:
    kept = tuple(p for p in MACHINE.primitives if p.name != "layer_norm")
    machine = MACHINE.model_copy(update={"primitives": kept})
    with pytest.raises(TilewrightError, match="no primitive for layer_norm"):
        program_of(normalised((1, 7, 10), 9), LEVELS["no loop"], machine)
