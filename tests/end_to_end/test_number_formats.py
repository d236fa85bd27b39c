"""Whole networks on machines of 16-bit floats and of 8-bit integers, simulated and checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import onnxruntime
import pytest
from benchmarks.networks import Builder
from benchmarks.quantised import quantised
from numpy.typing import NDArray
from onnx import ModelProto
from onnxruntime.quantization import QuantFormat, QuantType

import tilewright
from benchmarks import models
from tests.end_to_end.end_to_end_models import ROOT, network
from tilewright.graph.dialect import KernelOp, WeightOp, network_of
from tilewright.graph.operation import Operation
from tilewright.graph.values import value_names
from tilewright.ir import SSAValue
from tilewright.runtime import Executable

SYSTOLIC = ROOT / "examples" / "machines" / "systolic-int8.toml"
FIVE_BUFFERS = ROOT / "examples" / "machines" / "five-buffers.toml"
SIZES = {"resnet18": 64, "mobilenet_v2": 64, "bert_small": None}
"""The networks, and the size of their images."""

PRODUCTS = {"resnet18": 21, "mobilenet_v2": 53, "bert_small": 17}
"""How many of their operations are products: all of them are on the accelerator."""

Arrays = dict[str, NDArray[Any]]


def sample(model: ModelProto, seed: int) -> Arrays:
    """A random image, or tokens of which the last few are masked."""
    if len(model.graph.input) == 1:
        return {model.graph.input[0].name: models.images(model, seed=seed)}
    tokens = np.random.default_rng(seed).integers(0, 1000, (1, 32))
    mask = np.ones((1, 32), np.int64)
    mask[0, 25:] = 0
    return {"tokens": tokens.astype(np.int64), "mask": mask}


def compiled(model: ModelProto, folder: Path, machine: Path, **options: Any) -> Executable:
    path = folder / "model.onnx"
    onnx.save(model, path)
    return tilewright.compile(path, str(machine), **options)


def distance(model: ModelProto, inputs: Arrays, outputs: Arrays) -> float:
    """The largest difference from ONNX Runtime's float32, of an output's largest magnitude."""
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    wanted = cast("list[NDArray[np.float32]]", session.run(None, inputs))
    found: list[float] = []
    for want, output in zip(wanted, outputs.values(), strict=True):
        scale = float(np.abs(want).max())
        assert float(np.std(want)) > 0.01 * scale, "the outputs say something"
        found.append(float(np.abs(output - want).max()) / scale)
    return max(found)


@pytest.mark.slow_cases(1)
@pytest.mark.slow
@pytest.mark.parametrize("name", SIZES)
def test_networks_in_float16(name: str, tmp_path: Path) -> None:
    """A value of float16 is off by 2**-11 of itself; of a network's result few times as much."""
    model = network(name, SIZES[name])
    executable = compiled(model, tmp_path, FIVE_BUFFERS)
    inputs = sample(model, 1)
    outputs = executable.run(inputs, check_races=True)
    assert executable.check(inputs, outputs).equal
    assert distance(model, inputs, outputs) < 16 * 2.0**-11
    rows = [row for row in executable.manifest.kernels if row.engine != "host"]
    products = [row for row in rows if row.nodes]
    assert len(products) >= PRODUCTS[name]
    if name == "bert_small":
        # A look-up, a cast, and what enters and leaves: attention and its transposes are inside.
        assert len(executable.manifest.kernels) - len(rows) <= 6
        assert sum("scores" in node for row in rows for node in row.nodes) == 2
    assert executable.summary()["efficiency"] > (0.85 if name != "bert_small" else 0.5)


def accelerator_agrees(executable: Executable, inputs: Arrays) -> int:
    """Compare every kernel of the accelerator with the interpreter, on what it read in this very
    run; gives how many there are.

    So floats of the host, which its C may round in another way, do not count.
    """
    seen: Arrays = dict(inputs)
    executable.run(inputs, observe=seen.__setitem__)
    network, weights = network_of(executable.graph), executable.weights
    names = value_names(network)

    def array_of(value: SSAValue) -> NDArray[Any]:
        owner = value.owner
        if isinstance(owner, WeightOp):
            return weights.get(owner.symbol.data)
        if names[value] not in seen and isinstance(owner, Operation):
            return owner.evaluate(*(array_of(operand) for operand in owner.inputs))
        return seen[names[value]]

    kernels = [op for op in network.block.ops if isinstance(op, KernelOp) and not op.on_host]
    for kernel in kernels:
        values = dict[SSAValue, NDArray[Any]](
            zip(kernel.body.block.args, map(array_of, kernel.inputs), strict=True)
        )
        result = np.zeros(0)
        for op in kernel.operations:
            result = values[op.result] = op.evaluate(*(values[value] for value in op.inputs))
        np.testing.assert_array_equal(
            seen[names[kernel.result]], result, err_msg=kernel.symbol.data
        )
    return len(kernels)


@pytest.mark.slow_cases(1)
@pytest.mark.slow
@pytest.mark.parametrize("name", SIZES)
def test_networks_in_int8_by_calibration(name: str, tmp_path: Path) -> None:
    model = network(name, SIZES[name])
    samples = [sample(model, seed) for seed in (1, 2, 3)]
    executable = compiled(model, tmp_path, SYSTOLIC, calibration=samples)
    outputs = executable.run(samples[0], check_races=True)
    check = executable.check(samples[0], outputs)
    assert check.equal
    if name != "bert_small":
        assert check.exact and check.max_abs_error == 0
    assert accelerator_agrees(executable, samples[0]) >= PRODUCTS[name]
    # Random weights, whose outputs are far smaller than what cancels in them.
    assert distance(model, samples[0], outputs) < 0.2


