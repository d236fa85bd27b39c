"""Networks that come quantised: int8 on the cube, exactly the integers that NumPy gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.papers.ascend.reader.kernels import read_kernels
from numpy.typing import NDArray
from onnx import NodeProto, helper
from tests.slow import but_fast, dealt
from tests.targets.ascend.ascend_arrays import built, run
from tests.targets.ascend.moved_kernels import requantised
from tests.targets.ascend.operation_networks import compiled

from tilewright.errors import TilewrightError
from tilewright.planning.layout import Layout
from tilewright.runtime.executable import Executable
from tilewright.targets.ascend import isa, lower
from tilewright.targets.ascend.emit import kernel_text
from tilewright.targets.ascend.formats import image, matrices
from tilewright.targets.ascend.lowering.launches import Launches
from tilewright.targets.ascend.machine import ASCEND_910
from tilewright.targets.ascend.program import Buffer, Place, Program
from tilewright.targets.ascend.runner import AscendRunner

Array = NDArray[Any]


def quantised(x: Array, scale: np.float32, zero: int, kind: type[np.integer[Any]]) -> Array:
    """As QuantizeLinear has it: of two integers the even one, saturated."""
    limits = np.iinfo(kind)
    return np.clip(np.rint(np.float32(x) / scale) + zero, limits.min, limits.max).astype(np.int64)


def sums_as_halves(sums: Array, factors: Array) -> Array:
    """Sums times what a unit is worth, rounded to float32 and then to half precision."""
    return (sums.astype(np.float32) * factors).astype(np.float16)


TARGETS = ("ascend910", "ascend310")

PRODUCTS = [
    # rows before and within matrices, depth, columns, zero point, type
    ((5,), 64, 96, 0, np.int8),
    ((2, 33), 130, 77, 7, np.int8),
    ((1,), 33, 17, -128, np.int8),
    ((3, 1, 20), 96, 48, 128, np.uint8),
    ((257,), 1000, 40, 3, np.int8),
    ((1,), 70, 1, 5, np.int8),
    ((33,), 64, 1, 0, np.int8),
]


@pytest.mark.few(1)
@pytest.mark.parametrize(("target", "case"), dealt(TARGETS, PRODUCTS, PRODUCTS[1:3]))
def test_products(
    case: tuple[tuple[int, ...], int, int, int, type[Any]], target: str, tmp_path: Path
) -> None:
    rows, depth, columns, zero, kind = case
    random = np.random.default_rng(depth)
    x = random.normal(0, 2, (*rows, depth)).astype(np.float16).astype(np.float32)
    w = random.integers(-128, 128, (depth, columns), np.int8)
    # Inverses of powers of two are exact: 310 needs no division then.
    scale = np.float32(2.0**-4 if zero == 7 else 0.043)
    scales = random.uniform(0.002, 0.004, columns).astype(np.float32)
    bias = random.normal(0, 0.5, columns).astype(np.float32)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "sx", "zx"], ["xq"], name="quantise"),
        helper.make_node("DequantizeLinear", ["xq", "sx", "zx"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["wd"], axis=1),
        helper.make_node("MatMul", ["xd", "wd"], ["product"], name="product"),
        helper.make_node("Add", ["product", "b"], ["sum"]),
        helper.make_node("Relu", ["sum"], ["y"]),
    ]
    weights = {"w": w, "sx": scale, "sw": scales, "zx": kind(zero), "b": bias}
    network = compiled(
        *(tmp_path, nodes, {"x": x}, {"y": (np.float32, (*rows, columns))}),
        {**weights, "zw": np.zeros(columns, np.int8)},
        target=target,
    )
    assert any("product" in symbol for symbol in network.device)
    divides = target == "ascend910" or scale == 2.0**-4
    assert bool(network.host) == (not divides)
    factors = scale * scales
    units = quantised(x, scale, zero, kind) - zero
    added = np.rint(bias.astype(np.float64) / factors)
    expected = sums_as_halves(units @ w.astype(np.int64) + added.astype(np.int64), factors)
    np.testing.assert_array_equal(network.outputs({"x": x})["y"], np.maximum(expected, 0))


@pytest.mark.few(1)
@pytest.mark.parametrize("function", ["Sigmoid", "HardSwish", "Tanh"])
def test_functions_follow_sums(function: str, tmp_path: Path) -> None:
    """In the product's own kernel, on the halves that its sums become."""
    random = np.random.default_rng(11)
    x = random.normal(0, 2, (100, 64)).astype(np.float16).astype(np.float32)
    w = random.integers(-128, 128, (64, 20), np.int8)
    scale, factor = np.float32(2.0**-4), np.float32(2.0**-8)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "sx", "z"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "sx", "z"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "sw", "z"], ["wd"]),
        helper.make_node("MatMul", ["xd", "wd"], ["product"], name="product"),
        helper.make_node(function, ["product"], ["y"], name="function"),
    ]
    network = compiled(
        *(tmp_path, nodes, {"x": x}, {"y": (np.float32, (100, 20))}),
        {"w": w, "sx": scale, "sw": factor, "z": np.int8(0)},
    )
    assert not network.host
    own = [symbol for symbol in network.device if symbol.partition("_")[2] == "function"]
    assert not own, network.device
    sums = quantised(x, scale, 0, np.int8) @ w.astype(np.int64)
    halves = sums_as_halves(sums, np.asarray(scale * factor)).astype(np.float64)
    functions = {
        "Sigmoid": 1 / (1 + np.exp(-halves)),
        "HardSwish": halves * np.clip(halves / 6 + 0.5, 0, 1),
        "Tanh": np.tanh(halves),
    }
    outcome = network.outputs({"x": x}, (0, 77))["y"]
    # A function of halves is rounded once, to 11 bits, but for the 24 of its floats (recipes.py).
    np.testing.assert_allclose(outcome, functions[function], rtol=2.0**-11 * 1.01, atol=2.0**-23)


