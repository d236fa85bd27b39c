"""What single passes promise, on random programs."""

import numpy as np
import pytest

from tests.tile.interpreter import run
from tests.tile.tile_kernels import case, machine, random_schedule
from tilewright.errors import TilewrightError
from tilewright.ir import Context, ModuleOp
from tilewright.machine import Machine, Synchronisation
from tilewright.planning.domain import Affine, Dim, Kernel, Operand, Stage
from tilewright.planning.schedule import Level, Schedule
from tilewright.tile.build import build, build_program
from tilewright.tile.dialect import BufferOp, ComputeOp, LoopOp, MoveOp, ProgramOp
from tilewright.tile.iteration import Order
from tilewright.tile.lower import tile, tile_module
from tilewright.tile.passes import (
    Allocate,
    Boundary,
    DoubleBuffer,
    PlaceMoves,
    pipeline,
)
from tilewright.tile.queues import commands_of
from tilewright.tile.races import share_addresses

TOY = machine()


def buffers(program: ProgramOp) -> dict[str, BufferOp]:
    return {op.symbol.data: op for op in program.walk() if isinstance(op, BufferOp)}


def product(n: int = 4, co: int = 10, ci: int = 6) -> Kernel:
    """A matrix product with a bias, in float32."""

    def axes(text: str) -> tuple[Affine, ...]:
        return tuple(Affine.parse(part) for part in text.split(","))

    stage = Stage(
        "matmul",
        (Dim("n", n), Dim("co", co), Dim("ci", ci, "reduction")),
        (
            Operand("x", (n, ci), axes("n, ci")),
            Operand("w", (co, ci), axes("co, ci"), role="weight"),
            Operand("b", (co,), axes("co"), role="bias"),
        ),
        Operand("y", (n, co), axes("n, co"), role="output"),
    )
    return Kernel("product", (stage,), ("node",))


def level(memory: str, order: tuple[str, ...], **tile: int) -> Level:
    return Level(memory, tuple(tile.items()), order)


def schedule(*levels: Level, **slots: int) -> Schedule:
    return Schedule("any", levels, tuple(slots.items()))


# build


def test_loops_that_run_once_are_left_out_and_placements_are_kept() -> None:
    program = build_program(
        product(),
        schedule(level("compute", ("n", "co", "ci"), n=2, co=10, ci=99)),
        TOY,
        {"x": ("activations", 128, (6, 1)), "y": ("activations", 512, np.array([16, 1]))},
    )
    program.verify()
    assert [op.dim.data for op in program.walk() if isinstance(op, LoopOp)] == ["n"]
    x, w, y = (program.tensors[name] for name in "xwy")
    assert (x.get("arena"), x.get("offset"), x.get("strides")) == ("activations", 128, (6, 1))
    assert y.get("strides") == (16, 1)
    assert w.arena is None
    assert program.get("nodes") == ("node",)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (schedule(level("compute", ("n",), co=2, n=2)), "dim co is tiled by 2 but has no loop"),
        (schedule(level("compute", ("zz",), n=2)), "no dim zz"),
        (schedule(level("compute", ("n",), n=2, zz=1)), "no dim zz"),
        (schedule(level("compute", ("n", "n"), n=2)), "twice"),
        (schedule(level("compute", ("n",), n=0)), "size 0"),
        (Schedule("other", ()), "no primitive other"),
    ],
)
def test_schedules_that_do_not_fit_are_refused(bad: Schedule, reason: str) -> None:
    with pytest.raises(TilewrightError, match=reason) as caught:
        build(product(), bad, TOY)
    assert caught.value.problems[0].code == "schedule-invalid"
    assert caught.value.problems[0].where == "product"


def test_an_operand_without_a_place_is_refused() -> None:
    operands = {r: s for r, s in TOY.primitives[0].operands.items() if r != "bias"}
    primitive = TOY.primitives[0].model_copy(update={"operands": operands})
    changed = TOY.model_copy(update={"primitives": (primitive,)})
    with pytest.raises(TilewrightError, match=r"no place for b \(bias\)"):
        build(product(), schedule(), changed)


def test_a_missing_move_is_refused() -> None:
    changed = TOY.model_copy(update={"moves": TOY.moves[1:]})
    with pytest.raises(TilewrightError, match="no moves that lead from dram to a"):
        build(product(), schedule(), changed)


# place-moves


