"""Whole networks on machines of 16-bit floats and of 8-bit integers, simulated and checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import ModelProto

import tilewright
from benchmarks import models
from tests.end_to_end.end_to_end_models import ROOT, network
from tilewright.runtime import Executable

FIVE_BUFFERS = ROOT / "examples" / "machines" / "five-buffers.toml"
SIZES = {"resnet18": 64, "mobilenet_v2": 64, "bert_small": None}
"""The networks, and the size of their images."""

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
    wanted = session.run(None, inputs)
    found: list[float] = []
    for want, output in zip(wanted, outputs.values(), strict=True):
        scale = float(np.abs(want).max())
        assert float(np.std(want)) > 0.01 * scale, "the outputs say something"
        found.append(float(np.abs(output - want).max()) / scale)
    return max(found)


@pytest.mark.slow
@pytest.mark.parametrize("name", SIZES)
def test_networks_in_float16(name: str, tmp_path: Path) -> None:
    """A value of float16 is off by 2**-11 of itself; of a network's result few times as much."""
    model = network(name, SIZES[name])
    executable = compiled(model, tmp_path, FIVE_BUFFERS)
    inputs = sample(model, 1)
    outputs = executable.run(inputs, check_races=True)
    assert executable.check(inputs, outputs).passed
    assert distance(model, inputs, outputs) < 16 * 2.0**-11
    rows = [row for row in executable.manifest.kernels if row.engine != "host"]
    products = [row for row in rows if row.nodes]
    assert len(products) >= 20
    assert executable.summary()["efficiency"] > (0.85 if name != "bert_small" else 0.5)


def accelerator_agrees(executable: Executable, inputs: Arrays) -> int:
    """Compare every kernel of the accelerator with the interpreter, on what it read in this very
    run; gives how many there are. So floats of the host, which may round in another way, do not
    count."""
    seen: Arrays = {}
    executable.run(inputs, observe=seen.__setitem__)
    names = value_names(network_of(executable.graph))
    kernels = [
        op
        for op in network_of(executable.graph).block.ops
        if isinstance(op, KernelOp) and not op.on_host
    ]
    for kernel in kernels:
        values: dict[SSAValue, NDArray[Any]] = {}
        for argument, value in zip(kernel.body.block.args, kernel.inputs, strict=True):
            owner = value.owner
            constant = isinstance(owner, WeightOp)
            values[argument] = (
                executable.weights.get(owner.symbol.data) if constant else seen[names[value]]
            )
        last = kernel.result
        for op in kernel.operations:
            values[op.result] = op.evaluate(*(values[value] for value in op.inputs))
            last = op.result
        np.testing.assert_array_equal(
            seen[names[kernel.result]], values[last], err_msg=kernel.symbol.data
        )
    return len(kernels)