@dataclass(frozen=True)
class Window:
    """A convolution's attributes, as ONNX has them; padding above, left, below and right."""

    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    group: int = 1

    @classmethod
    def square(cls, stride: int, dilation: int, padding: int) -> Window:
        """The same down and across."""
        return cls((stride,) * 2, (dilation,) * 2, (padding,) * 4)


CONVOLUTIONS = [
    # images, channels, results, window, stride, dilation, padding, rows, columns, zero point, type
    (2, 3, 20, 3, 1, 1, 1, 9, 7, 0, np.int8),
    (1, 40, 33, 3, 2, 1, 1, 12, 12, 113, np.uint8),
    (1, 64, 32, 1, 1, 1, 0, 7, 7, -5, np.int8),
    (1, 32, 16, 3, 1, 2, 2, 10, 11, 9, np.int8),
    (2, 48, 17, 5, 3, 1, 2, 17, 13, 0, np.int8),
]


def convolved(x: Array, w: Array, window: Window) -> Array:
    """A convolution of integers, whose padding is 0."""
    top, left, bottom, right = window.pads
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    (down, across), (high, wide) = window.strides, window.dilations
    size = [
        (n - dilation * (k - 1) - 1) // stride + 1
        for n, k, stride, dilation in zip(
            x.shape[2:], w.shape[2:], window.strides, window.dilations, strict=True
        )
    ]
    out = np.zeros((x.shape[0], w.shape[0], *size), np.int64)
    results, channels = w.shape[0] // window.group, w.shape[1]
    for group, i, j in np.ndindex(window.group, *w.shape[2:]):
        own = slice(group * results, (group + 1) * results)
        rows = slice(i * high, i * high + (size[0] - 1) * down + 1, down)
        columns = slice(j * wide, j * wide + (size[1] - 1) * across + 1, across)
        image = x[:, group * channels : (group + 1) * channels, rows, columns]
        out[:, own] += np.einsum("nchw,oc->nohw", image, w[own, :, i, j])
    return out


@pytest.mark.few(1)
@pytest.mark.parametrize(("target", "case"), dealt(TARGETS, CONVOLUTIONS, CONVOLUTIONS[1:3]))
def test_convolutions(case: tuple[Any, ...], target: str, tmp_path: Path) -> None:
    check_square(case, target, tmp_path)


def test_sums_of_many_rows_are_dequantised_a_part_at_a_time(tmp_path: Path) -> None:
    """A single core has tiles of more positions than the vector unit has room for as floats."""
    case = (1, 3, 16, 3, 1, 1, 1, 40, 40, 3, np.int8)
    executable = check_square(case, "ascend910", tmp_path, {"cores": 1})
    (text,) = executable.directory.glob("program/cce/*window*conv.c")
    assert "for (int64_t r = 0; r < 2; r++)" in text.read_text()


def check_square(
    case: tuple[Any, ...], target: str, folder: Path, values: dict[str, int] | None = None
) -> Executable:
    """Check a case of ``CONVOLUTIONS``."""
    images, channels, results, size, stride, dilation, padding, rows, columns, zero, kind = case
    shapes = (images, channels, rows, columns), (results, channels, size, size)
    window = Window.square(stride, dilation, padding)
    return check_convolution(*shapes, window, kind(zero), target, folder, values)


