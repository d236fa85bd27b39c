"""Winograd's method in C: how far from float64 it is, against what error analysis allows."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import tilewright
from tilewright.numerics.winograd import TRANSFORMS, transform_weights
from tilewright.targets.cpu.runner import CpuRunner
from tilewright.types import Array

UNIT = 2.0**-24
"""Unit roundoff of float32."""

RELATIVE = {2: 1e-6, 4: 2e-5}
"""Largest error of an output, of the largest output, for random data of up to 512 channels.

A sum of 9 * 512 products in float32 has about 1e-6. Tiles of 2 x 2 have transforms of entries 1 and
stay there. Those of 4 x 4 amplify: what is added for one output is up to 40 times its size."""


def network(
    ci: int, co: int, height: int, width: int, pads: tuple[int, ...], seed: int
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A 3x3 convolution with bias, a residual and relu."""
    random = np.random.default_rng(seed)
    w = (random.standard_normal((co, ci, 3, 3)) * np.sqrt(2 / (9 * ci))).astype(np.float32)
    b = (random.standard_normal(co) * 0.1).astype(np.float32)
    shape = (1, co, height + pads[0] + pads[2] - 2, width + pads[1] + pads[3] - 2)
    x = random.standard_normal((1, ci, height, width)).astype(np.float32)
    r = random.standard_normal(shape).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=pads, kernel_shape=(3, 3)),
        helper.make_node("Add", ["c", "r"], ["s"]),
        helper.make_node("Relu", ["s"], ["y"]),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "net",
        [value("x", 1, x.shape), value("r", 1, shape)],
        [value("y", 1, shape)],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(b, "b")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model, {"x": x, "r": r, "w": w, "b": b}


def windows(x: Array, pads: tuple[int, ...], size: int, step: int, counts: tuple[int, int]):
    """Windows of size x size, step apart: [c, rows, columns, size, size] in float64."""
    top, left, _, _ = pads
    room = [(c - 1) * step + size for c in counts]
    padded = np.zeros((x.shape[1], *(r + step for r in room)))
    height, width = x.shape[2:]
    fits = padded[:, top : top + height, left : left + width]
    fits[...] = x[0, :, : fits.shape[1], : fits.shape[2]]
    view = np.lib.stride_tricks.sliding_window_view(padded, (size, size), (1, 2))
    return view[:, : room[0] - size + 1 : step, : room[1] - size + 1 : step]


def exact(data: dict[str, Array], pads: tuple[int, ...]) -> Array:
    """In float64, directly."""
    _, _, oh, ow = data["r"].shape
    taps = windows(data["x"], pads, 3, 1, (oh, ow))
    sums = np.tensordot(data["w"].astype(np.float64), taps, ((1, 2, 3), (0, 3, 4)))
    return np.maximum(sums + data["b"][:, None, None] + data["r"][0], 0)[None]


def allowed(data: dict[str, Array], pads: tuple[int, ...], tile: int) -> Array:
    """First-order bound of each output's error: every number's magnitude through the transforms.

    An output is a sum of terms, each rounded at most once by each operation on its way: the
    weights' rounding, two passes of each transform (at most 6 operations each), ci products and
    sums, bias and residual.
    """
    _, co, oh, ow = data["r"].shape
    counts = -(-oh // tile), -(-ow // tile)
    m = TRANSFORMS[tile]
    b, a = np.abs(m.inputs), np.abs(m.outputs)
    d = b @ np.abs(windows(data["x"], pads, tile + 2, tile, counts)) @ b.T
    u = np.abs(transform_weights(data["w"], tile)).astype(np.float64)
    products = u.transpose(2, 3, 0, 1) @ d.transpose(3, 4, 0, 1, 2).reshape(
        tile + 2, tile + 2, d.shape[0], -1
    )
    y = a @ products.transpose(2, 3, 0, 1) @ a.T
    y = y.reshape(co, *counts, tile, tile).transpose(0, 1, 3, 2, 4)
    y = y.reshape(co, counts[0] * tile, counts[1] * tile)[:, :oh, :ow]
    y = y + np.abs(data["b"])[:, None, None] + np.abs(data["r"][0])
    return (data["x"].shape[1] + 27) * UNIT * y[None]


CASES = [
    (16, 16, 55, 27, (1, 1, 1, 1)),
    (24, 40, 27, 13, (0, 1, 1, 0)),
    (64, 64, 56, 56, (1, 1, 1, 1)),
    (128, 96, 14, 14, (0, 0, 0, 0)),
    (256, 64, 13, 14, (1, 1, 1, 1)),
    (512, 128, 14, 14, (1, 1, 1, 1)),
    (512, 256, 7, 7, (1, 1, 1, 1)),
]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_errors_stay_within_what_analysis_allows(
    case: tuple[int, int, int, int, tuple[int, ...]], tmp_path: object
) -> None:
    ci, co, height, width, pads = case
    model, data = network(ci, co, height, width, pads, seed=ci + height)
    path = f"{tmp_path}/model.onnx"
    onnx.save(model, path)
    expected = exact(data, pads)
    feed = {"x": data["x"], "r": data["r"]}
    scale = float(expected.max())
    errors: dict[bool, float] = {}
    for direct in (False, True):
        package = tilewright.compile(path, target="cpu", exact_convolution=direct)
        chosen = [k.schedule for k in package.manifest.kernels if k.nodes]
        tiles = [t for t in (2, 4) if any(f"winograd_{t}" in text for text in chosen)]
        assert not (direct and tiles)
        assert isinstance(package.runner, CpuRunner)
        package.runner.workspace[:] = 255  # NaN: what nobody wrote must not be read
        found = package.runner.run(feed).outputs["y"]
        error = np.abs(found.astype(np.float64) - expected)
        errors[direct] = float(error.max()) / scale
        for tile in tiles:
            assert (error <= allowed(data, pads, tile)).all()
            assert errors[direct] < RELATIVE[tile]
        assert package.check(feed, {"y": found}).passed
    assert errors[True] < 2e-6
    if ci >= 64 and height >= 14:
        assert errors[False] > errors[True], "the direct method is the more exact one"