def test_partial_sums_outside_of_the_output_are_refused() -> None:
    program = build_program(product(), schedule(level("compute", ("ci", "co"), co=4, ci=2)), TOY)
    with pytest.raises(TilewrightError, match="partial sums of y would have to leave c"):
        PlaceMoves().run(program, TOY)


def test_each_buffer_stands_where_its_box_is_settled() -> None:
    levels = (level("c", ("co",), co=5), level("compute", ("ci", "n", "co"), n=2, co=2, ci=3))
    program = build_program(product(), schedule(*levels), TOY)
    PlaceMoves().run(program, TOY)
    program.verify()
    depth = {
        name: [op.dim.data for op in reversed(list(parents(buffer)))]
        for name, buffer in buffers(program).items()
    }
    assert depth == {
        "x": ["co", "ci", "n"],
        "w": ["co", "ci", "n", "co"],
        "b": ["co", "ci", "n", "co"],
        "y": ["co"],
    }


def test_inputs_of_a_reduction_do_not_wait_with_its_sums() -> None:
    """In the memory of sums that wait, an input is not held for all tiles of them."""
    primitive = TOY.primitives[0]
    operands = {**primitive.operands, "input": primitive.operands["output"]}
    shared = primitive.model_copy(update={"operands": operands})
    load = TOY.move(TOY.main, primitive.operands["input"].memory)
    here = load.model_copy(update={"name": "load_c", "target": "c"})
    toy = TOY.model_copy(update={"primitives": (shared,), "moves": (*TOY.moves, here)})
    levels = (level("c", ("co",), co=5), level("compute", ("ci", "n"), n=2, ci=3))
    program = build_program(product(), schedule(*levels), toy)
    PlaceMoves().run(program, toy)
    program.verify()
    depths = {name: len(parents(buffer)) for name, buffer in buffers(program).items()}
    assert depths == {"x": 3, "w": 2, "b": 2, "y": 1}


def parents(op: BufferOp) -> list[LoopOp]:
    found: list[LoopOp] = []
    parent = op.parent_op()
    while parent is not None:
        if isinstance(parent, LoopOp):
            found.append(parent)
        parent = parent.parent_op()
    return found


# boundary


@pytest.mark.parametrize("seed", range(24))
def test_peeled_computes_have_constant_sizes(seed: int) -> None:
    found = case(seed)
    fixed = machine(sizes="fixed")
    program = build_program(found.kernel, random_schedule(found, fixed, seed), fixed)
    PlaceMoves().run(program, fixed)
    try:
        Boundary().run(program, fixed)
    except TilewrightError as error:
        assert "tile-boundary" in str(error)
        return
    program.verify()
    order = Order(program)
    for compute in [op for op in program.walk() if isinstance(op, ComputeOp)]:
        rows = order.rows(compute)
        for dim in program.extents:
            assert len(np.unique(rows.size(dim))) == 1
    found.check(run(program, found.feeds)["y"])


def test_primitives_of_any_size_are_left_alone() -> None:
    program = build_program(product(), schedule(level("compute", ("co",), co=4)), TOY)
    before = str(program)
    Boundary().run(program, TOY)
    assert str(program) == before
    Boundary(everywhere=True).run(program, TOY)
    loops = [op for op in program.walk() if isinstance(op, LoopOp)]
    assert [(o.lower_bound, o.upper_bound, o.step_size) for o in loops] == [(0, 8, 4), (8, 10, 2)]


# double-buffer


def test_slots_are_those_of_the_schedule_but_no_more_than_visits() -> None:
    wanted = schedule(level("compute", ("co", "ci"), co=5, ci=2), x=2, w=5, y=9)
    program = build_program(product(), wanted, TOY)
    PlaceMoves().run(program, TOY)
    DoubleBuffer().run(program, TOY)
    assert {n: b.slot_count for n, b in buffers(program).items()} == {
        "x": 2,
        "w": 5,
        "b": 5,  # travels with w
        "y": 2,  # visited twice
    }
    DoubleBuffer(operands=("w",), slots=3).run(program, TOY)
    assert buffers(program)["w"].slot_count == buffers(program)["b"].slot_count == 3


# allocate


