"""The tokens of compiled words: no pair that touches one place lacks one, and none is idle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.slow import but_fast
from tests.targets.dpu.derived import needs_of
from tests.targets.dpu.lowering.lowered_cases import convolution, depthwise, lower_case, points
from tests.targets.dpu.lowering.test_lowered_chains import CHAINS, chain, crowded
from tests.targets.dpu.test_synchronisation import before, tokens, without

import tilewright
from tilewright.codegen.words import Statement, decode, encode
from tilewright.errors import TilewrightError
from tilewright.planning import Planner
from tilewright.targets.dpu.core import ZU2
from tilewright.targets.dpu.isa import REVISIONS
from tilewright.targets.dpu.lowering.network import Lowering
from tilewright.targets.dpu.operations import Operation, operations_of
from tilewright.targets.dpu.package import read_package
from tilewright.targets.dpu.segments import Segments
from tilewright.targets.dpu.timing import check_program
from tilewright.tile.build import build_program
from tilewright.tile.dialect import ProgramOp
from tilewright.tile.passes import Check, TilePass, pipeline
from tilewright.tile.queues import commands_of
from tilewright.tile.tensors import separate_placements

INSTRUCTIONS = REVISIONS[ZU2.isa]


def statements_of(operations: list[Operation]) -> list[Statement]:
    """The instructions of a program, to be changed and encoded again."""
    groups = {id(operation.place[0]): operation.place[0] for operation in operations}
    columns = {
        key: {name: column.tolist() for name, column in group.columns.items()}
        for key, group in groups.items()
    }
    return [
        Statement(
            operation.mnemonic,
            {
                name: column[operation.place[1]]
                for name, column in columns[id(operation.place[0])].items()
            },
        )
        for operation in operations
    ]


def read(statements: list[Statement]) -> list[Operation]:
    return operations_of(decode(INSTRUCTIONS, encode(INSTRUCTIONS, statements)))


def network(directory: Path) -> tuple[tuple[Operation, ...], int]:
    """Two kernels in a row: convolution and pool, pool and convolution; where the second begins."""
    random = np.random.default_rng(5)
    weights = {"w1": (16, 8, 3, 3), "w2": (8, 16, 1, 1)}
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], name="a", pads=[1] * 4),
        helper.make_node("MaxPool", ["a"], ["b"], name="b", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("MaxPool", ["b"], ["c"], name="c", kernel_shape=[3, 3], pads=[1] * 4),
        helper.make_node("Conv", ["c", "w2"], ["y"], name="y"),
    ]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 8, 20, 20))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 8, 10, 10))],
        [
            numpy_helper.from_array(random.normal(size=shape).astype(np.float32), name)
            for name, shape in weights.items()
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(model, directory / "network.onnx")
    tilewright.compile(directory / "network.onnx", "zu2", directory=directory / "package")
    parts, segments = read_package(directory / "package" / "program", ZU2)
    (program,) = segments.programs
    _, second = parts.file.kernels
    return program, second.start


def kernels() -> dict[str, tuple[Operation, ...]]:
    """Programs of one kernel each: layers, and chains that have little memory."""
    cases = {
        "conv": convolution(3),
        "depthwise": depthwise(1),
        "add": points(1),
        **{name: chain(CHAINS[name], 31) for name in ("conv-pool", "inverted-residual")},
    }
    programs = {
        name: lower_case(case, ZU2, crowded(ZU2, 8)).segments.programs
        for name, case in cases.items()
    }
    return {name: program for name, (program,) in programs.items()}


@pytest.fixture(scope="module", name="two")
def _two(tmp_path_factory: pytest.TempPathFactory) -> tuple[tuple[Operation, ...], int]:
    return network(tmp_path_factory.mktemp("network"))


@pytest.fixture(scope="module", name="programs")
def _programs(two: tuple[tuple[Operation, ...], int]) -> dict[str, tuple[Operation, ...]]:
    return {**kernels(), "network": two[0]}


@pytest.mark.slow
def test_all_that_touches_one_place_is_ordered(programs) -> None:
    """Of bank rows and bytes of the finished words, which no wait of a tile program knows."""
    for name, program in programs.items():
        needs = needs_of(ZU2, list(program))
        known = before(program)
        assert needs
        assert [need for need in needs if not known[need]] == [], name
        assert check_program(ZU2, program).race_free, name


@pytest.mark.slow_cases(1)
@pytest.mark.slow
@pytest.mark.parametrize("most", but_fast([3, 25], [3]))
def test_without_a_token_or_with_it_too_early_there_is_a_race(most: int, programs) -> None:
    """The check finds each pair that is unordered then; a few tokens follow from others."""
    for name, program in programs.items():
        statements, engines = statements_of(list(program)), [op.engine for op in program]
        found = {"lost": 0, "early": 0}
        every = tokens(statements, engines)
        chosen = every[:: max(1, len(every) // most)]
        for put, take, source, target in chosen:
            bare = without(without(statements, put, "put", target), take, "take", source)
            changed = {"lost": bare}
            mine = [row for row in range(put) if engines[row] == source]
            if mine and not statements[mine[-1]].values["put"] >> target & 1:
                values = dict(bare[mine[-1]].values)
                values["put"] |= 1 << target
                early = Statement(bare[mine[-1]].mnemonic, values)
                changed["early"] = without(statements, put, "put", target)
                changed["early"][mine[-1]] = early
            for kind, changed_statements in changed.items():
                operations = read(changed_statements)
                known = before(operations)
                unordered = [need for need in needs_of(ZU2, operations) if not known[need]]
                report = check_program(ZU2, operations)
                assert not report.deadlocks and not report.left
                assert report.race_free == (not unordered), (name, kind, put, take)
                found[kind] += not report.race_free
        assert found["lost"] >= len(chosen) // 2, name
        assert found["early"] or most < 10, name


def test_kernels_wait_for_kernels(two) -> None:
    """Without the tokens between the kernels of a network, the second one races with the first."""
    program, second = two
    statements, engines = statements_of(list(program)), [op.engine for op in program]
    between = [t for t in tokens(statements, engines) if t[0] < second <= t[1]]
    for put, take, source, target in between:
        statements = without(without(statements, put, "put", target), take, "take", source)
    races = check_program(ZU2, read(statements)).races
    assert between and any("after register" in problem.reason for problem in races)


@pytest.mark.parametrize("name", but_fast(["conv-pool", "inverted-residual"], []))
def test_every_wait_of_a_tile_program_counts(name: str) -> None:
    """Without one, the tile program's check names it, and what is emitted then has a race."""
    machine = crowded(ZU2, 8)
    kernel = chain(CHAINS[name], 31).kernel
    schedule = Planner(machine).plan(kernel).schedule

    def tiled() -> ProgramOp:
        program = build_program(kernel, schedule, machine, separate_placements(kernel))
        for entry in pipeline(machine):
            if isinstance(entry.step, TilePass):
                entry.step.run(program, machine)
        return program

    count = [len(op.wait_list) for op in commands_of(tiled())]
    assert sum(count) > 4
    raced = 0
    for number, waits in enumerate(count):
        for wait in range(waits):
            program = tiled()
            op = commands_of(program)[number]
            lost = op.wait_list[wait]
            assert " rows of " in lost
            op.set("waits", tuple(w for w in op.wait_list if w != lost))
            with pytest.raises(TilewrightError, match="tile-race") as error:
                Check().run(program, machine)
            assert any(lost in f"{problem.help}" for problem in error.value.problems), lost
            lowering = Lowering(ZU2)
            lowering.kernel(program)
            raced += bool(Segments.read(ZU2, lowering.words()).problems())
    assert raced > sum(count) // 2


def test_timing_sees_what_the_words_say() -> None:
    """Planning times the instructions themselves; their words give the same commands."""
    from tilewright.targets.dpu.timing import commands_of as commands_of_words
    from tilewright.tile.lower import tile

    for name in ("conv-pool", "inverted-residual"):
        machine, kernel = crowded(ZU2, 8), chain(CHAINS[name], 31).kernel
        schedule = Planner(machine).plan(kernel).schedule
        lowering = Lowering(ZU2)
        for _ in range(2):  # The second one waits for the first.
            lowering.kernel(tile(kernel, schedule, machine, separate_placements(kernel)))
        (whole,) = lowering.programs
        (operations,) = Segments.read(ZU2, whole.words()).programs
        mine, words = whole.commands(), commands_of_words(ZU2, operations)
        for field in ("engine", "move", "bytes", "cycles", "latency"):
            np.testing.assert_array_equal(mine[field], words[field])
        # Tokens leave out what an engine has waited for already.
        for engine in range(4):
            rows = mine["engine"] == engine
            np.testing.assert_array_equal(
                np.maximum.accumulate(mine["waits"][rows, :4], axis=0),
                np.maximum.accumulate(words["waits"][rows, :4], axis=0),
            )