FORMATS = {"qdq": QuantFormat.QDQ, "operators": QuantFormat.QOperator}


@pytest.mark.slow
@pytest.mark.parametrize("activations", [QuantType.QInt8, QuantType.QUInt8])
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("symmetric", [True, False], ids=["symmetric", "zero-points"])
def test_networks_that_come_quantised_keep_their_scales(
    form: str, activations: QuantType, symmetric: bool, tmp_path: Path
) -> None:
    """Both of ONNX's forms, on the machine bit for bit as interpreted; and as ONNX Runtime, but
    for values in the middle between two integers, which may fall to either side.

    Weights beside uint8 have 7 bits: ONNX Runtime's products of uint8 by int8 saturate at 16 bits
    on many processors. For the same reason it runs without its optimiser.
    """
    model = quantised(
        small_network(),
        np.stack([image_of(seed) for seed in range(4)]),
        form=FORMATS[form],
        activations=activations,
        symmetric=symmetric,
        reduce_range=activations == QuantType.QUInt8,
    )
    executable = compiled(model, tmp_path, SYSTOLIC)
    inputs = {"image": image_of(9)[None]}
    outputs = executable.run(inputs, check_races=True)
    check = executable.check(inputs, outputs)
    # Of operators, some stay floats: a rectifier whose result is not quantised.
    assert check.equal and (check.exact or form == "operators")
    assert check.max_abs_error == 0
    assert accelerator_agrees(executable, inputs) >= 5
    apart, count = integers_apart(model, inputs, outputs)
    assert apart.max() <= 1
    assert np.count_nonzero(apart) <= 0.02 * count


def small_network() -> ModelProto:
    """Convolutions, one of them depthwise, a sum, pools, and a product."""
    random = np.random.default_rng(3)
    build = Builder("small")

    def weight(name: str, *shape: int) -> str:
        spread = 1 / np.sqrt(np.prod(shape[1:]) if len(shape) > 1 else 4)
        array = random.normal(0, spread, shape).astype(np.float32)
        build.weights.append(onnx.numpy_helper.from_array(array, name))
        return name

    def conv(x: str, name: str, co: int, ci: int, kernel: int, **more: Any) -> str:
        operands = [x, weight(f"{name}.w", co, ci, kernel, kernel), weight(f"{name}.b", co)]
        sizes = {"kernel_shape": [kernel] * 2, "pads": [kernel // 2] * 4}
        return build.node("Conv", operands, name, **sizes, **more)

    x = build.relu(conv("image", "stem", 16, 3, 3, strides=[2, 2]), "stem.relu")
    x = build.node("MaxPool", [x], "pool", kernel_shape=[2, 2], strides=[2, 2])
    y = build.relu(conv(x, "deep", 16, 1, 3, group=16), "deep.relu")
    x = build.node("Add", [conv(y, "wide", 16, 16, 1), x], "sum")
    x = build.relu(conv(x, "head", 32, 16, 1), "head.relu")
    x = build.node("Flatten", [build.node("GlobalAveragePool", [x], "mean")], "flat")
    gemm = [x, weight("last.w", 10, 32), weight("last.b", 10)]
    node = onnx.helper.make_node("Gemm", gemm, ["logits"], "last", transB=1)
    kinds = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("image", [1, 3, 32, 32]), ("logits", [1, 10]))
    ]
    graph = onnx.helper.make_graph(
        [*build.nodes, node], "small", kinds[:1], kinds[1:], build.weights
    )
    return onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8
    )


def image_of(seed: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(0, 1, (3, 32, 32)).astype(np.float32)


def integers_apart(
    model: ModelProto, inputs: Arrays, outputs: Arrays
) -> tuple[NDArray[np.float64], int]:
    """By how many units of the output's scale ONNX Runtime differs."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    (wanted,) = cast("list[NDArray[np.float32]]", session.run(None, inputs))
    (found,) = outputs.values()
    last = next(node for node in model.graph.node if "logits" in node.output)
    stored = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    scale = float(stored[last.input[1]])
    return np.abs(found - wanted) / scale, wanted.size


@pytest.mark.slow
def test_chains_hand_on_16_bits(tmp_path: Path) -> None:
    """Kernels computed as one round between their computes as they would apart, and move as many
    bytes as in fixed point of 16 bits."""
    model, inputs = small_network(), {"image": image_of(9)[None]}
    machine = ROOT / "examples" / "machines" / "fused.toml"
    moved: dict[str, int] = {}
    for element, accumulator in (("fixed16", "fixed32"), ("float16", "float32")):
        values = {"element": element, "accumulator": accumulator}
        executable = compiled(model, tmp_path, machine, values=values, calibration=[inputs])
        outputs = executable.run(inputs, check_races=True)
        assert executable.check(inputs, outputs).equal
        assert distance(model, inputs, outputs) < 8 * 2.0**-11
        rows = [row.nodes for row in executable.manifest.kernels if row.engine != "host"]
        assert ("deep", "deep.relu", "wide", "sum") in rows
        moved[element] = executable.summary()["dram_bytes"]
    assert moved["float16"] == moved["fixed16"]
