"""Small ONNX models for tests, and the comparison of their import with ONNX Runtime."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tilewright.frontends.imported import Imported
from tilewright.frontends.onnx import import_onnx
from tilewright.graph.interpreter import interpret
from tilewright.graph.passes.take_steps import TakeSteps, has_steps
from tilewright.ir import Context
from tilewright.report.onnx_reference import exact_session

IR_VERSION = 8


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int | str | None]],
    outputs: Sequence[str],
    constants: Mapping[str, Any] | None = None,
    opset: int = 17,
    ir_version: int = IR_VERSION,
) -> onnx.ModelProto:
    """A model of float32 inputs; output shapes are left open."""
    graph = helper.make_graph(
        list(nodes),
        "small",
        [helper.make_tensor_value_info(k, TensorProto.FLOAT, v) for k, v in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)


def single(
    operator: str,
    shapes: Sequence[Sequence[int] | np.ndarray | None],
    opset: int = 17,
    outputs: int = 1,
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of one node; an operand is a shape (an input), an array (a constant) or absent."""
    inputs: dict[str, Sequence[int | str | None]] = {}
    constants: dict[str, np.ndarray] = {}
    names: list[str] = []
    for index, operand in enumerate(shapes):
        name = "" if operand is None else f"x{index}"
        names.append(name)
        if isinstance(operand, np.ndarray):
            constants[name] = operand
        elif operand is not None:
            inputs[name] = list(operand)
    results = [f"y{index}" for index in range(outputs)]
    node = helper.make_node(operator, names, results, name="the_node", **attributes)
    return model_of([node], inputs, results, constants, opset)


def feeds_of(model: onnx.ModelProto, low: float = -2, high: float = 2) -> dict[str, np.ndarray]:
    """Seeded inputs; the seed depends on the model, so that models see different data."""
    rng = np.random.default_rng(zlib.crc32(model.SerializeToString(deterministic=True)))
    constants = {tensor.name for tensor in model.graph.initializer}
    return {
        value.name: rng.uniform(
            low, high, [dim.dim_value or 1 for dim in value.type.tensor_type.shape.dim]
        ).astype(np.float32)
        for value in model.graph.input
        if value.name not in constants
    }


def onnxruntime_of(
    model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """ONNX Runtime's outputs, without its graph optimisations where its sums are exact so."""
    session = exact_session(model, threads=1)
    names = [value.name for value in model.graph.output]
    return dict(zip(names, session.run(names, dict(feeds)), strict=True))


def assert_close(got: np.ndarray, want: np.ndarray, what: str = "") -> None:
    """Float32 agreement.

    Sums of n products in another order differ by about eps * sqrt(n) of the largest partial sum,
    which is near the largest result: 1e-5 of it (80 eps) is far above what n < 5000 gives and far
    below what a wrong pad, axis or divisor changes.
    """
    assert got.dtype == np.float32, what
    assert got.shape == want.shape, (what, got.shape, want.shape)
    scale = float(np.abs(want).max(initial=0.0))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * scale, err_msg=what)


def check(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray] | None = None) -> Imported:
    """Import a model, interpret it, and compare every output with ONNX Runtime's.

    Operators that keep their steps are compared twice: as they are written, and by their steps.
    """
    feeds = feeds_of(model) if feeds is None else feeds
    imported = import_onnx(model)
    got = interpret(imported.module, imported.weights, dict(feeds))
    want = onnxruntime_of(model, feeds)
    assert list(got) == list(want)
    for name, array in want.items():
        assert np.ptp(array) > 0 or array.size == 1, "the model's output says nothing"
        assert_close(got[name], array, name)
    if has_steps(imported.module):
        module = imported.module.clone()
        TakeSteps().apply(Context(), module)
        module.verify()
        for name, array in interpret(module, imported.weights, dict(feeds)).items():
            assert_close(array, want[name], name)
    return imported


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    """Seeded normal float32 numbers."""
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)
