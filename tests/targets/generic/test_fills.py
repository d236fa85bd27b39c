"""Images whose padding holds another number than 0: words, tile programs and the graph agree."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.targets.generic.kernel_cases import Case, lower_case
from tests.targets.generic.test_real_scales import Integers
from tests.tile.interpreter import run

import tilewright
from tilewright.compiler.pipeline import resolve, run_pipeline
from tilewright.errors import TilewrightError
from tilewright.ir import ModuleOp, Parser, VerifyException, to_text
from tilewright.machine import Machine
from tilewright.machine.load import load_machine
from tilewright.planning import Planner
from tilewright.targets.generic.isa import derive
from tilewright.targets.generic.timing import check_races
from tilewright.tile.dialect import context, programs_of
from tilewright.tile.lower import tile_module

MACHINES = Path(__file__).parents[3] / "examples" / "machines"


def gathering() -> Machine:
    """Windows of int8 that are gathered on the way, with what padding holds."""
    machine = load_machine(MACHINES / "img2col.toml")
    (product,) = (p for p in machine.primitives if p.name == "product")
    storage = product.operands["input"].model_copy(update={"fills": True})
    product = product.model_copy(
        update={
            "operands": {**product.operands, "input": storage},
            "epilogue": (("add",), ("relu",), ("requantise_linear",)),
        }
    )
    return machine.model_copy(
        update={
            "element": "int8",
            "accumulator": "int32",
            "primitives": (product,),
            "c": None,
        }
    )


FILLING = {"a field": load_machine(MACHINES / "systolic-int8.toml"), "gathered": gathering()}


def convolution(seed: int, *, depthwise: bool = False) -> Case:
    build = Integers(seed)
    ci, co = (int(v) for v in build.random.integers(1, 60, 2))
    kernel, stride = int(build.random.choice([3, 5])), int(build.random.integers(1, 3))
    weight = (ci, 1) if depthwise else (co, ci)
    x = build.bytes(1, ci, 12, 9)
    w = build.bytes(*weight, kernel, kernel, layout="OHWI")
    y = build.op(
        "conv",
        *(x, w),
        strides=(stride, stride),
        pads=tuple(int(v) for v in build.random.integers(1, kernel // 2 + 1, 4)),
        group=ci if depthwise else 1,
        fill=int(build.random.choice([-128, -7, 3, 127])),
    )
    return build.finish(
        build.requantised(y, (1, 1, 1, 1), kernel * kernel * (w.type.get_shape()[1]))
    )


def read(text: str) -> ModuleOp:
    return Parser(context(), text).parse_module()


def case_of(name: str, seed: int) -> Case:
    return convolution(seed, depthwise=name == "a field" and seed % 2 == 1)


@pytest.mark.few(4)
@pytest.mark.parametrize("name", FILLING)
@pytest.mark.parametrize("seed", range(6))
def test_words_and_tiles_compute_what_the_graph_means(name: str, seed: int) -> None:
    machine, case = FILLING[name], case_of(name, seed)
    chosen = Planner(machine).plan(case.kernel)
    lowered = lower_case(case, chosen.schedule, machine, derive(machine))
    np.testing.assert_array_equal(lowered.run(), case.expected)
    assert not check_races(lowered.program, np.zeros(lowered.program.size, np.int64)).races
    text = to_text(tile_module(case.kernel, chosen.schedule, machine))
    (program,) = programs_of(read(text))
    result = run(program, case.operands, machine)[case.kernel.output.name]
    np.testing.assert_array_equal(result, case.expected)


@pytest.mark.parametrize("name", FILLING)
def test_what_padding_holds_is_seen(name: str) -> None:
    """Another number gives another result, in the tile program and in the words."""
    machine, case = FILLING[name], case_of(name, 2)
    chosen = Planner(machine).plan(case.kernel)
    text = to_text(tile_module(case.kernel, chosen.schedule, machine))
    fill = dict(case.kernel.anchor.attributes)["fill"]
    changed = text.replace(f"fill = {fill}", "fill = 77").replace(f" fill {fill} as", " fill 77 as")
    assert changed != text
    (program,) = programs_of(read(changed))
    result = run(program, case.operands, machine)[case.kernel.output.name]
    assert (result != case.expected).any()


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (" fill {fill} as", " as", "is filled with 0, and read with another"),
        (" fill {fill} as", " fill 0 as", "a fill other than 0 is of windows that are gathered"),
        ("fill = {fill}", "fill = 77", "and read with another"),
    ],
)
def test_what_the_verifier_says(before: str, after: str, reason: str) -> None:
    machine, case = FILLING["gathered"], case_of("gathered", 2)
    text = to_text(tile_module(case.kernel, Planner(machine).plan(case.kernel).schedule, machine))
    fill = dict(case.kernel.anchor.attributes)["fill"]
    before = before.format(fill=fill)
    assert before in text
    with pytest.raises(VerifyException, match=reason):
        read(text.replace(before, after)).verify()


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (
            'operands.output = "accumulators"',
            'operands.output = { memory = "accumulators", fills = true }',
            "input of conv",
        ),
    ],
)
def test_machines_that_cannot_are_refused(old: str, new: str, reason: str, tmp_path: Path) -> None:
    text = (MACHINES / "systolic-int8.toml").read_text()
    assert old in text
    file = tmp_path / "machine.toml"
    file.write_text(text.replace(old, new))
    with pytest.raises(TilewrightError, match=reason):
        load_machine(file)


def quantised_convolution(path: Path) -> Path:
    """A convolution of uint8 images whose zero point is 131, with padding, as QLinearConv."""
    pick = np.random.default_rng(4)
    names = ["x_scale", "x_zero", "w", "w_scale", "w_zero", "y_scale", "y_zero", "b"]
    arrays = [
        np.float32(0.02),
        np.uint8(131),
        pick.integers(-60, 60, (9, 5, 3, 3)).astype(np.int8),  # 16 bits hold two products
        np.float32(0.01),
        np.int8(0),
        np.float32(0.2),
        np.uint8(120),
        pick.integers(-900, 900, 9).astype(np.int32),
    ]
    node = helper.make_node("QLinearConv", ["x", *names], ["y"], pads=[1, 1, 1, 1])
    graph = helper.make_graph(
        [node],
        "quantised",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [1, 5, 12, 11])],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, [1, 9, 12, 11])],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in zip(names, arrays, strict=True)],
    )
    opsets = [helper.make_opsetid("", 17)]
    path.write_bytes(
        helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    )
    return path


def test_zero_points_stand_in_the_convolution_and_not_on_the_host(tmp_path: Path) -> None:
    model = quantised_convolution(tmp_path / "quantised.onnx")
    image = np.random.default_rng(5).integers(0, 256, (1, 5, 12, 11)).astype(np.uint8)
    results: list[np.ndarray] = []
    for fills in (True, False):
        text = (MACHINES / "systolic-int8.toml").read_text()
        file = tmp_path / f"fills-{fills}.toml"
        file.write_text(text if fills else text.replace(", fills = true", ""))
        target, machine = resolve(str(file))
        state = run_pipeline(model, target, machine)
        graph = to_text(state.network)
        assert ("fill = 3" in graph) == fills
        assert ("graph.pad" in graph) != fills
        executable = tilewright.compile(model, str(file))
        results.append(next(iter(executable.run({"x": image}).values())))
    np.testing.assert_array_equal(*results)
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"x": image})
    assert np.abs(results[0].astype(int) - np.asarray(wanted).astype(int)).max() <= 1
