"""Networks of which a part is integers and a part floats, on a machine that has both."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import onnxruntime
import pytest
from benchmarks.quantised import quantised
from numpy.typing import NDArray
from onnx import TensorProto, helper
from onnxruntime.quantization import QuantFormat, QuantType

from tests.end_to_end.end_to_end_models import ROOT, image, lenet, network
from tests.end_to_end.test_number_formats import (
    SIZES,
    Arrays,
    accelerator_agrees,
    compiled,
    distance,
    image_of,
    integers_apart,
    sample,
    small_network,
)
from tilewright.runtime import Executable

MIXED = ROOT / "examples" / "machines" / "mixed.toml"


def on_host(executable: Executable) -> list[str]:
    return [row.name for row in executable.manifest.kernels if row.engine == "host"]


def test_lenet_is_quantised_and_nothing_is_left_to_the_host(tmp_path: Path) -> None:
    model = lenet()
    inputs = image(model)
    executable = compiled(model, tmp_path, MIXED, calibration=[inputs], numbers="int8")
    outputs = executable.run(inputs, check_races=True)
    check = executable.check(inputs, outputs)
    assert check.equal and check.max_abs_error == 0
    assert accelerator_agrees(executable, inputs) == 8
    assert not on_host(executable)
    assert distance(model, inputs, outputs) < 0.03
    assert executable.summary()["efficiency"] > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("form", [QuantFormat.QDQ, QuantFormat.QOperator], ids=["pairs", "ops"])
def test_a_network_that_comes_quantised_keeps_its_scales(form: QuantFormat, tmp_path: Path) -> None:
    """As ONNX Runtime computes it, but for numbers in the middle between two integers."""
    samples = np.stack([image_of(seed) for seed in range(4)])
    model = quantised(
        small_network(), samples, form=form, activations=QuantType.QInt8, symmetric=True
    )
    executable = compiled(model, tmp_path, MIXED)
    inputs = {"image": image_of(9)[None]}
    outputs = executable.run(inputs, check_races=True)
    check = executable.check(inputs, outputs)
    assert check.equal and check.max_abs_error == 0
    if form == QuantFormat.QDQ:  # Of operators, the mean is one of floats, added in another order.
        assert accelerator_agrees(executable, inputs) >= 8
    assert not on_host(executable)
    apart, count = integers_apart(model, inputs, outputs)
    assert apart.max() <= 1
    assert np.count_nonzero(apart) <= 0.02 * count


@pytest.mark.slow
def test_what_stays_in_floats_stays_right(tmp_path: Path) -> None:
    """Without integers, and with layers kept in floats beside quantised ones."""
    model = lenet()
    inputs = image(model)
    plain = compiled(model, tmp_path, MIXED)
    assert not on_host(plain)
    assert distance(model, inputs, plain.run(inputs, check_races=True)) < 1e-5
    executable = compiled(
        model, tmp_path, MIXED, calibration=[inputs], numbers="int8", keep_float=["conv2", "fc1"]
    )
    outputs = executable.run(inputs, check_races=True)
    assert executable.check(inputs, outputs).equal
    assert not on_host(executable)
    assert distance(model, inputs, outputs) < 0.03


def test_scales_that_instructions_do_not_carry_go_to_the_host(tmp_path: Path) -> None:
    """Boxes of five axes, and scales of channels: C on the host computes the same integers."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 2, 5, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3, 2, 5, 4])
    parts = {
        "scale": np.float32(0.05),
        "zero": np.int8(3),
        "scales": np.linspace(0.01, 0.2, 3).astype(np.float32),
        "zeros": np.zeros(3, np.int8),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["a"], "whole"),
        helper.make_node("DequantizeLinear", ["a", "scale", "zero"], ["b"]),
        helper.make_node("Neg", ["b"], ["c"]),
        helper.make_node("QuantizeLinear", ["c", "scales", "zeros"], ["d"], "channels", axis=1),
        helper.make_node("DequantizeLinear", ["d", "scales", "zeros"], ["y"], axis=1),
    ]
    stored = [onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in parts.items()]
    graph = helper.make_graph(nodes, "five", [x], [y], stored)
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    executable = compiled(model, tmp_path, MIXED)
    inputs = {"x": np.random.default_rng(2).normal(0, 3, (2, 3, 2, 5, 4)).astype(np.float32)}
    outputs = executable.run(inputs)
    assert executable.check(inputs, outputs).max_abs_error == 0
    assert distance(model, inputs, outputs) < 0.05
    reasons = " ".join(row.reason for row in executable.manifest.kernels)
    assert "instructions carry one" in reasons and "lower-rank" in reasons


@pytest.mark.slow_cases(1)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["mobilenet_v2", "bert_small"])
def test_networks(name: str, tmp_path: Path) -> None:
    model = network(name, SIZES[name])
    samples = [sample(model, seed) for seed in (1, 2, 3)]
    executable = compiled(model, tmp_path, MIXED, calibration=samples, numbers="int8")
    outputs = executable.run(samples[0], check_races=True)
    check = executable.check(samples[0], outputs)
    assert check.equal and check.max_abs_error == 0
    left = on_host(executable)
    # Of the encoder: the look-up of its embeddings, and the mask's cast to floats.
    assert len(left) == (2 if name == "bert_small" else 0), left
    # As near to float32 as the cpu's integers of the same calibration, whose products of computed
    # matrices are rounded otherwise.
    own = compiled(model, tmp_path, Path("cpu"), calibration=samples, numbers="int8")
    ours, theirs = (
        error(model, samples[0], outputs_of) for outputs_of in (outputs, own.run(samples[0]))
    )
    assert ours < 1.3 * theirs
    assert theirs < 0.15


def error(model: onnx.ModelProto, inputs: Arrays, outputs: Mapping[str, Any]) -> float:
    """Of all outputs, the largest root mean square of the error, of that of float32's values."""
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    wanted = cast("list[NDArray[np.float32]]", session.run(None, inputs))
    pairs = zip(wanted, outputs.values(), strict=True)
    return max(float(np.sqrt(np.mean((y - x) ** 2) / np.mean(x**2))) for x, y in pairs)
