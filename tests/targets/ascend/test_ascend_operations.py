"""Single operations on the DaVinci targets against the interpreter and NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import helper
from tests.slow import but_fast, crossed
from tests.targets.ascend.operation_networks import compiled

from tilewright.numerics import reference


@pytest.mark.parametrize("shape", [(1,), (3, 5), (1, 3, 17, 19)])
def test_casts_at_the_edges(shape: tuple[int, ...], tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(0, 3, shape).astype(np.float32)
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    network = compiled(tmp_path, nodes, {"x": x}, {"y": (np.float32, shape)})
    assert not network.host
    expected = np.maximum(x, 0).astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(network.outputs({"x": x})["y"], expected)


GROUPS = [
    # images, channels, results, groups, window, stride, dilation, rows
    (2, 64, 96, 2, 3, 2, 1, 11),
    (1, 64, 32, 8, 3, 1, 2, 13),
    (1, 12, 20, 4, 1, 1, 1, 7),
    (1, 34, 17, 17, 3, 1, 1, 5),
    (1, 256, 256, 4, 3, 1, 1, 14),
]


@pytest.mark.parametrize("case", but_fast(GROUPS, GROUPS[:1]))
def test_convolutions_of_groups(case: tuple[int, ...], tmp_path: Path) -> None:
    images, channels, results, group, size, stride, dilation, rows = case
    random = np.random.default_rng(1)
    x = random.normal(0, 1, (images, channels, rows, rows + 2)).astype(np.float32)
    depth = channels // group
    scale = 1 / np.sqrt(depth * size * size)
    w = random.normal(0, scale, (results, depth, size, size)).astype(np.float32)
    b = random.normal(0, 1, results).astype(np.float32)
    pads = [dilation * (size // 2)] * 4
    windows: dict[str, Any] = {
        "strides": [stride] * 2,
        "dilations": [dilation] * 2,
        "pads": pads,
        "group": group,
    }
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["a"], **windows),
        helper.make_node("Relu", ["a"], ["y"]),
    ]
    halves = (a.astype(np.float16).astype(np.float32) for a in (x, w, b))
    image, weights, bias = halves
    expected = reference.conv2d(
        *(image, weights, (stride, stride), tuple(pads), (dilation, dilation), group)
    )
    expected = np.maximum(expected + bias[:, None, None], 0)
    network = compiled(
        tmp_path, nodes, {"x": x}, {"y": (np.float32, expected.shape)}, {"w": w, "b": b}
    )
    assert not network.host
    np.testing.assert_allclose(network.outputs({"x": x})["y"], expected, atol=6e-3)


LOOK_UPS = [((50, 48), 0, (2, 7)), ((3, 13, 17), 1, (5,)), ((4, 9), 1, (1,)), ((7,), 0, (4,))]


@pytest.mark.few(2)
@pytest.mark.parametrize(("case", "index"), crossed(LOOK_UPS, [np.int64, np.int32]))
def test_look_ups(
    case: tuple[tuple[int, ...], int, tuple[int, ...]], index: type[np.integer], tmp_path: Path
) -> None:
    """Rows of a constant by indices of either sign."""
    shape, axis, places = case
    random = np.random.default_rng(len(shape))
    table = random.normal(0, 1, shape).astype(np.float32)
    i = random.integers(-shape[axis], shape[axis], places).astype(index)
    nodes = [helper.make_node("Gather", ["x", "i"], ["y"], axis=axis)]
    expected = np.take(table, i, axis).astype(np.float16).astype(np.float32)
    network = compiled(tmp_path, nodes, {"i": i}, {"y": (np.float32, expected.shape)}, {"x": table})
    assert not network.host
    np.testing.assert_array_equal(network.outputs({"i": i})["y"], expected)


def test_comparisons_and_choices(tmp_path: Path) -> None:
    """A causal mask, and one that is computed: of NaN, infinities and negative zeros, too."""
    random = np.random.default_rng(1)
    x = random.integers(-3, 4, (2, 3, 17, 17)).astype(np.float32)
    x[0, 0, 0, :5] = [np.nan, np.inf, -np.inf, -0.0, 1]
    y = random.integers(-3, 4, (17,)).astype(np.float32)
    mask = np.tril(np.ones((17, 17), np.bool_))
    nodes = [
        helper.make_node("Greater", ["x", "y"], ["g"]),
        helper.make_node("Where", ["g", "x", "low"], ["a"]),
        helper.make_node("Where", ["m", "a", "low"], ["z"]),
    ]
    network = compiled(
        *(tmp_path, nodes, {"x": x, "y": y}),
        {"z": (np.float32, x.shape), "g": (np.bool_, x.shape)},
        {"m": mask, "low": np.float32(-1e4)},
    )
    assert not network.host
    outputs = network.outputs({"x": x, "y": y})
    np.testing.assert_array_equal(outputs["g"], x > y)
    chosen = np.where(mask & (x > y), x, np.float32(-1e4))
    np.testing.assert_array_equal(outputs["z"], chosen)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("kernel", "pads", "strides"),
    [((3, 3), (1, 1, 1, 1), (2, 2)), ((2, 2), (0,) * 4, (2, 2)), ((13, 15), (0,) * 4, (1, 1))],
)
def test_maxima_leave_nan_out(
    kernel: tuple[int, int], pads: tuple[int, ...], strides: tuple[int, int], tmp_path: Path
) -> None:
    """As the interpreter's: minus infinity where a window has no number."""
    random = np.random.default_rng(2)
    x = random.normal(0, 1, (2, 20, 13, 15)).astype(np.float16).astype(np.float32)
    x[random.random(x.shape) < 0.5] = np.nan
    expected = reference.max_pool2d(x, kernel, strides, pads)
    windows: dict[str, Any] = {"kernel_shape": kernel, "strides": strides, "pads": pads}
    nodes = [helper.make_node("MaxPool", ["x"], ["y"], **windows)]
    network = compiled(tmp_path, nodes, {"x": x}, {"y": (np.float32, expected.shape)})
    assert not network.host
    np.testing.assert_array_equal(network.outputs({"x": x})["y"], expected)