GROUPED = [
    # image, weights, window, zero point
    ((1, 32, 9, 9), (32, 1, 3, 3), Window(pads=(1, 1, 1, 1), group=32), np.uint8(0)),
    (
        *((2, 144, 12, 11), (144, 1, 3, 3)),
        *(Window((2, 2), pads=(0, 1, 2, 1), group=144), np.int8(-7)),
    ),
    (
        *((1, 50, 13, 20), (50, 1, 5, 3)),
        *(Window((1, 3), (2, 1), (3, 0, 4, 2), group=50), np.uint8(131)),
    ),
    ((1, 7, 6, 6), (7, 1, 2, 2), Window((2, 1), group=7), np.int8(0)),
    ((1, 64, 10, 10), (64, 8, 3, 3), Window(pads=(1, 1, 1, 1), group=8), np.uint8(0)),
    (
        *((2, 96, 9, 14), (32, 48, 3, 3)),
        *(Window((2, 1), (1, 2), (1, 2, 0, 2), group=2), np.int8(9)),
    ),
    ((1, 30, 8, 8), (45, 2, 1, 3), Window(pads=(0, 1, 0, 1), group=15), np.uint8(77)),
    ((1, 128, 7, 7), (256, 32, 1, 1), Window(group=4), np.int8(-128)),
    # Two results for each channel.
    ((1, 40, 9, 9), (80, 1, 3, 3), Window(pads=(1, 1, 1, 1), group=40), np.uint8(3)),
]


