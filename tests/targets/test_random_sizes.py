"""Random networks of free dims: the network of the largest sizes is right for all smaller ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import NodeProto
from tests.frontends.onnx.onnx_models import onnxruntime_of
from tests.targets.free_sizes import ended, filled, floats, node, saved

from tilewright.graph.interpreter import interpret
from tilewright.ir.types import Array
from tilewright.runtime.output_sizes import cut_to_sizes

MOST = {"b": 3, "n": 9, "m": 7}

Shape = tuple[int | str, ...]


class Network:
    """Nodes on values whose dims are sizes and names."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        second: Shape = ("b", "m", 8) if seed % 2 else ("b", "n", 8)
        self.inputs: dict[str, Shape] = {"x": ("b", "n", 8), "z": second}
        self.values: dict[str, Shape] = dict(self.inputs)
        self.nodes: list[NodeProto] = []
        self.weights: dict[str, Array] = {}
        for _ in range(int(self.random.integers(6, 12))):
            self.extend()

    def constant(self, array: Array) -> str:
        name = f"c{len(self.weights)}"
        self.weights[name] = array
        return name

    def new(self, operator: str, inputs: list[str], shape: Shape, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(node(operator, inputs, [name], **attributes))
        self.values[name] = shape
        return name

    def extend(self) -> None:
        """One more operator on one of the last values."""
        value = str(self.random.choice(list(self.values)[-4:]))
        shape, rank = self.values[value], len(self.values[value])
        axis = int(self.random.integers(rank))
        match int(self.random.integers(9)):
            case 0:
                self.new(str(self.random.choice(["Tanh", "Neg", "Relu"])), [value], shape)
            case 1:
                order = self.random.permutation(rank).tolist()
                self.new("Transpose", [value], tuple(shape[n] for n in order), perm=order)
            case 2:
                self.new("Softmax", [value], shape, axis=axis)
            case 3 | 4:
                folded = sorted(self.random.permutation(rank)[: axis + 1].tolist())
                kinds = ["ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2"]
                axes = self.constant(np.array(folded))
                kept = tuple(1 if n in folded else size for n, size in enumerate(shape))
                part = self.new(str(self.random.choice(kinds)), [value, axes], kept, keepdims=1)
                self.new("Sub", [value, self.new("Tanh", [part], kept)], shape)
            case 5 if isinstance(shape[-1], int):
                weight = self.random.normal(0, 0.3, (shape[-1], 8)).astype(np.float32)
                self.new("MatMul", [value, self.constant(weight)], (*shape[:-1], 8))
            case 6:
                for other in [n for n, s in self.values.items() if s == shape and n != value]:
                    self.new("Mul", [value, other], shape)
                    break
            case 7 if rank == 3 and shape[-1] == 8:
                for other, size in list(self.values.items()):
                    if len(size) == 3 and (size[0], size[2]) == (shape[0], 8):
                        turned = self.new(
                            "Transpose", [other], (size[0], 8, size[1]), perm=[0, 2, 1]
                        )
                        score = self.new("MatMul", [value, turned], (*shape[:2], size[1]))
                        score = self.new("Softmax", [score], self.values[score], axis=-1)
                        self.new("MatMul", [score, other], (*shape[:2], 8))
                        break
            case 8 if rank == 3 and shape[-1] == 8 and shape[:2] == ("b", "n"):
                rows = self.constant(np.array([-1, 8]))
                flat = self.new("Reshape", [value, rows], ("b n", 8))
                weight = self.random.normal(0, 0.3, (8, 8)).astype(np.float32)
                flat = self.new("MatMul", [flat, self.constant(weight)], ("b n", 8))
                sizes = self.new("Shape", ["x"], ("shape",))
                self.new("Reshape", [flat, sizes], shape)
                for name in [name for name, size in self.values.items() if "b n" in size]:
                    del self.values[name]
                del self.values[sizes]
            case _:
                pass


@pytest.mark.parametrize("seed", range(24))
def test_what_lies_after_the_ends_never_shows(seed: int, tmp_path: Path) -> None:
    network = Network(seed)
    last = [*network.values][-1]
    nodes = [*network.nodes, node("Identity", [last], ["y"])]
    path = saved(tmp_path / "net.onnx", nodes, network.inputs, **network.weights)
    model = onnx.load(path)
    used = {dim for shape in network.inputs.values() for dim in shape if isinstance(dim, str)}
    largest = {name: most for name, most in MOST.items() if name in used}
    one, ends = ended(path, largest)
    make = floats(network.inputs)
    for _ in range(4):
        run = {name: int(network.random.integers(1, most + 1)) for name, most in largest.items()}
        inputs = make(run)
        given = filled(inputs, make(largest), run, network.random)
        with np.errstate(all="ignore"):
            found = cut_to_sizes(ends, interpret(one.module, one.weights, given))
        want = onnxruntime_of(model, inputs)["y"]
        assert found["y"].shape == want.shape
        np.testing.assert_allclose(found["y"], want, rtol=1e-3, atol=1e-4)