BROADCAST = [
    # Axes of an image that an operand has.
    *((False, True, False, False), (False, False, False, True), (True, True, False, False)),
    *((False, True, True, False), (False, False, True, True), (True, False, False, False)),
]


@pytest.mark.slow_cases(8)
@pytest.mark.few(3)
@pytest.mark.parametrize(("target", "axes"), crossed(["ascend910", "ascend310"], BROADCAST))
def test_operands_broadcast_along_any_axes_of_an_image(
    target: str, axes: tuple[bool, ...], tmp_path: Path
) -> None:
    """A factor of the input, and one of a convolution's result, which lies in blocks of channels:
    a constant, or computed, as a gate is."""
    random = np.random.default_rng(5)
    x = random.uniform(-1, 1, (2, 20, 5, 3)).astype(np.float32)
    shape = tuple(n if own else 1 for n, own in zip(x.shape, axes, strict=True))
    of_one = (1, *shape[1:])
    factor, gate = (random.uniform(0.5, 1.5, n).astype(np.float32) for n in (of_one, shape))
    w = random.normal(0, 0.2, (20, 20, 1, 1)).astype(np.float32)
    nodes = [
        helper.make_node("Mul", ["x", "factor"], ["a"]),
        helper.make_node("Conv", ["a", "w"], ["c"]),
        helper.make_node("PRelu", ["c", "factor"], ["p"]),
        helper.make_node("Abs", ["gate"], ["g"]),
        helper.make_node("Add", ["p", "g"], ["s"]),
        # It reads what pads the blocks, too.
        helper.make_node("Conv", ["s", "w"], ["y"]),
    ]
    network = compiled(
        *(tmp_path, nodes, {"x": x, "gate": gate}, {"y": (np.float32, x.shape)}),
        {"factor": factor, "w": w},
        target,
    )

    def convolved(image: NDArray[Any]) -> NDArray[Any]:
        return np.einsum("oi,nihw->nohw", w[:, :, 0, 0], image)

    summed = convolved(x * factor)
    expected = convolved(np.where(summed < 0, summed * factor, summed) + gate)
    found = network.outputs({"x": x, "gate": gate})["y"]
    np.testing.assert_allclose(found, expected, atol=0.01)