@pytest.mark.few(1)
@pytest.mark.parametrize(("target", "case"), dealt(TARGETS, GROUPED, [GROUPED[1], GROUPED[4]]))
def test_convolutions_in_groups(case: tuple[Any, ...], target: str, tmp_path: Path) -> None:
    check_convolution(*case, target, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("cores", but_fast([1, 2], [1]))
def test_blocks_of_depthwise_channels_in_turn(cores: int, tmp_path: Path) -> None:
    """Channels of a large image come a few blocks at a time; the last block is half one."""
    window = Window(pads=(1, 1, 1, 1), group=144)
    case = (1, 144, 56, 56), (144, 1, 3, 3), window, np.uint8(9)
    executable = check_convolution(*case, "ascend910", tmp_path, {"cores": cores})
    (text,) = executable.directory.glob("program/cce/*window*conv.c")
    assert "for (int64_t c = 0;" in text.read_text()


def test_the_host_pads_with_the_zero_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A convolution that no kernel has, whose image is padded with what stands for 0."""

    def refused(launches: Launches, program: object) -> None:
        del program
        raise launches.refusal("it has no kernel")

    monkeypatch.setattr(lower, "product", refused)
    case = (1, 20, 9, 9), (8, 20, 3, 3), Window(pads=(1, 1, 1, 1)), np.uint8(3)
    check_convolution(*case, "ascend910", tmp_path, host=True)


def test_images_in_rows_are_quantised_on_all_cores(tmp_path: Path) -> None:
    """Their change of format and the quantising behind it."""
    case = (1, 3, 32, 32), (16, 3, 3, 3), Window(pads=(1, 1, 1, 1)), np.uint8(9)
    executable = check_convolution(*case, "ascend910", tmp_path)
    runner = executable.runner
    assert isinstance(runner, AscendRunner)
    own = [launch for launch in runner.launches if "_window" not in launch.function]
    assert len(own) >= 2
    assert all(launch.blocks >= 16 for launch in own)


def check_convolution(
    image: tuple[int, ...],
    weights: tuple[int, ...],
    window: Window,
    zero: np.integer[Any],
    target: str,
    folder: Path,
    values: dict[str, int] | None = None,
    *,
    host: bool = False,
) -> Executable:
    """Compile a quantised convolution, and compare its results with NumPy's integers; ``host`` says
    that no kernel of the cores has it."""
    random = np.random.default_rng(image[1])
    x = random.normal(0, 2, image).astype(np.float16)
    w = random.integers(-128, 128, weights, np.int8)
    results = weights[0]
    scale, scales = np.float32(0.037), random.uniform(0.001, 0.002, results).astype(np.float32)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "sx", "zx"], ["xq"], name="quantise"),
        helper.make_node("DequantizeLinear", ["xq", "sx", "zx"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["wd"], axis=0),
        helper.make_node("Conv", ["xd", "wd"], ["y"], name="window", **asdict(window)),
    ]
    units = quantised(x, scale, int(zero), type(zero)) - int(zero)
    sums = convolved(units, w.astype(np.int64), window)
    network = compiled(
        *(folder, nodes, {"x": x.astype(np.float32)}, {"y": (np.float32, sums.shape)}),
        {"w": w, "sx": scale, "sw": scales, "zx": zero, "zw": np.zeros(results, np.int8)},
        target=target,
        values=values,
    )
    assert any("window" in symbol for symbol in (network.host if host else network.device))
    factors = (scale * scales).reshape(1, -1, 1, 1)
    # The host leaves its floats as they are.
    expected = sums.astype(np.float32) * factors if host else sums_as_halves(sums, factors)
    outcome = network.outputs({"x": x.astype(np.float32)}, (0, 77))["y"]
    np.testing.assert_array_equal(outcome, expected)
    return network.executable


def test_products_of_two_activations_stay_in_half_precision(tmp_path: Path) -> None:
    """910 transposes blocks of 16-bit elements alone on the way to L0B."""
    random = np.random.default_rng(9)
    shapes = (2, 20, 64), (2, 64, 20)
    x, y = (random.normal(0, 1, shape).astype(np.float16).astype(np.float32) for shape in shapes)
    nodes: list[NodeProto] = []
    for name in ("x", "y"):
        nodes += [
            helper.make_node("QuantizeLinear", [name, "s", "z"], [f"{name}q"]),
            helper.make_node("DequantizeLinear", [f"{name}q", "s", "z"], [f"{name}d"]),
        ]
    nodes.append(helper.make_node("MatMul", ["xd", "yd"], ["p"], name="product"))
    network = compiled(
        *(tmp_path, nodes, {"x": x, "y": y}, {"p": (np.float32, (2, 20, 20))}),
        {"s": np.float32(2.0**-5), "z": np.int8(0)},
    )
    assert not network.host
    (note,) = (note for note in network.executable.manifest.notes if "product" in note)
    assert "computed in float16" in note
    scale = np.float32(2.0**-5)
    a, b = (quantised(of, scale, 0, np.int8) for of in (x, y))
    expected = (a @ b * float(scale) ** 2).astype(np.float16)
    np.testing.assert_array_equal(network.outputs({"x": x, "y": y})["p"], expected)


FORMS = [(48, 96), (3, 20, 40), (33, 17), (2, 20, 7, 9), (1, 64, 28, 28), (1, 3, 9, 9)]


def form(shape: Sequence[int], width: int) -> Layout:
    """Blocks of 16 or 32 columns or channels."""
    if len(shape) == 4:
        return Layout.parse(image(width), 4)
    return matrices(len(shape), element_bytes=width)


@pytest.mark.parametrize("cores", [1, 32])
@pytest.mark.parametrize("shape", but_fast(FORMS, FORMS[1:4:2]))
def test_blocks_of_halves_and_of_integers(shape: tuple[int, ...], cores: int) -> None:
    random = np.random.default_rng(len(shape))
    x = random.normal(0, 4, shape).astype(np.float16)
    halves, integers = form(shape, 2), form(shape, 1)
    layouts = str(halves), str(integers)
    there = requantised("quantise_linear", shape, 0.06, 3, layouts, cores)
    again = requantised("dequantise_linear", shape, 0.06, 3, layouts[::-1], cores)
    kernel, back = built(there), built(again)
    physical = integers.physical_shape(shape)
    size = int(np.prod(physical))
    for order in (0, 5, 77):
        given = np.concatenate([halves.pack(x).ravel(), np.zeros(16, np.float16)])
        found = np.full(size + 32, 99, np.int8)
        run(kernel, {"x": given, "out": found}, order, there.blocks)
        outcome = integers.unpack(found[:size].reshape(physical), shape)
        expected = quantised(x, np.float32(0.06), 3, np.int8)
        np.testing.assert_array_equal(outcome, expected)
        wide = np.full(given.size, np.nan, np.float16)
        run(back, {"x": found, "y": np.full(8, 0.06, np.float32), "out": wide}, order, again.blocks)
        plain = halves.unpack(wide[:-16].reshape(halves.physical_shape(shape)), shape)
        values = ((expected - 3).astype(np.float32) * np.float32(0.06)).astype(np.float16)
        np.testing.assert_array_equal(plain, values)


def test_the_cube_refuses_other_pairs_of_types() -> None:
    c, a, b = (
        Buffer(name, name, 0, 1024, element=kind)
        for name, kind in (("cc", "int32_t"), ("ca", "int8_t"), ("cb", "int8_t"))
    )
    product = isa.mad(Place(c), Place(a), Place(b), 16, 32, 16, 1, 1)
    text = kernel_text(Program("kernel", (), [product], (c, a, b), ""))
    assert read_kernels(text, ASCEND_910)
    text = text.replace("(__cc__ int32_t *)", "(__cc__ float *)")
    with pytest.raises(TilewrightError, match="no product of int8_t and int8_t into float"):
        read_kernels(text, ASCEND_910)


def test_a_quantised_network_of_images_runs_on_the_cores(tmp_path: Path) -> None:
    """Strides, pools, a depthwise convolution, a sum of two branches and a product at the end."""
    random = np.random.default_rng(5)
    nodes: list[NodeProto] = []
    weights: dict[str, Any] = {}

    def quantise(value: str, name: str, scale: float, zero: int) -> str:
        weights[f"{name}.s"], weights[f"{name}.z"] = np.float32(scale), np.int8(zero)
        ends = [f"{name}.s", f"{name}.z"]
        nodes.append(helper.make_node("QuantizeLinear", [value, *ends], [f"{name}.q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}.q", *ends], [f"{name}.d"]))
        return f"{name}.d"

    def constant(name: str, *shape: int) -> str:
        weights[f"{name}.w"] = random.integers(-127, 128, shape, np.int8)
        weights[f"{name}.ws"] = random.uniform(0.001, 0.004, shape[0]).astype(np.float32)
        weights[f"{name}.wz"] = np.zeros(shape[0], np.int8)
        parts = [f"{name}.w", f"{name}.ws", f"{name}.wz"]
        nodes.append(helper.make_node("DequantizeLinear", parts, [f"{name}.wd"], axis=0))
        return f"{name}.wd"

    def window(value: str, name: str, results: int, size: int, **options: Any) -> str:
        weight = constant(name, results, 32 // options.get("group", 1), size, size)
        pads = [size // 2] * 4
        nodes.append(helper.make_node("Conv", [value, weight], [name], pads=pads, **options))
        nodes.append(helper.make_node("Relu", [name], [f"{name}.r"]))
        return quantise(f"{name}.r", name, 0.03, -128)

    first = window(quantise("x", "in", 0.03, 0), "first", 32, 3, strides=[2, 2])
    nodes.append(helper.make_node("MaxPool", [first], ["pool"], kernel_shape=[2, 2]))
    branch = quantise("pool", "pooled", 0.03, -128)
    depth = window(window(branch, "point", 32, 1), "depthwise", 32, 3, group=32)
    nodes.append(helper.make_node("Add", [window(depth, "last", 32, 1), branch], ["sum"]))
    nodes.append(
        helper.make_node("GlobalAveragePool", [quantise("sum", "sums", 0.05, 1)], ["mean"])
    )
    nodes.append(helper.make_node("Flatten", ["mean"], ["flat"]))
    end = quantise("flat", "end", 0.02, -128)
    nodes.append(helper.make_node("Gemm", [end, constant("classes", 10, 32)], ["y"], transB=1))
    x = random.normal(0, 1, (1, 32, 18, 18)).astype(np.float32)
    network = compiled(tmp_path, nodes, {"x": x}, {"y": (np.float32, (1, 10))}, weights)
    assert not network.host
    network.outputs({"x": x}, (0, 77))


@pytest.mark.slow
def test_what_is_refused_for_one_reason_goes_to_the_host_at_once(tmp_path: Path) -> None:
    """310 has no division: seven kernels that quantise are refused in one emission, not seven."""
    random = np.random.default_rng(7)
    x = random.normal(0, 2, (33, 64)).astype(np.float16).astype(np.float32)
    weights: dict[str, Any] = {"s": np.float32(0.043), "z": np.int8(0), "sw": np.float32(2.0**-8)}
    nodes: list[NodeProto] = []
    for number in range(7):
        names = [f"{name}{number}" for name in ("x", "q", "d", "w", "wd")]
        weights[names[3]] = random.integers(-128, 128, (64, 64), np.int8)
        nodes += [
            helper.make_node("QuantizeLinear", [names[0], "s", "z"], [names[1]]),
            helper.make_node("DequantizeLinear", [names[1], "s", "z"], [names[2]]),
            helper.make_node("DequantizeLinear", [names[3], "sw", "z"], [names[4]]),
            helper.make_node("MatMul", [names[2], names[4]], [f"x{number + 1}"]),
        ]
    stations: list[str] = []
    network = compiled(
        *(tmp_path, nodes, {"x0": x}, {"x7": (np.float32, x.shape)}, weights),
        target="ascend310",
        progress=lambda station, *_: stations.append(station),
    )
    assert len(network.host) >= 7
    assert stations.count("emit") <= 3
    network.outputs({"x0": x}, orders=[0])
