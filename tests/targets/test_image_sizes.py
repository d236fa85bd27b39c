"""Images of any height and width: one network, and one package, is right for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import NodeProto
from tests.frontends.onnx.onnx_models import onnxruntime_of
from tests.targets.free_sizes import ended, filled, floats, node, random, saved

import tilewright
from tilewright.errors import TilewrightError
from tilewright.graph.interpreter import interpret
from tilewright.ir.types import Array
from tilewright.runtime.output_sizes import cut_to_sizes

MOST = {"n": 3, "h": 39, "w": 46}
LEAST = {"n": 1, "h": 30, "w": 30}
MACHINES = Path(__file__).parents[2] / "examples" / "machines"
NEAREST = {
    "mode": "nearest",
    "coordinate_transformation_mode": "asymmetric",
    "nearest_mode": "floor",
}


class Images:
    """Random nodes on images of four channels."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[NodeProto] = []
        self.weights: dict[str, Array] = {}
        self.value, self.halved = "x", 0
        for _ in range(int(self.random.integers(3, 7))):
            self.extend()

    def pick(self, *values: int) -> int:
        return int(self.random.choice(values))

    def constant(self, array: Array) -> str:
        name = f"c{len(self.weights)}"
        self.weights[name] = array.astype(np.float32)
        return name

    def new(self, operator: str, inputs: Sequence[str], **attributes: object) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(node(operator, inputs, [name], **attributes))
        return name

    def windows(self, most: int) -> dict[str, list[int]]:
        """Strides, and pads that are less than a window of ``most`` taps."""
        pads = [self.pick(*range(most)) for _ in range(4)]
        halved, self.halved = self.halved, self.halved + 1
        return {
            "strides": [self.pick(1, 2), self.pick(1, 2)] if halved < 2 else [1, 1],
            "pads": pads,
        }

    def extend(self) -> None:
        """One more operator."""
        x, taps = self.value, self.pick(1, 2, 3)
        match int(self.random.integers(9)):
            case 0 | 1:
                dilation = self.pick(1, 2) if taps > 1 else 1
                weight = self.constant(self.random.normal(0, 0.3, (4, 4, taps, taps)))
                ways = self.windows(taps)
                x = self.new("Conv", [x, weight], dilations=[dilation] * 2, **ways)
            case 2:
                weight = self.constant(self.random.normal(0, 0.5, (4, 1, 3, 3)))
                x = self.new("Conv", [x, weight], group=4, **self.windows(3))
            case 3:
                x = self.new("MaxPool", [x], kernel_shape=[taps] * 2, **self.windows(taps))
            case 4:
                include = self.pick(0, 1)
                ways = self.windows(taps)
                x = self.new(
                    "AveragePool", [x], kernel_shape=[taps] * 2, count_include_pad=include, **ways
                )
            case 5:
                weight = self.constant(self.random.normal(0, 0.3, (4, 4, 2, 2)))
                x = self.new("ConvTranspose", [x, weight], strides=[2, 2])
            case 6:
                x = self.new("Resize", [x, "", self.constant(np.array([1, 1, 2, 1]))], **NEAREST)
            case 7:
                mean = self.new("GlobalAveragePool", [x])
                most = self.new("GlobalMaxPool", [x])
                x = self.new("Sub", [self.new("Add", [x, mean]), most])
            case _:
                other = self.new("Neg", [self.new("Relu", [x])])
                x = self.new("Concat", [x, other], axis=1)
                weight = self.constant(self.random.normal(0, 0.3, (4, 8, 1, 1)))
                x = self.new("Conv", [x, weight])
        self.value = x