@pytest.mark.parametrize("target", ["ascend910", "ascend310"])
@pytest.mark.parametrize("channels", [2, 20])
def test_images_of_one_pixel_have_blocks_of_numbers(
    channels: int, target: str, tmp_path: Path
) -> None:
    """What pads a block of channels is 0, as a product with it is no number otherwise."""
    random = np.random.default_rng(7)
    x = random.normal(0, 1, (3, channels, 1, 1)).astype(np.float32)
    w = random.normal(0, 0.3, (5, channels, 1, 1)).astype(np.float32)
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"])]
    network = compiled(
        tmp_path, nodes, {"x": x}, {"y": (np.float32, (3, 5, 1, 1))}, {"w": w}, target
    )
    assert not network.host
    expected = x[:, :, 0, 0] @ w[:, :, 0, 0].T
    np.testing.assert_allclose(network.outputs({"x": x})["y"][:, :, 0, 0], expected, atol=0.01)


def test_parts_of_rows_are_read_within_their_tensor(tmp_path: Path) -> None:
    """Cores change the format of two pixels of each row of 32: the last ones end the tensor."""
    x = np.random.default_rng(8).normal(0, 1, (2, 16, 4, 2, 4)).astype(np.float32)
    nodes = [helper.make_node("GlobalMaxPool", ["x"], ["y"])]
    network = compiled(tmp_path, nodes, {"x": x}, {"y": (np.float32, (2, 16, 1, 1, 1))})
    expected = x.astype(np.float16).max((2, 3, 4), keepdims=True)
    np.testing.assert_array_equal(network.outputs({"x": x})["y"], expected)


