"""Networks of layers of random shapes, each on inputs of its own: one program runs many."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

KINDS = ("conv", "product", "broadcast", "pool")


@dataclass
class RandomLayers:
    """Layers of one network; ``kinds`` says of which kinds."""

    seed: int
    count: int
    kinds: tuple[str, ...] = KINDS
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    weights: list[onnx.TensorProto] = field(default_factory=list[onnx.TensorProto])
    inputs: dict[str, NDArray[np.float32]] = field(default_factory=dict[str, NDArray[np.float32]])
    shapes: list[str] = field(default_factory=list[str])
    """What each layer is, to be read where one fails."""

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        for number in range(self.count):
            kind = self.kinds[number % len(self.kinds)]
            getattr(self, f"_{kind}")(f"{kind}{number}")

    def below(self, low: int, high: int) -> int:
        """A number from ``low`` to ``high``, small ones as often as large ones."""
        return round(np.exp(self.random.uniform(np.log(low), np.log(high))))

    def maybe(self, part: float = 0.5) -> bool:
        """True in part of the cases."""
        return bool(self.random.random() < part)

    def _input(self, *shape: int) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = self.random.normal(size=shape).astype(np.float32)
        return name

    def _weight(self, *shape: int) -> str:
        name = f"w{len(self.weights)}"
        value = self.random.normal(size=shape).astype(np.float32)
        self.weights.append(numpy_helper.from_array(value, name))
        return name

    def _node(self, kind: str, name: str, *inputs: str, **attributes: Any) -> None:
        """A layer; a part of them goes through another operation, which is fused."""
        result = f"{name}_sum" if self.maybe(0.3) else name
        own = helper.make_node(kind, list(inputs), [result], name=result, **attributes)
        self.nodes.append(own)
        if result != name:
            self.nodes.append(helper.make_node("Relu", [result], [name], name=name))
        shapes = {t.name: list(t.dims) for t in self.weights}
        shapes |= {n: list(x.shape) for n, x in self.inputs.items()}
        self.shapes.append(f"{name} {kind} {[shapes[i] for i in inputs]} {attributes}")

    def _conv(self, name: str) -> None:
        kernel = [int(n) for n in self.random.integers(1, 6, 2)]
        dilations = [int(n) for n in self.random.integers(1, 3, 2)]
        group = self.below(2, 6) if self.maybe(0.2) else 1
        ci, co = (self.below(1, 70 if group == 1 else 8) for _ in range(2))
        size = [d * (k - 1) + self.below(1, 20) for k, d in zip(kernel, dilations, strict=True)]
        inputs = [self._input(self.below(1, 3), ci * group, *size)]
        inputs.append(self._weight(co * group, ci, *kernel))
        if self.maybe():
            inputs.append(self._weight(co * group))
        self._node(
            *("Conv", name, *inputs),
            kernel_shape=kernel,
            dilations=dilations,
            strides=[int(n) for n in self.random.integers(1, 4, 2)],
            pads=[int(n) for n in self.random.integers(0, 3, 4)],
            group=group,
        )

    def _product(self, name: str) -> None:
        m, k, n = self.below(1, 70), self.below(1, 200), self.below(1, 70)
        if self.maybe(0.4):
            batch = [self.below(1, 4)] if self.maybe() else []
            self._node("MatMul", name, self._input(*batch, m, k), self._input(*batch, k, n))
            return
        turned = self.maybe()
        weight = self._weight(n, k) if turned else self._weight(k, n)
        more = [self._weight(n)] if self.maybe() else []
        self._node("Gemm", name, self._input(m, k), weight, *more, transB=int(turned))

    def _broadcast(self, name: str) -> None:
        rank = int(self.random.integers(1, 5))
        whole = [self.below(1, 24) for _ in range(rank)]
        operands: list[str] = []
        for number in range(2):
            own = [1 if self.maybe(0.35) else size for size in whole]
            own = own[int(self.random.integers(0, rank)) :] if self.maybe(0.3) else own
            operands.append(self._weight(*own) if number and self.maybe(0.3) else self._input(*own))
        kind = str(self.random.choice(["Add", "Sub", "Mul", "Max", "Min"]))
        self._node(kind, name, *(reversed(operands) if self.maybe() else operands))

    def _pool(self, name: str) -> None:
        kernel = [int(n) for n in self.random.integers(1, 6, 2)]
        size = [k + self.below(1, 20) for k in kernel]
        pads = [int(self.random.integers(0, k)) for k in (*kernel, *kernel)]
        kind = "AveragePool" if self.maybe() else "MaxPool"
        more = {"count_include_pad": int(self.maybe())} if kind == "AveragePool" else {}
        self._node(
            *(kind, name, self._input(self.below(1, 3), self.below(1, 70), *size)),
            kernel_shape=kernel,
            strides=[int(n) for n in self.random.integers(1, 4, 2)],
            pads=pads,
            **more,
        )

    def save(self, path: Path) -> Path:
        """Write the model; every layer's result is an output."""
        produced = [node.output[0] for node in self.nodes if not node.output[0].endswith("_sum")]
        graph = helper.make_graph(
            *(self.nodes, path.stem),
            [
                helper.make_tensor_value_info(name, TensorProto.FLOAT, value.shape)
                for name, value in self.inputs.items()
            ],
            [helper.make_empty_tensor_value_info(name) for name in produced],
            self.weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.save(onnx.shape_inference.infer_shapes(model), path)
        return path
