"""Samples, regions and windows of images, against ONNX Runtime."""

import itertools

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.frontends.onnx.onnx_models import assert_close, model_of, noise, onnxruntime_of, single
from tilewright.frontends.onnx import import_onnx
from tilewright.graph.interpreter import interpret


def run(model, feeds):
    imported = import_onnx(model)
    return interpret(imported.module, imported.weights, feeds)


def against_runtime(model, feeds):
    got, want = run(model, feeds), onnxruntime_of(model, feeds)
    for name, array in want.items():
        if array.dtype == np.float32:
            assert np.ptp(array) > 0
            assert_close(got[name], array, name)
        else:
            np.testing.assert_array_equal(got[name], array)
    return got


MODES = {16: ("bilinear", "nearest", "bicubic"), 22: ("linear", "nearest", "cubic")}


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize(("opset", "mode"), [(o, m) for o, modes in MODES.items() for m in modes])
def test_grid_sample(opset, mode, corners, padding):
    attributes = {"mode": mode, "padding_mode": padding, "align_corners": corners}
    model = single("GridSample", [(2, 3, 5, 6), (2, 4, 7, 2)], opset, **attributes)
    grid = np.random.default_rng(5).uniform(-1.7, 1.7, (2, 4, 7, 2)).astype(np.float32)
    against_runtime(model, {"x0": noise(2, 3, 5, 6), "x1": grid})


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_grid_sample_of_volumes(mode, padding):
    model = single(
        "GridSample", [(1, 2, 3, 4, 5), (1, 2, 3, 4, 3)], 20, mode=mode, padding_mode=padding
    )
    grid = np.random.default_rng(6).uniform(-1.4, 1.4, (1, 2, 3, 4, 3)).astype(np.float32)
    against_runtime(model, {"x0": noise(1, 2, 3, 4, 5), "x1": grid})


def test_an_image_of_one_pixel_reflects_onto_itself():
    model = single(
        "GridSample", [(1, 1, 1, 3), (1, 2, 2, 2)], 16, padding_mode="reflection", align_corners=1
    )
    grid = np.random.default_rng(7).uniform(-2, 2, (1, 2, 2, 2)).astype(np.float32)
    assert np.isfinite(run(model, {"x0": noise(1, 1, 1, 3), "x1": grid})["y0"]).all()


BOXES = np.array([[0, 1, 6, 7], [2, 0, 9, 3], [-2, -1, 12, 9], [4, 4, 4.5, 4.2]], np.float32)


@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("sizes", [(1, 2, 3, 4), (2, 1, 4, 3), (1, 1, 2, 3, 4), (2, 2, 3, 2, 5)])
def test_affine_grid(sizes, corners):
    node = helper.make_node("AffineGrid", ["x", "sizes"], ["y"], align_corners=corners)
    maps = noise(sizes[0], len(sizes) - 2, len(sizes) - 1)
    model = model_of([node], {"x": maps.shape}, ["y"], {"sizes": np.array(sizes)}, opset=20)
    against_runtime(model, {"x": maps})


def test_affine_grid_of_one_pixel_begins_at_the_edge():
    """ONNX Runtime has the far edge."""
    node = helper.make_node("AffineGrid", ["x", "sizes"], ["y"], align_corners=1)
    model = model_of([node], {"x": (1, 2, 3)}, ["y"], {"sizes": np.array([1, 1, 1, 2])}, opset=20)
    found = run(model, {"x": np.eye(2, 3, dtype=np.float32)[None]})["y"]
    assert found.tolist() == [[[[-1, -1], [1, -1]]]]


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("transformation", ["half_pixel", "output_half_pixel"])
def test_roi_align(transformation, mode):
    model = single(
        "RoiAlign",
        [(2, 3, 9, 10), (4, 4), np.array([0, 1, 1, 0], np.int64)],
        16,
        mode=mode,
        coordinate_transformation_mode=transformation,
        output_height=3,
        output_width=2,
        sampling_ratio=2,
        spatial_scale=0.9,
    )
    against_runtime(model, {"x0": noise(2, 3, 9, 10), "x1": BOXES})


