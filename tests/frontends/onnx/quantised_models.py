"""Quantised ONNX models for tests, and the comparison of their integers with ONNX Runtime's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.frontends.onnx.onnx_models import onnxruntime_of
from tests.graph.passes.pipelines import prepare_pipeline
from tilewright.frontends.imported import Imported
from tilewright.frontends.onnx import import_onnx
from tilewright.graph.interpreter import interpret
from tilewright.ir import ModuleOp
from tilewright.ir.passes import CompilerContext, PassRunner
from tilewright.report.onnx_reference import exact_session
from tilewright.targets.cpu.machine import Processor, machine


class Quantised:
    """A model under construction whose tensors are quantised."""

    def __init__(self, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self.inputs: dict[str, tuple[int, tuple[int, ...]]] = {}
        self.count = 0

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        """The name of a constant."""
        name = self.fresh("c")
        self.constants[name] = np.asarray(value, dtype)
        return name

    def fresh(self, stem: str) -> str:
        """A name that is not taken."""
        self.count += 1
        return f"{stem}{self.count}"

    def input(self, *shape: int, dtype: Any = np.float32) -> str:
        """An input of the model."""
        name = self.fresh("x")
        self.inputs[name] = (helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
        return name

    def node(self, operator: str, *operands: str, domain: str = "", **attributes: Any) -> str:
        """The name of a node's result."""
        name = self.fresh("y")
        label = f"{operator}_{name}"
        self.nodes.append(
            helper.make_node(operator, operands, [name], label, domain=domain, **attributes)
        )
        return name

    def quantise(self, value: str, scale: Any, zero: Any, dtype: Any, **attributes: Any) -> str:
        """QuantizeLinear."""
        operands = value, self.constant(scale), self.constant(zero, dtype)
        return self.node("QuantizeLinear", *operands, **attributes)

    def dequantise(self, value: str, scale: Any, zero: Any, dtype: Any, **attributes: Any) -> str:
        """DequantizeLinear."""
        operands = value, self.constant(scale), self.constant(zero, dtype)
        return self.node("DequantizeLinear", *operands, **attributes)

    def through(self, value: str, scale: float, zero: int, dtype: Any) -> str:
        """QuantizeLinear, then DequantizeLinear."""
        quantised = self.quantise(value, scale, zero, dtype)
        return self.dequantise(quantised, scale, zero, dtype)

    def integers(self, dtype: Any, *shape: int) -> np.ndarray:
        """Random numbers over the whole type."""
        limits = np.iinfo(dtype)
        return self.random.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)

    def model(self, *outputs: str) -> onnx.ModelProto:
        """The model."""
        graph = helper.make_graph(
            self.nodes,
            "quantised",
            [helper.make_tensor_value_info(n, kind, s) for n, (kind, s) in self.inputs.items()],
            [helper.make_empty_tensor_value_info(name) for name in outputs],
            [numpy_helper.from_array(array, name) for name, array in self.constants.items()],
        )
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)

    def feeds(self, scale: float = 1.0) -> dict[str, np.ndarray]:
        """Random inputs."""
        found: dict[str, np.ndarray] = {}
        for name, (kind, shape) in self.inputs.items():
            dtype = helper.tensor_dtype_to_np_dtype(kind)
            if kind == TensorProto.FLOAT:
                found[name] = (self.random.standard_normal(shape) * scale).astype(np.float32)
            else:
                found[name] = self.integers(dtype, *shape)
        return found


def prepared(imported: Imported) -> tuple[ModuleOp, CompilerContext]:
    """The graph with the passes of the cpu target up to its kernels."""
    weights = imported.weights.subset(imported.weights)
    described = machine(Processor())
    context = CompilerContext(described, weights, {})
    module = imported.module.clone()
    PassRunner(context).run(module, prepare_pipeline(described))
    return module, context


def operations_in(module: ModuleOp) -> list[str]:
    """Names of what a prepared graph computes."""
    structure = {"weight", "kernel", "yield", "network", "output"}
    names = [op.name.removeprefix("graph.") for op in module.walk()]
    return [name for name in names if name not in (*structure, "builtin.module")]


def with_default_optimisation(
    model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """ONNX Runtime's outputs as it runs models unless told otherwise."""
    session = exact_session(model, optimised=True, threads=1)
    names = [value.name for value in model.graph.output]
    return dict(zip(names, session.run(names, dict(feeds)), strict=True))


def check_units(
    model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], *, units: int = 1, share: float = 0.02
) -> list[str]:
    """Compare integer outputs with ONNX Runtime's, with and without its optimisations.

    They differ by at most ``units``, in at most a ``share`` of the elements. Returns the names of
    the prepared graph's operations.
    """
    imported = import_onnx(model)
    module, context = prepared(imported)
    got = interpret(module, context.weights, dict(feeds))
    for want in (onnxruntime_of(model, feeds), with_default_optimisation(model, feeds)):
        for name, array in want.items():
            assert got[name].dtype == array.dtype, name
            assert got[name].shape == array.shape, name
            assert np.ptp(array.astype(np.int64)) > 2, "the model's output says nothing"
            difference = np.abs(got[name].astype(np.int64) - array.astype(np.int64))
            assert difference.max() <= units, (name, int(difference.max()))
            assert (difference > 0).mean() <= share, (name, float((difference > 0).mean()))
    return operations_in(module)


def none_of(names: Sequence[str], *unwanted: str) -> bool:
    """Whether none of the operations occurs."""
    return not set(names) & set(unwanted)
