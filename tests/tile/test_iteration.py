"""Columns against a walk over the loops."""

import random

import numpy as np
import pytest

from tests.tile.iterations import Box, each_run
from tilewright.errors import TilewrightError
from tilewright.ir import Block, Operation, Parser
from tilewright.planning.domain import Interval
from tilewright.tile.boxes import box_columns
from tilewright.tile.dialect import (
    BufferOp,
    ComputeOp,
    LoopOp,
    MoveOp,
    ProgramOp,
    context,
    programs_of,
)
from tilewright.tile.iteration import Order
from tilewright.tile.queues import Queues

HEADER = """
tile.program "p" on "m" [n 2, co 7, oh 11 | ci 5, kh 3] {
  %x = tile.tensor "x" {role = "input"} : tensor<2x5x11xf32>
  %w = tile.tensor "w" {role = "weight"} : tensor<7x5x3xf32>
  %y = tile.tensor "y" {role = "output"} : tensor<2x7x11xf32>
  LOOPS
}
"""
BUFFERS = {
    "x": '%bx = tile.buffer "x" of %x [n, ci, oh + kh - 1] in "a" slots 2\n'
    'tile.move %x to %bx on "load" waits ["free x"]',
    "w": '%bw = tile.buffer "w" of %w [co, ci, kh] in "b" slots 1\n'
    'tile.move %w to %bw on "load" waits ["free w"]',
    "y": '%by = tile.buffer "y" of %y [n, co, oh] in "c" slots 2',
}
COMPUTE = """tile.compute "p" on "compute" to %by waits ["ready x", "ready w", "free y"] {
  %s = tile.stage "conv"(%bx [n, ci, oh + kh - 1], %bw [co, ci, kh]) to [n, co, oh]
       with {pads = [1, 1]} : tensor<2x7x11xf32>
}"""


def parse(text: str) -> ProgramOp:
    module = Parser(context(), text).parse_module()
    module.verify()
    return programs_of(module)[0]