def test_sizes_are_rounded_by_multiples_granule_and_accumulators() -> None:
    wanted = schedule(level("compute", ("co", "ci"), co=3, ci=5), w=2)
    program = tile(product(), wanted, TOY)
    found = {
        name: tuple(buffer.get(key) for key in ("shape", "address", "bytes"))
        for name, buffer in buffers(program).items()
    }
    assert found == {
        "x": ((4, 5), 0, 80),
        "w": ((3, 5), 0, 80),  # 4 x 5 floats: co in multiples of 4
        "b": ((3,), 160, 16),
        "y": ((4, 3), 0, 48),
    }


def test_what_does_not_fit_is_refused_by_name_and_size() -> None:
    small = machine(bytes=64)
    wanted = schedule(level("compute", ("co",), co=3), w=2)
    with pytest.raises(TilewrightError) as caught:
        tile(product(), wanted, small)
    problem = caught.value.problems[0]
    assert problem.code == "tile-capacity"
    assert problem.where == "product"
    assert problem.reason == ("a of toy holds 64 bytes, the buffers take 96: x 1 x 96 for [4, 6]")
    assert "memory.a.bytes" in problem.help


@pytest.mark.slow
def test_buffers_of_peeled_nests_share_memory_if_they_must() -> None:
    shared = 0
    for seed in range(40):
        found = case(seed)
        roomy = machine(sizes="fixed")
        wanted = random_schedule(found, roomy, seed)
        try:
            program = tile(found.kernel, wanted, roomy)
        except TilewrightError:
            continue
        tops = [b.get("address") + b.get("bytes") * b.slot_count for b in buffers(program).values()]
        for bytes_ in range(max(tops) - 8, 0, -max(8, max(tops) // 80 * 8)):
            tight = machine(sizes="fixed", bytes=bytes_)
            try:
                program = tile(found.kernel, wanted, tight)
            except TilewrightError as error:
                assert error.problems[0].code == "tile-capacity"
                break
            held = list(buffers(program).values())
            if any(share_addresses(a, b) for a in held for b in held if a is not b):
                shared += 1
                for order in range(3):
                    result = run(program, found.feeds, tight, interleave=order)
                    found.check(result["y"])
                break
    assert shared >= 4


# check


def test_programs_in_place_are_checked_however_often_they_run() -> None:
    everything = ("input", "weight", "bias", "residual", "output")
    cpu = machine(in_place=everything)
    wanted = schedule(level("compute", ("n", "co", "ci"), n=1, co=1, ci=1))
    program = tile(product(3000, 3000, 3000), wanted, cpu)  # 27 thousand million computes
    assert len(list(buffers(program))) == 0


# the pipeline


def test_the_pipeline_is_the_machine_s() -> None:
    def names(of: Machine) -> list[str]:
        assert all(entry.reason for entry in pipeline(of))
        return [entry.step.name for entry in pipeline(of)]

    assert names(TOY) == ["place-moves", "double-buffer", "allocate", "synchronise", "check"]
    cpu = TOY.model_copy(
        update={
            "synchronisation": Synchronisation(style="none"),
            "primitives": (TOY.primitives[0].model_copy(update={"sizes": "fixed"}),),
        }
    )
    assert names(cpu) == ["place-moves", "double-buffer", "boundary", "allocate", "check"]
    flags = TOY.model_copy(update={"synchronisation": Synchronisation(style="flags", ids=4)})
    assert names(flags)[-3:] == ["synchronise", "assign-events", "check"]


def test_a_module_of_several_programs_is_run_through() -> None:
    module = tile_module(product(), schedule(), TOY)
    other = build_program(product(3, 3, 3), schedule(), TOY)
    module.body.block.add_op(other)
    from tilewright.ir.passes import CompilerContext

    Allocate().apply(CompilerContext(TOY), module)
    assert all(op.address is not None for op in module.walk() if isinstance(op, BufferOp))
    with pytest.raises(TilewrightError, match="pass-machine"):
        Allocate().apply(Context(), ModuleOp([]))


def test_candidates_are_made_fast_and_unchecked() -> None:
    found = case(0)
    wanted = random_schedule(found, TOY, 0)
    checked = tile(found.kernel, wanted, TOY)
    candidate = tile(found.kernel, wanted, TOY, check=False)
    assert [op for op in checked.walk() if isinstance(op, MoveOp)]
    for fewest, op in zip(commands_of(checked), commands_of(candidate), strict=True):
        # Waits that others imply are left out where that is proven.
        assert set(fewest.wait_list) <= set(op.wait_list)
        op.set("waits", fewest.wait_list)
        if not fewest.wait_list:
            op.properties.pop("waits", None)
    assert str(candidate) == str(checked)
