"""Products of two computed matrices of bytes, of random shapes and zero points, against NumPy."""

import random

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright
from tilewright.frontends.onnx import import_onnx

KINDS = {"i": (TensorProto.INT8, np.int8), "u": (TensorProto.UINT8, np.uint8)}
PRODUCTS = 10


class Network:
    """A model of many products; inputs are fed, or constants where they are drawn so."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.feeds: dict[str, np.ndarray] = {}
        self.wanted: dict[str, np.ndarray] = {}

    def input(self, name: str, array: np.ndarray, fed: bool = True) -> str:
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        if fed:
            self.inputs.append(helper.make_tensor_value_info(name, kind, array.shape))
            self.feeds[name] = array
        else:
            self.constants.append(onnx.numpy_helper.from_array(array, name))
        return name

    def compile(self) -> tilewright.Executable:
        outputs = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in self.wanted.items()
        ]
        graph = helper.make_graph(self.nodes, "bytes", self.inputs, outputs, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        return tilewright.compile(import_onnx(model))


def random_products(seed: int) -> Network:
    draw, values, net = random.Random(seed), np.random.default_rng(seed), Network()
    for number in range(PRODUCTS):
        m, k, n = draw.choices((1, 3, 8, 17, 33, 64), k=3)
        batch = draw.choice(((), (2,), (2, 3)))
        left, right = (KINDS[draw.choice("iu")][1] for _ in range(2))
        a = values.integers(-128, 128, (*batch, m, k)).astype(left)
        b = values.integers(-128, 128, (*batch[draw.randint(0, len(batch)) :], k, n)).astype(right)
        at_a, at_b = (values.integers(-128, 128, draw.choice(((), (e,)))) for e in (m, n))
        at_a, at_b = np.asarray(at_a).astype(left), np.asarray(at_b).astype(right)
        x, w, y = (net.input(f"a{number}", a), net.input(f"b{number}", b), f"y{number}")
        fed = draw.random() < 0.5
        if number % 2:
            at_a, at_b = at_a.reshape(-1)[0], at_b.reshape(-1)[0]
            scales = np.float32(0.02), np.float32(0.01), np.float32(0.05 * k)
            names = [
                net.input(f"{name}{number}", np.asarray(scale), False)
                for name, scale in zip("stu", scales, strict=True)
            ]
            zeros = [
                net.input(f"{name}{number}", np.asarray(zero), fed)
                for name, zero in (("p", at_a), ("q", at_b), ("r", np.uint8(9)))
            ]
            inputs = [x, names[0], zeros[0], w, names[1], zeros[1], names[2], zeros[2]]
            net.nodes.append(helper.make_node("QLinearMatMul", inputs, [y]))
        else:
            kept = draw.choice(("", "a", "ab", "b"))
            inputs = [x, w, net.input(f"p{number}", at_a, fed) if "a" in kept else ""]
            inputs.append(net.input(f"q{number}", at_b, fed) if "b" in kept else "")
            at_a, at_b = (np.asarray(at) * (of in kept) for at, of in ((at_a, "a"), (at_b, "b")))
            net.nodes.append(helper.make_node("MatMulInteger", inputs, [y]))
        wide = np.asarray(at_a, np.int64)
        wide = wide[:, None] if wide.ndim else wide
        exact = (a - wide) @ (b - at_b.astype(np.int64))
        if number % 2:
            real = exact * (0.02 * 0.01) / (0.05 * k) + 9
            net.wanted[y] = np.clip(np.rint(real), 0, 255).astype(np.uint8)
        else:
            net.wanted[y] = exact.astype(np.int32)
    return net


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_random_products(seed: int) -> None:
    net = random_products(seed)
    outputs = net.compile().run(net.feeds)
    for name, array in net.wanted.items():
        # A quantised product may round a tie otherwise: one unit.
        allowed = int(array.dtype == np.uint8)
        apart = np.abs(outputs[name].astype(np.int64) - array.astype(np.int64))
        assert apart.max() <= allowed and np.mean(apart > 0) < 0.01, name


def test_zero_points_leave_the_product_to_bytes() -> None:
    """What follows a product in int32 does not make it one of int32, element by element."""
    net, values = Network(), np.random.default_rng(5)
    a, b = values.integers(0, 256, (2, 64, 64)).astype(np.uint8)
    zeros = [
        net.input("p", np.array(7, np.uint8), False),
        net.input("q", np.array(200, np.uint8), False),
    ]
    inputs = [net.input("a", a), net.input("b", b), *zeros]
    net.nodes.append(helper.make_node("MatMulInteger", inputs, ["y"]))
    net.wanted["y"] = ((a.astype(np.int64) - 7) @ (b.astype(np.int64) - 200)).astype(np.int32)
    executable = net.compile()
    np.testing.assert_array_equal(executable.run(net.feeds)["y"], net.wanted["y"])
    assert any(k.schedule.startswith("matmul_8") for k in executable.manifest.kernels)