@pytest.mark.parametrize("transformation", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("cells", [(3, 2), (1, 1), (7, 7)])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_roi_align_with_as_many_samples_as_there_are_pixels(mode, transformation, cells):
    """Regions of any size: of no extent, turned around, and far beyond the image."""
    values = np.random.default_rng(cells)
    start = values.uniform(-4, 12, (12, 2))
    boxes = np.concatenate([start, start + values.uniform(-2, 14, (12, 2))], 1)
    boxes[0, 2:] = boxes[0, :2]
    boxes[1] = [-60, -50, 80, 90]
    boxes[2] = [1, 1, 2000, 1000]
    model = single(
        "RoiAlign",
        [(3, 4, 9, 10), (12, 4), values.integers(0, 3, 12)],
        16,
        mode=mode,
        coordinate_transformation_mode=transformation,
        output_height=cells[0],
        output_width=cells[1],
        spatial_scale=0.9,
    )
    against_runtime(model, {"x0": noise(3, 4, 9, 10), "x1": boxes.astype(np.float32)})


def test_max_roi_pool():
    rois = np.concatenate([np.array([[0], [1], [1], [0]], np.float32), BOXES.round()], 1)
    rois[2, 1:3] = 0
    model = single(
        "MaxRoiPool", [(2, 3, 9, 10), (4, 5)], 17, pooled_shape=[3, 2], spatial_scale=0.75
    )
    against_runtime(model, {"x0": noise(2, 3, 9, 10), "x1": rois})


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"pads": [1, 0, 2, 1], "strides": [2, 1]},
        {"dilations": [2, 1], "pads": [1, 1, 1, 1]},
    ],
)
def test_col2im_adds_up_what_a_convolution_with_ones_took(attributes):
    image, block = np.array([6, 7]), np.array([2, 3])
    spans = (block - 1) * attributes.get("dilations", [1, 1]) + 1
    pads = np.array(attributes.get("pads", [0] * 4)).reshape(2, 2).sum(0)
    windows = (image + pads - spans) // attributes.get("strides", [1, 1]) + 1
    shape = (2, 3 * 6, int(windows.prod()))
    model = single("Col2Im", [shape, image, block], 18, **attributes)
    against_runtime(model, {"x0": noise(*shape)})


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize(
    ("shape", "attributes"),
    [
        ((2, 3, 7, 8), {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}),
        ((1, 2, 9), {"kernel_shape": [3], "dilations": [2], "pads": [1, 1]}),
        ((1, 2, 4, 5, 6), {"kernel_shape": [2, 2, 3], "strides": [1, 2, 2]}),
    ],
)
def test_where_the_largest_of_a_pool_lies(shape, attributes, order):
    node = helper.make_node("MaxPool", ["x"], ["y", "at"], storage_order=order, **attributes)
    model = model_of([node], {"x": shape}, ["y", "at"], opset=12)
    model.graph.output[1].type.tensor_type.elem_type = TensorProto.INT64
    against_runtime(model, {"x": noise(*shape)})


@pytest.mark.parametrize("wide", [False, True])
def test_a_pool_and_its_way_back(wide):
    window = {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p", "at"], **window),
        helper.make_node("MaxUnpool", ["p", "at", *(["sizes"] if wide else [])], ["y"], **window),
    ]
    constants = {"sizes": np.array([1, 2, 7, 7])} if wide else {}
    x = noise(1, 2, 6, 6)
    (y,) = run(model_of(nodes, {"x": (1, 2, 6, 6)}, ["y"], constants), {"x": x}).values()
    want = np.zeros((1, 2, 7, 7) if wide else (1, 2, 6, 6), np.float32)
    for n, c, i, j in itertools.product([0], range(2), range(0, 6, 2), range(0, 6, 2)):
        part = x[n, c, i : i + 2, j : j + 2]
        a, b = np.unravel_index(part.argmax(), (2, 2))
        want[n, c, i + a, j + b] = part.max()
    np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize("groups", [(1, 1), (2, 1), (1, 2), (2, 4)])
def test_a_deformable_convolution(groups):
    """Without offsets it is a convolution; with whole ones it reads the shifted image."""
    group, parts = groups
    window = {"pads": [1, 0, 1, 1], "strides": [2, 1], "dilations": [1, 2]}
    x, w, bias = noise(2, 4, 7, 8), noise(6, 4 // group, 3, 2), noise(6)
    sizes, taps = (4, 7), 6
    mask = np.abs(noise(2, parts * taps, *sizes))
    for offset in (0, 1):
        offsets = np.zeros((2, parts, taps, 2, *sizes), np.float32)
        offsets[:, :, :, 0] = offset
        model = single(
            "DeformConv",
            [x.shape, w, (2, parts * taps * 2, *sizes), bias, mask.shape],
            19,
            group=group,
            offset_group=parts,
            kernel_shape=[3, 2],
            **window,
        )
        moved = np.zeros_like(x)
        moved[:, :, : 7 - offset] = x[:, :, offset:]
        feeds = {"x0": x, "x2": offsets.reshape(2, -1, *sizes)}
        got = run(model, feeds | {"x4": np.ones_like(mask)})["y0"]
        plain = single("Conv", [x.shape, w, bias], 19, group=group, **window)
        want = onnxruntime_of(plain, {"x0": moved})["y0"]
        # The row above the image is in the convolution's padding, but not in the deformed one's.
        first = 1 if offset else 0
        assert_close(got[:, :, first:], want[:, :, first:])
    half = run(model, feeds | {"x4": np.full_like(mask, 0.5)})["y0"]
    wide = bias.reshape(1, -1, 1, 1)
    assert_close(half - wide, (got - wide) / 2)