@pytest.mark.few(10)
@pytest.mark.parametrize("seed", range(24))
def test_what_lies_after_the_ends_never_shows(seed: int, tmp_path: Path) -> None:
    network = Images(seed)
    shapes = {"x": ["n", 4, "h", "w"]}
    nodes = [*network.nodes, node("Identity", [network.value], ["y"])]
    path = saved(tmp_path / "net.onnx", nodes, shapes, **network.weights)
    model, make = onnx.load(path), floats(shapes)
    one, ends = ended(path, MOST, LEAST, rows=9)
    for _ in range(4):
        run = {name: int(network.random.integers(LEAST[name], MOST[name] + 1)) for name in MOST}
        inputs = make(run)
        given = filled(inputs, make(MOST), run, network.random)
        with np.errstate(all="ignore"):
            found = cut_to_sizes(ends, interpret(one.module, one.weights, given))
        want = onnxruntime_of(model, inputs)["y"]
        assert found["y"].shape == want.shape
        np.testing.assert_allclose(found["y"], want, rtol=1e-3, atol=1e-4)


def residual(path: Path) -> Path:
    """The beginning of a residual network: two ways to rows by 2, and a mean over all pixels."""
    nodes = [
        node("Conv", ["x", "w0"], ["a"], pads=[3] * 4, strides=[2, 2]),
        node("MaxPool", ["a"], ["b"], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
        node("Conv", ["b", "w1"], ["c"], strides=[2, 2], pads=[1] * 4),
        node("Conv", ["b", "w2"], ["d"], strides=[2, 2]),
        node("Add", ["c", "d"], ["e"]),
        node("Relu", ["e"], ["f"]),
        node("GlobalAveragePool", ["f"], ["g"]),
        node("Flatten", ["g"], ["i"]),
        node("Gemm", ["i", "w3"], ["y"]),
    ]
    weights = {"w0": random(4, 3, 7, 7), "w1": random(6, 4, 3, 3), "w2": random(6, 4, 1, 1)}
    return saved(path, nodes, {"x": [1, 3, "h", "w"]}, **weights, w3=random(6, 5))


def skipping(path: Path) -> Path:
    """A U-Net of two levels, right for images of which both sides are multiples of 4."""
    nodes = [
        node("Conv", ["x", "w0"], ["a"], pads=[1] * 4),
        node("MaxPool", ["a"], ["b"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["b", "w1"], ["c"], pads=[1] * 4),
        node("MaxPool", ["c"], ["d"], kernel_shape=[2, 2], strides=[2, 2]),
        node("ConvTranspose", ["d", "w2"], ["e"], strides=[2, 2]),
        node("Concat", ["e", "c"], ["f"], axis=1),
        node("Conv", ["f", "w3"], ["g"], pads=[1] * 4),
        node("Resize", ["g", "", "by"], ["k"], **NEAREST),
        node("Concat", ["k", "a"], ["l"], axis=1),
        node("Conv", ["l", "w4"], ["y"], pads=[1] * 4),
    ]
    weights = {"w0": random(4, 3, 3, 3), "w1": random(6, 4, 3, 3), "w2": random(6, 6, 2, 2)}
    weights |= {"w3": random(4, 12, 3, 3), "w4": random(2, 8, 3, 3)}
    by = np.float32([1, 1, 2, 2])
    return saved(path, nodes, {"x": ["n", 3, "h", "w"]}, **weights, by=by)


SLOW = [
    pytest.param(name, marks=pytest.mark.slow)
    for name in ("sunway", "zu2", "ascend910", str(MACHINES / "small-npu.toml"))
]


@pytest.mark.parametrize("target", ["cpu", *SLOW])
@pytest.mark.parametrize("made", [residual, skipping])
def test_a_package_for_every_image(made, target: str, tmp_path: Path) -> None:
    path = made(tmp_path / "net.onnx")
    model, make = onnx.load(path), floats({"x": model_shape(path)})
    bounds = {"h": "8..32:+4", "w": "8..24:+4"}
    if made is skipping:
        bounds["n"] = "1..2"
    sizes = [(32, 24, 2), (8, 8, 1), (12, 24, 2), (28, 16, 1)]
    samples = [make(dict(zip("hwn", size, strict=True))) for size in sizes]
    package = tilewright.compile(
        path, target, shapes=bounds, directory=tmp_path / "package",
        calibration=None if target in ("cpu", "sunway", "ascend910") else samples[:1],
    )  # fmt: skip
    assert not package.manifest.notes and 1 < len(package.manifest.open_model.plans) <= 3
    for inputs in samples:
        outputs, want = package.run(inputs), onnxruntime_of(model, inputs)["y"]
        assert outputs["y"].shape == want.shape
        error = np.abs(outputs["y"] - want).max() / np.abs(want).max()
        assert error < {"cpu": 1e-5, "sunway": 1e-5, "zu2": 0.1}.get(target, 2e-2)


def test_a_size_that_is_no_multiple(tmp_path: Path) -> None:
    path = skipping(tmp_path / "net.onnx")
    shapes = {"n": 1, "h": "8..32:+4", "w": 8}
    package = tilewright.compile(path, shapes=shapes, directory=tmp_path / "package")
    with pytest.raises(TilewrightError, match=r"size 10 is outside 8\.\.32:\+4"):
        package.run({"x": np.zeros((1, 3, 10, 8), np.float32)})


def test_two_ways_that_differ_at_odd_sizes_have_no_plans(tmp_path: Path) -> None:
    """Halved and doubled, 9 rows are 8: without a step the skip joins sizes that may differ."""
    path = skipping(tmp_path / "net.onnx")
    shapes = {"n": 1, "h": "8..32", "w": 8}
    package = tilewright.compile(path, shapes=shapes, directory=tmp_path / "package")
    assert not package.manifest.open_model.plans
    assert "(Concat)" in package.manifest.notes[0]


def model_shape(path: Path) -> list[int | str]:
    dims = onnx.load(path).graph.input[0].type.tensor_type.shape.dim
    return [dim.dim_param or dim.dim_value for dim in dims]


def integers(path: Path) -> Path:
    """Quantised convolutions, of stated scales and of one that each run finds."""
    generator = np.random.default_rng(0)
    nodes = [
        node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        node(
            "QLinearConv", ["xq", "xs", "xz", "w0", "ws", "wz", "ys", "yz"], ["a"],
            pads=[1] * 4, strides=[2, 2],
        ),
        node(
            "QLinearConv", ["a", "ys", "yz", "w1", "ws", "wz", "ys", "yz"], ["b"],
            pads=[1] * 4, group=4,
        ),
        node("DequantizeLinear", ["b", "ys", "yz"], ["c"]),
        node("MaxPool", ["c"], ["d"], kernel_shape=[3, 3], pads=[1] * 4),
        node("DynamicQuantizeLinear", ["d"], ["e", "es", "ez"]),
        node("ConvInteger", ["e", "w2", "ez"], ["f"], pads=[1] * 4),
        node("Cast", ["f"], ["g"], to=onnx.TensorProto.FLOAT),
        node("Mul", ["g", "es"], ["y"]),
    ]  # fmt: skip
    shapes = {"w0": (4, 3, 3, 3), "w1": (4, 1, 3, 3), "w2": (2, 4, 3, 3)}
    weights: dict[str, Array] = {
        name: generator.integers(-50, 50, shape).astype(np.int8) for name, shape in shapes.items()
    }
    weights |= {"xs": np.float32(0.02), "ws": np.float32(0.01), "ys": np.float32(0.05)}
    weights |= {"xz": np.uint8(120), "wz": np.int8(0), "yz": np.uint8(90)}
    weights = {name: np.asarray(array) for name, array in weights.items()}
    return saved(path, nodes, {"x": [1, 3, "h", "w"]}, **weights)


def test_integers_stay_integers(tmp_path: Path) -> None:
    """What is masked is their zero point, so that sums are those of ONNX Runtime, bit for bit."""
    path = integers(tmp_path / "net.onnx")
    model, make = onnx.load(path), floats({"x": [1, 3, "h", "w"]})
    package = tilewright.compile(
        path, shapes={"h": "8..33", "w": "8..30"}, directory=tmp_path / "package"
    )
    assert len(package.manifest.open_model.plans) == 3
    for size in ((33, 30), (8, 8), (32, 9), (21, 17), (30, 29)):
        inputs = make(dict(zip("hw", size, strict=True)))
        np.testing.assert_array_equal(
            package.run(inputs)["y"], onnxruntime_of(model, inputs)["y"], err_msg=str(size)
        )
