"""A check runs on memories that begin with two contents, so no read of what nobody wrote passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tilewright.errors import TilewrightError
from tilewright.frontends.onnx import import_onnx
from tilewright.numerics import poison
from tilewright.targets.dpu.runner import CoreRunner
from tilewright.targets.generic.runner import InstructionRunner

MACHINES = Path(__file__).parents[2] / "examples" / "machines"
INPUT = {"x": np.random.default_rng(1).normal(size=(1, 4, 6, 6)).astype(np.float32)}


def network() -> onnx.ModelProto:
    """A convolution and a pool, both with padding."""
    weight = np.random.default_rng(2).normal(0, 0.3, (8, 4, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="first", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node(
            "MaxPool", ["b"], ["y"], name="second", kernel_shape=[3, 3], strides=[2, 2],
            pads=[1, 1, 1, 1],
        ),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 4, 6, 6))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weight, "w")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx.shape_inference.infer_shapes(made)


@pytest.fixture(scope="module")
def core() -> tilewright.Executable:
    return tilewright.compile(import_onnx(network()), "zu2")


def refused(executable: tilewright.Executable, inputs: Mapping[str, Any]) -> str:
    """The place of the refusal for a read of what nobody wrote; "" where there is none."""
    try:
        executable.run(inputs, check_races=True)
    except TilewrightError as error:
        assert [problem.code for problem in error.problems] == ["program-unwritten"]
        return error.problems[0].where
    return ""


def test_a_sound_program_does_not_depend_on_what_memories_begin_with(
    core: tilewright.Executable,
) -> None:
    want = core.run(INPUT)["y"]
    assert refused(core, INPUT) == "" and core.runner.seed == 0
    for seed in range(4):
        core.runner.seed = seed
        assert np.array_equal(core.run(INPUT)["y"], want)
    core.runner.seed = 0


def zeros(memory: np.ndarray[Any, Any], seed: int) -> None:
    del seed
    memory[:] = 0


def test_a_padding_that_is_off_by_one_is_seen(
    core: tilewright.Executable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every pad field of every command: what a zero hid, either the values or the check shows."""
    runner = core.runner
    assert isinstance(runner, CoreRunner)
    want = core.run(INPUT)["y"]
    right = list(runner.segments.operations)
    hidden = seen = named = 0
    for number, operation in enumerate(right):
        for field in ("pad_top", "pad_left", "pad_bottom", "pad_right"):
            for change in (1, -1):
                value = operation.fields.get(field, -1) + change
                if operation.fields.get(field) is None or value < 0:
                    continue
                other = replace(operation, fields={**operation.fields, field: value})
                operations = (*right[:number], other, *right[number + 1 :])
                monkeypatch.setitem(runner.segments.__dict__, "operations", operations)
                with monkeypatch.context() as patch:
                    patch.setattr("tilewright.targets.dpu.execute.spoil", zeros)
                    blind = np.array_equal(runner.run(INPUT).outputs["y"], want)
                results: list[Any] = []
                for runner.seed in (0, 1, 2):
                    results.append(runner.run(INPUT).outputs["y"])
                runner.seed = 0
                depends = any(not np.array_equal(results[0], array) for array in results)
                place = refused(core, INPUT) if depends else ""
                assert bool(place) == depends, (number, field, change)
                named += "first" in place or "second" in place
                seen += depends
                hidden += blind and depends
    assert hidden >= 1, "zeros hide none of them: the mutations are no test"
    assert seen > hidden and named == seen


@pytest.mark.parametrize("name", ["small-npu", "five-buffers"])
def test_a_load_that_is_left_out_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values alone: the search for races, which has another copy of the program, finds nothing."""
    executable = tilewright.compile(import_onnx(network()), str(MACHINES / f"{name}.toml"))
    runner = executable.runner
    assert isinstance(runner, InstructionRunner)
    assert refused(executable, INPUT) == ""
    simulator = runner._simulator  # pyright: ignore[reportPrivateUsage]
    run: Callable[[int, int], None] = simulator.run
    main = runner.parts.machine.main
    loads = [
        int(row)
        for group in runner.program.groups
        if group.instruction.move is not None and group.instruction.move.source == main
        for row in group.rows
    ]
    assert loads
    for load in (loads[0], loads[len(loads) // 2]):

        def without(start: int, end: int, load: int = load) -> None:
            run(start, min(load, end) if start <= load else start)
            run(max(start, load + 1) if load < end else start, end)

        monkeypatch.setattr(simulator, "run", without)
        assert refused(executable, INPUT)
        monkeypatch.undo()


@pytest.mark.parametrize("size", [0, 1, 4092, 4093, 4094, 20000])
def test_contents_are_of_their_seed_and_never_zero(size: int) -> None:
    memories = [np.zeros(size, np.uint8) for _ in range(3)]
    for memory, seed in zip(memories, (0, 0, 1), strict=True):
        poison.spoil(memory, seed)
    assert np.array_equal(memories[0], memories[1]) and all(memory.all() for memory in memories)
    if size > 1000:
        assert np.mean(memories[0] == memories[2]) < 0.02
    assert len({poison.byte_of(seed, 0xFF) for seed in range(8)}) == 8