def test_integers_of_few_channels_become_numbers_for_a_convolution_of_floats(
    tmp_path: Path,
) -> None:
    """Beside one of integers, which takes them as they are."""
    random = np.random.default_rng(9)
    x = random.normal(0, 1, (1, 1, 9, 12)).astype(np.float32)
    w = random.normal(0, 0.3, (3, 1, 3, 3)).astype(np.float32)
    scale, integers = np.float32(0.03), random.integers(-9, 9, (8, 1, 1, 1)).astype(np.int8)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("DequantizeLinear", ["integers", "s"], ["e"]),
        helper.make_node("Conv", ["d", "e"], ["products"]),
        helper.make_node("QuantizeLinear", ["products", "s", "z"], ["of_integers"]),
        helper.make_node("DequantizeLinear", ["of_integers", "s", "z"], ["v"]),
        helper.make_node("Conv", ["d", "w"], ["y"], pads=[1, 1, 1, 1]),
    ]
    network = compiled(
        *(tmp_path, nodes, {"x": x}),
        {"y": (np.float32, (1, 3, 9, 12)), "v": (np.float32, (1, 8, 9, 12))},
        {"s": scale, "z": np.int8(3), "integers": integers, "w": w},
    )
    held = (np.clip(np.rint(x / scale) + 3, -128, 127) - 3) * scale
    around = np.pad(held, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(around, (3, 3), (2, 3))
    expected = np.einsum("oiyx,nihwyx->nohw", w, windows)
    # A step of the scale where halves round to the other side.
    np.testing.assert_allclose(network.outputs({"x": x})["y"], expected, atol=0.05)


@pytest.mark.parametrize("target", ["ascend910", "ascend310"])
@pytest.mark.parametrize("size", [128, 192])
def test_steps_on_halves_behind_steps_on_floats_stay_in_their_tile(
    size: int, target: str, tmp_path: Path
) -> None:
    """A repeat of floats has 64 elements, one of halves 128, half of which nobody loaded."""
    x = np.random.default_rng(10).normal(0, 3, size).astype(np.float16).astype(np.float32)
    nodes = [
        helper.make_node("HardSwish", ["x"], ["a"]),
        helper.make_node("Clip", ["a", "low", "high"], ["y"]),
    ]
    bounds = {"low": np.float32(-0.25), "high": np.float32(2)}
    network = compiled(tmp_path, nodes, {"x": x}, {"y": (np.float32, x.shape)}, bounds, target)
    assert not network.host
    expected = np.clip(x * np.clip(x / 6 + 0.5, 0, 1), -0.25, 2)
    np.testing.assert_allclose(network.outputs({"x": x})["y"], expected, atol=2e-3)


@pytest.mark.slow
def test_padded_planes_larger_than_ub(tmp_path: Path) -> None:
    """ResNet's first pool: a plane is more than UB holds."""
    x = np.random.default_rng(3).normal(0, 1, (1, 17, 112, 112)).astype(np.float32)
    windows: dict[str, Any] = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    nodes = [helper.make_node("MaxPool", ["x"], ["y"], **windows)]
    network = compiled(tmp_path, nodes, {"x": x}, {"y": (np.float32, (1, 17, 56, 56))})
    assert not network.host
    network.outputs({"x": x}, orders=(0, 1))


def test_integers_of_two_activations_stay_on_the_host(tmp_path: Path) -> None:
    """Loads to the cube turn elements of 2 bytes alone: int8 products are exact, on the host."""
    random = np.random.default_rng(5)
    a = random.integers(-128, 128, (17, 65), np.int8)
    b = random.integers(-128, 128, (65, 33), np.int8)
    nodes = [helper.make_node("MatMulInteger", ["a", "b"], ["y"])]
    network = compiled(tmp_path, nodes, {"a": a, "b": b}, {"y": (np.int32, (17, 33))})
    assert network.host
    assert not network.device
    expected = a.astype(np.int32) @ b.astype(np.int32)
    np.testing.assert_array_equal(network.outputs({"a": a, "b": b})["y"], expected)
    assert "ascend910 computes on float16, not on int" in " ".join(
        network.executable.report(kernels=True).split()
    )


@pytest.mark.slow
def test_a_residual_beside_a_convolution_needs_no_more_events_than_there_are(
    tmp_path: Path,
) -> None:
    """With two slots of everything it would: it has fewer, and no kernel goes to the host. Two
    convolutions of stride 2 behind it read the pixels that they need where they lie."""
    random = np.random.default_rng(7)
    shapes = {"w0": (256, 16), "w1": (256, 16), "w2": (32, 256), "w3": (64, 256)}
    weights = {
        name: (random.normal(0, 1, (*shape, 1, 1)) / np.sqrt(shape[1])).astype(np.float32)
        for name, shape in shapes.items()
    }
    x = random.normal(0, 1, (1, 16, 56, 56)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"]),
        helper.make_node("Conv", ["x", "w1"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["sum"]),
        helper.make_node("Relu", ["sum"], ["r"]),
        helper.make_node("Conv", ["r", "w2"], ["y"], strides=[2, 2]),
        helper.make_node("Conv", ["r", "w3"], ["z"], strides=[2, 2]),
    ]
    outputs = {"y": (np.float32, (1, 32, 28, 28)), "z": (np.float32, (1, 64, 28, 28))}
    network = compiled(tmp_path, nodes, {"x": x}, outputs, weights)
    assert not network.host
    network.outputs({"x": x}, orders=(0, 12))
