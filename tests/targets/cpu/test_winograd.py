"""Winograd's method in C: how far from float64 it is, against what error analysis allows."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from tests.slow import but_fast

import tilewright
from tilewright.ir.types import Array
from tilewright.numerics import reference
from tilewright.numerics.winograd import TRANSFORMS, transform_weights
from tilewright.targets.cpu import capabilities
from tilewright.targets.cpu.passes.choose_methods import ChooseMethods
from tilewright.targets.cpu.runner import CpuRunner

UNIT = 2.0**-24
"""Unit roundoff of float32."""

RELATIVE = {(2, 3): 1e-6, (4, 3): 2e-5, (6, 3): 4e-5, (2, 5): 2e-5}
"""Largest error of an output, of the largest output, for random data of up to 512 channels.

A sum of 9 * 512 products in float32 has about 1e-6. Tiles of 2 x 2 for windows of 3 x 3 have
transforms of entries 1 and stay there. Those of 6 x 6 inputs amplify: what is added for one output
is up to 40 times its size. Those of 8 x 8 inputs lose twice as much in the mean."""


def network(
    ci: int,
    co: int,
    height: int,
    width: int,
    pads: tuple[int, ...],
    taps: int = 3,
    group: int = 1,
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A convolution with bias, a residual and relu."""
    random = np.random.default_rng(ci + height)
    each = ci // group
    w = random.standard_normal((co, each, taps, taps)) * np.sqrt(2 / (taps * taps * each))
    w = w.astype(np.float32)
    b = (random.standard_normal(co) * 0.1).astype(np.float32)
    shape = (1, co, height + pads[0] + pads[2] - taps + 1, width + pads[1] + pads[3] - taps + 1)
    x = random.standard_normal((1, ci, height, width)).astype(np.float32)
    r = random.standard_normal(shape).astype(np.float32)
    nodes = [
        helper.make_node(
            "Conv", ["x", "w", "b"], ["c"], pads=pads, kernel_shape=(taps, taps), group=group
        ),
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
    taps = windows(data["x"], pads, data["w"].shape[2], 1, (oh, ow))
    group = taps.shape[0] // data["w"].shape[1]
    parts = zip(np.split(data["w"].astype(np.float64), group), np.split(taps, group), strict=True)
    sums = np.concatenate([np.tensordot(w, x, ((1, 2, 3), (0, 3, 4))) for w, x in parts])
    return np.maximum(sums + data["b"][:, None, None] + data["r"][0], 0)[None]


def allowed(data: dict[str, Array], pads: tuple[int, ...], tile: int, plain: bool) -> Array:
    """First-order bound of each output's error: every number's magnitude through the transforms.

    An output is a sum of terms, each rounded at most once by each operation on its way: the
    weights' rounding, two passes of each transform (at most 6 operations each), ci products and
    sums, bias and residual. ``plain`` weights have two passes of at most 4 sums each instead of
    one rounding, and factors that are rounded and multiplied with in each pass of the inputs.
    """
    _, co, oh, ow = data["r"].shape
    counts = -(-oh // tile), -(-ow // tile)
    m = TRANSFORMS[tile, data["w"].shape[2]]
    inner = m.inner
    b, g, a = np.abs(m.inputs), np.abs(m.weights), np.abs(m.outputs)
    d = b @ np.abs(windows(data["x"], pads, inner, tile, counts)) @ b.T
    u = np.abs(transform_weights(data["w"], tile)).astype(np.float64)
    if plain:
        u = g @ np.abs(data["w"]).astype(np.float64) @ g.T
    group = d.shape[0] // u.shape[1]
    products = np.concatenate(
        [
            w @ v.transpose(3, 4, 0, 1, 2).reshape(inner, inner, v.shape[0], -1)
            for w, v in zip(
                np.split(u.transpose(2, 3, 0, 1), group, 2), np.split(d, group), strict=True
            )
        ],
        2,
    )
    y = a @ products.transpose(2, 3, 0, 1) @ a.T
    y = y.reshape(co, *counts, tile, tile).transpose(0, 1, 3, 2, 4)
    y = y.reshape(co, counts[0] * tile, counts[1] * tile)[:, :oh, :ow]
    y = y + np.abs(data["b"])[:, None, None] + np.abs(data["r"][0])
    return (data["w"].shape[1] + 27 + 12 * plain) * UNIT * y[None]


CASES = [
    ("winograd_4_plain", (32, 16, 55, 27, (1, 1, 1, 1))),
    ("winograd_2", (24, 40, 27, 13, (0, 1, 1, 0))),
    ("winograd_4", (64, 64, 56, 56, (1, 1, 1, 1))),
    ("winograd_2_plain", (128, 96, 14, 14, (0, 0, 0, 0))),
    ("winograd_4", (256, 64, 13, 14, (1, 1, 1, 1))),
    ("winograd_4_plain", (512, 128, 14, 14, (1, 1, 1, 1))),
    ("winograd_2", (512, 64, 7, 7, (1, 1, 1, 1))),
    ("winograd_6", (64, 64, 56, 56, (1, 1, 1, 1))),
    ("winograd_6", (24, 40, 41, 27, (0, 1, 2, 0))),
    ("winograd_6_plain", (128, 96, 30, 26, (1, 1, 1, 1))),
    ("winograd_6", (512, 64, 18, 18, (1, 1, 1, 1))),
    ("winograd_2_5x5", (96, 64, 27, 27, (2, 2, 2, 2), 5, 2)),
    ("winograd_2_5x5_plain", (32, 64, 14, 14, (2, 1, 1, 2), 5)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("primitive", "case"), CASES, ids=str)
def test_errors_stay_within_what_analysis_allows(
    primitive: str, case: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    """Every form of the method, whatever the planner thinks of it."""
    plain, tile = primitive.endswith("_plain"), int(primitive.split("_")[1])
    ci, _, height, _, pads = case[:5]
    model, data = network(*case)
    path = f"{tmp_path}/model.onnx"
    onnx.save(model, path)
    expected = exact(data, pads)
    feed = {"x": data["x"], "r": data["r"]}
    scale = float(expected.max())

    def error_of(name: str) -> Array:
        monkeypatch.setattr(capabilities, "ChooseMethods", lambda: ChooseMethods(method=(name,)))
        package = tilewright.compile(path, target="cpu", exact_convolution=not name)
        chosen = [k.schedule.partition(" ")[0] for k in package.manifest.kernels if k.nodes]
        assert (name or "conv") in chosen
        assert isinstance(package.runner, CpuRunner)
        package.runner.workspace[:] = 255  # NaN: what nobody wrote must not be read
        found = package.runner.run(feed).outputs["y"]
        assert package.check(feed, {"y": found}).equal
        return np.abs(found.astype(np.float64) - expected)

    # Sums in one chain, as of processors that do not cut them: roundings add up like a random walk.
    least = float(error_of("").max()) / scale
    assert least < UNIT * np.sqrt(data["w"][0].size)
    error = error_of(primitive)
    assert (error <= allowed(data, pads, tile, plain)).all()
    assert float(error.max()) / scale < RELATIVE[tile, data["w"].shape[2]]
    if ci >= 64 and height >= 14 and tile > 2:
        assert float(error.max()) / scale > least, "the direct method is more exact"


FORMS: list[tuple[str, tuple[Any, ...]]] = [
    ("winograd_2", (24, 40, 11, 13, (0, 1, 1, 0))),
    ("winograd_2_plain", (16, 16, 9, 8, (1, 1, 1, 1))),
    ("winograd_4", (24, 32, 17, 14, (1, 1, 1, 1))),
    ("winograd_4_plain", (16, 24, 13, 15, (1, 0, 0, 1))),
    ("winograd_6", (16, 16, 19, 14, (1, 1, 1, 1))),
    ("winograd_6_plain", (24, 16, 13, 18, (0, 1, 2, 0))),
    ("winograd_2_5x5", (32, 32, 11, 9, (2, 2, 2, 2), 5, 2)),
    ("winograd_2_5x5_plain", (16, 16, 10, 9, (2, 1, 1, 2), 5)),
]


@pytest.mark.parametrize("form", but_fast(FORMS, [FORMS[2]]), ids=str)
def test_what_is_not_finite_stays_in_its_windows(
    form: tuple[str, tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    """Outputs are finite where a direct convolution's are, and infinite where those are."""
    primitive, case = form
    model, data = network(*case)
    data["w"][0, 1] = 0  # Nothing of a channel: infinity times 0 is not a number.
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(data["w"], "w"))
    for node in model.graph.node[1:]:  # Relu would hide minus infinity.
        node.op_type = {"Relu": "Neg"}.get(node.op_type, node.op_type)
    path = f"{tmp_path}/model.onnx"
    onnx.save(model, path)
    monkeypatch.setattr(capabilities, "ChooseMethods", lambda: ChooseMethods(method=(primitive,)))
    package = tilewright.compile(path, target="cpu")
    assert primitive in [k.schedule.partition(" ")[0] for k in package.manifest.kernels if k.nodes]
    width = data["x"].shape[3]
    group = data["x"].shape[1] // data["w"].shape[1]
    for places in (
        {(0, 1, 0, 0): np.inf},
        {(0, 3, 6, 7): np.nan, (0, 0, 5, width - 1): -np.inf},
        {(0, 2, 4, 4): 3e38, (0, 5, 8, 3): -3.3e38},
    ):
        x = data["x"].copy()
        for place, value in places.items():
            x[place] = value
        feed = {"x": x, "r": data["r"]}
        pads = case[4]
        with np.errstate(all="ignore"):
            direct = reference.conv2d(x, data["w"], pads=pads, group=group)
            want = -(direct + data["b"][:, None, None] + data["r"])
            finite = np.isfinite(want)
            found = package.run(feed)["y"]
            np.testing.assert_array_equal(np.isfinite(found), finite)
            np.testing.assert_array_equal(np.isnan(found), np.isnan(want))
            np.testing.assert_array_equal(found[~finite], want[~finite])
            assert 0 < (~finite).sum() < finite.size / 2 or max(places.values()) < np.inf
            # Large numbers that overflow nowhere leave the method's error, relative to them.
            largest = float(np.nanmax(np.where(np.isinf(x), 0, np.abs(x))))
            assert float(np.abs(found - want)[finite].max()) < max(largest * 1e-6, 1e-3)
            assert package.check(feed, {"y": found}).passed