def random_program(seed: int) -> ProgramOp:
    """Loops in a random order with random steps; some dims are cut twice; buffers anywhere."""
    random_ = random.Random(seed)
    sizes = {"n": 2, "co": 7, "oh": 11, "ci": 5, "kh": 3}
    text, depth = "", 0
    waiting = ["x", "w", "y"]
    for _ in range(random_.randint(0, 6)):
        dim = random_.choice(list(sizes))
        if waiting == ["x", "w", "y"][-len(waiting) :] and random_.random() < 0.3 and waiting:
            text += BUFFERS[waiting.pop(0)] + "\n"
        lower = random_.choice([0, 0, 0, sizes[dim] // 2])
        step = random_.randint(1, sizes[dim])
        text += f'tile.loop "{dim}" {lower} to {sizes[dim]} step {step} {{\n'
        sizes[dim] = min(sizes[dim], step)
        depth += 1
    text += "\n".join(BUFFERS[name] for name in waiting) + "\n" + COMPUTE + "}" * depth
    return parse(HEADER.replace("LOOPS", text))


def walk(program: ProgramOp) -> list[tuple[Operation, dict[str, Interval], dict[str, int]]]:
    """Every execution in order: operation, intervals, and the visit of each buffer."""
    found: list[tuple[Operation, dict[str, Interval], dict[str, int]]] = []
    count: dict[str, int] = {}

    def run(block: Block, dims: dict[str, Interval], visits: dict[str, int]) -> None:
        for op in block.ops:
            if isinstance(op, LoopOp):
                for inner in each_run(op, dims):
                    run(op.body.block, inner, visits)
            elif isinstance(op, BufferOp):
                name = op.symbol.data
                visits = {**visits, name: count.get(name, 0)}
                count[name] = count.get(name, 0) + 1
            elif isinstance(op, (MoveOp, ComputeOp)):
                found.append((op, dims, visits))

    dims = {dim: (0, extent) for dim, extent in program.extents.items()}
    run(program.body.block, dims, {})
    return found


@pytest.mark.parametrize("seed", range(40))
def test_columns_are_the_executions_of_a_walk(seed: int) -> None:
    program = random_program(seed)
    order, walked = Order(program), walk(program)
    commands = Queues(order).commands
    keys = np.concatenate([order.rows(op).key for op in commands])
    owner = np.concatenate([np.full(order.rows(op).count, i) for i, op in enumerate(commands)])
    assert len(set(keys.tolist())) == len(keys)
    assert [commands[i] for i in owner[np.argsort(keys)]] == [op for op, _, _ in walked]
    for op in commands:
        mine = [(dims, visits) for other, dims, visits in walked if other is op]
        rows = order.rows(op)
        assert rows.count == len(mine)
        for dim in program.extents:
            expected = [dims[dim] for dims, _ in mine]
            columns = zip(rows.start(dim).tolist(), rows.size(dim).tolist(), strict=True)
            assert list(columns) == expected, dim
        buffers = [b for b in program.walk() if isinstance(b, BufferOp)]
        for buffer in buffers:
            if all(buffer.symbol.data in visits for _, visits in mine):
                expected_visits = [visits[buffer.symbol.data] for _, visits in mine]
                if not (isinstance(op, MoveOp) and op.buffer is not buffer):
                    assert order.visit(buffer, op).tolist() == expected_visits
        if isinstance(op, MoveOp):
            window, shape = op.buffer.window.data, op.buffer.tensor_shape
            columns = box_columns(window, shape, rows)
            for row, (dims, _) in enumerate(mine):
                box = Box.of(window, shape, dims)
                assert tuple(columns.start[:, row]) == box.start
                assert tuple(columns.size[:, row]) == box.size
                assert tuple(columns.pad_before[:, row]) == tuple(b for b, _ in box.padding)
                assert tuple(columns.pad_after[:, row]) == tuple(a for _, a in box.padding)
                inside = zip(
                    columns.clamped_start[:, row], columns.clamped_size[:, row], strict=True
                )
                assert tuple(inside) == box.clamped


@pytest.mark.few(23)
@pytest.mark.parametrize("seed", range(40))
def test_last_before_and_waits_count_the_commands_of_a_walk(seed: int) -> None:
    program = random_program(seed)
    order, walked = Order(program), walk(program)
    queues = Queues(order)
    counts = {id(op): queues.waits(op) for op in queues.commands}
    number: dict[Operation, int] = {}
    queue: dict[str, list[tuple[Operation, dict[str, int]]]] = {}
    for op, _, visits in walked:
        assert isinstance(op, (MoveOp, ComputeOp))
        row = number.get(op, 0)
        for other in queues.commands:
            assert order.last_before(other, op)[row] == number.get(other, 0) - 1
        assert queues.position(op)[row] == len(queue.get(op.engine.data, []))
        expected: dict[str, int] = {}
        for wait in op.wait_list:
            verb, name = wait.split()
            for engine, done in queue.items():
                for place, (other, before) in enumerate(done):
                    uses = isinstance(other, ComputeOp) or (
                        isinstance(other, MoveOp) and other.buffer.symbol.data == name
                    )
                    if engine == op.engine.data or not uses:
                        continue
                    slots = {"x": 2, "w": 1, "y": 2}[name]
                    if verb == "ready" and name == "y" and isinstance(other, MoveOp):
                        continue
                    if verb == "ready" and name != "y" and isinstance(other, ComputeOp):
                        continue
                    if verb == "free" and before[name] > visits[name] - slots:
                        continue
                    expected[engine] = max(expected.get(engine, 0), place + 1)
        for engine, column in counts[id(op)].items():
            assert column[row] == expected.get(engine, 0)
        assert set(expected) <= set(counts[id(op)])
        number[op] = row + 1
        queue.setdefault(op.engine.data, []).append((op, visits))


def test_the_reduction_starts_and_ends_within_the_buffer() -> None:
    loops = (
        'tile.loop "co" 0 to 7 step 4 {'
        + BUFFERS["y"]
        + 'tile.loop "ci" 0 to 5 step 2 { tile.loop "oh" 0 to 11 step 6 {'
        + 'tile.loop "ci" 0 to 2 step 1 {'
        + BUFFERS["x"]
        + "\n"
        + BUFFERS["w"]
        + "\n"
        + COMPUTE
        + "}}}}"
    )
    program = parse(HEADER.replace("LOOPS", loops.replace("[n, co, oh]", "[n, co, oh]")))
    order = Order(program)
    compute = next(op for op in program.walk() if isinstance(op, ComputeOp))
    first, last = order.reduction(compute)
    once = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    assert len(first) == 20
    for half in (0, 1):
        begin = [*once]
        begin[0] = begin[2] = 1  # ci starts at 0 in each half of oh
        end = [*once]
        end[8] = end[9] = 1  # the last part of ci is index 4 alone
        assert first[half * 10 : half * 10 + 10].tolist() == [bool(v) for v in begin]
        assert last[half * 10 : half * 10 + 10].tolist() == [bool(v) for v in end]


def test_too_many_executions_are_refused() -> None:
    text = """tile.program "p" on "m" [a 1000000, b 1000000] {
      %x = tile.tensor "x" {role = "input"} : tensor<1000000x1000000xf32>
      tile.loop "a" 0 to 1000000 step 1 { tile.loop "b" 0 to 1000000 step 1 {
        %b = tile.buffer "x" of %x [a, b] in "m" slots 1
        tile.move %x to %b on "load"
      }}}"""
    program = parse(text)
    move = next(op for op in program.walk() if isinstance(op, MoveOp))
    with pytest.raises(TilewrightError, match="tile-too-many"):
        Order(program).rows(move)


def test_columns_do_not_walk_the_executions() -> None:
    """A million executions: a walk takes tens of seconds, columns a fraction of one."""
    loops = "".join(
        f'tile.loop "{dim}" 0 to {extent} step 1 {{\n'
        for dim, extent in (("n", 100), ("co", 100), ("oh", 100))
    )
    text = HEADER.replace("[n 2, co 7, oh 11", "[n 100, co 100, oh 100")
    for old, new in (("2x5x11", "100x5x100"), ("7x5x3", "100x5x3"), ("2x7x11", "100x100x100")):
        text = text.replace(old, new)
    body = "\n".join(BUFFERS.values()) + "\n" + COMPUTE.replace("2x7x11", "100x100x100")
    program = parse(text.replace("LOOPS", loops + body + "}}}"))
    order = Order(program)
    queues = Queues(order)
    move, _, compute = queues.commands
    boxes = box_columns(move.buffer.window.data, (100, 5, 100), order.rows(move))
    waits = queues.waits(compute)
    assert boxes.clamped_size.shape == (3, 1_000_000)
    assert waits["load"].tolist()[:3] == [2, 4, 6]
