"""Every layer against plain loops written from Caffe's definitions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.frontends.caffe import caffe_reference as reference
from tests.frontends.caffe.caffe_models import assert_close, input_of, layer, load, noise, run
from tilewright.errors import TilewrightError


def one(folder, kind, settings, x, blobs=(), others=()):
    """The result of one layer for its bottoms."""
    names = ["x", *(f"x{index}" for index in range(1, len(others) + 1))]
    arrays = dict(zip(names, (x, *others), strict=True))
    text = "".join(input_of(name, array.shape) for name, array in arrays.items())
    imported = load(folder, text + layer(kind, settings, names), {"it": blobs} if blobs else None)
    return run(imported, **arrays)["y"]


CONVOLUTIONS = [
    # text, stride, pad, dilation, kernel, group, channels, outputs, image
    ("kernel_size: 3", (1, 1), (0, 0), (1, 1), (3, 3), 1, 3, 4, (7, 6)),
    ("kernel_size: 3 pad: 1 stride: 2", (2, 2), (1, 1), (1, 1), (3, 3), 1, 2, 5, (8, 7)),
    ("kernel_h: 1 kernel_w: 3 pad_h: 0 pad_w: 2", (1, 1), (0, 2), (1, 1), (1, 3), 1, 2, 3, (4, 5)),
    ("kernel_size: 2 kernel_size: 3 stride_h: 1 stride_w: 2", (1, 2), (0, 0), (1, 1), (2, 3), 1, 1,
     2, (5, 8)),
    ("kernel_size: 3 dilation: 2 pad: 2 group: 2", (1, 1), (2, 2), (2, 2), (3, 3), 2, 4, 6, (6, 5)),
    ("kernel_size: 3 dilation: 1 dilation: 2 pad_w: 1 group: 4", (1, 1), (0, 1), (1, 2), (3, 3), 4,
     4, 8, (5, 6)),
]  # fmt: skip


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=lambda case: case[0])
def test_convolution(tmp_path, case, bias):
    text, stride, pad, dilation, kernel, group, channels, outputs, image = case
    x = noise(2, channels, *image)
    w = noise(outputs, channels // group, *kernel, seed=1)
    b = noise(outputs, seed=2) if bias else None
    settings = f"convolution_param {{ num_output: {outputs} {text} bias_term: {str(bias).lower()}"
    settings += f" group: {group} }}" if "group" not in text else " }"
    got = one(tmp_path, "Convolution", settings, x, [w, b] if bias else [w])
    assert_close(got, reference.conv(x, w, b, stride, pad, dilation, group))


@pytest.mark.parametrize(
    ("text", "stride", "pad", "dilation", "kernel", "group"),
    [
        ("kernel_size: 3", (1, 1), (0, 0), (1, 1), (3, 3), 1),
        ("kernel_size: 4 stride: 2 pad: 1", (2, 2), (1, 1), (1, 1), (4, 4), 1),
        ("kernel_size: 2 stride: 3 group: 2", (3, 3), (0, 0), (1, 1), (2, 2), 2),
        ("kernel_h: 1 kernel_w: 3 stride: 2 pad_h: 1 pad_w: 0 dilation: 2", (2, 2), (1, 0), (2, 2),
         (1, 3), 1),
        ("kernel_size: 3 stride_h: 1 stride_w: 2 group: 4", (1, 2), (0, 0), (1, 1), (3, 3), 4),
        ("kernel_size: 8 stride: 4 pad: 2 group: 4", (4, 4), (2, 2), (1, 1), (8, 8), 4),
        ("kernel_size: 5 stride: 9 pad: 1", (9, 9), (1, 1), (1, 1), (5, 5), 1),
    ],
)  # fmt: skip
def test_deconvolution(tmp_path, text, stride, pad, dilation, kernel, group):
    x, w, b = noise(2, 4, 5, 3), noise(4, 8 // group, *kernel, seed=1), noise(8, seed=2)
    settings = f"convolution_param {{ num_output: 8 {text} }}"
    got = one(tmp_path, "Deconvolution", settings, x, [w, b])
    assert_close(got, reference.deconv(x, w, b, stride, pad, dilation, group))


def test_convolution_of_two_bottoms_shares_its_weights(tmp_path):
    x, z, w = noise(1, 2, 5, 5), noise(3, 2, 4, 6, seed=1), noise(3, 2, 3, 3, seed=2)
    text = input_of("x", x.shape) + input_of("z", z.shape)
    settings = "convolution_param { num_output: 3 kernel_size: 3 bias_term: false }"
    text += layer("Convolution", settings, ["x", "z"], ["y", "u"])
    got = run(load(tmp_path, text, {"it": [w]}), x=x, z=z)
    assert_close(got["y"], reference.conv(x, w))
    assert_close(got["u"], reference.conv(z, w))


# Every combination of these, where Caffe computes it at all; sizes that divide and do not.
POOLS = [
    case
    for case in itertools.product(
        ("MAX", "AVE"), (1, 2, 3, 4), (1, 2, 3), (0, 1, 2), (True, False), ((7, 6), (5, 8))
    )
    if case[3] < case[1] and not (case[3] == 0 and case[2] > case[1])
]


def test_pooling(tmp_path):
    for number, (method, kernel, stride, pad, ceil, image) in enumerate(POOLS):
        x = noise(1, 2, *image, seed=number)
        mode = "" if ceil and number % 2 else f"round_mode: {'CEIL' if ceil else 'FLOOR'}"
        text = f"pool: {method} kernel_size: {kernel} stride: {stride} pad: {pad} {mode}"
        got = one(tmp_path, "Pooling", f"pooling_param {{ {text} }}", x)
        want = reference.pool(x, method, (kernel, kernel), (stride, stride), (pad, pad), ceil)
        assert_close(got, want, f"{text} of {image}")
    assert number > 100


@pytest.mark.parametrize("method", ["MAX", "AVE"])
@pytest.mark.parametrize(
    ("text", "kernel", "stride", "pad"),
    [
        ("kernel_h: 2 kernel_w: 3 stride: 2", (2, 3), (2, 2), (0, 0)),
        ("kernel_size: 3 stride_h: 1 stride_w: 2 pad_h: 0 pad_w: 1", (3, 3), (1, 2), (0, 1)),
        ("kernel_size: 3 stride: 2 pad_h: 2 pad_w: 1", (3, 3), (2, 2), (2, 1)),
        # A last window that starts behind the image is left out if either axis has padding.
        ("kernel_size: 2 stride: 3 pad_h: 1 pad_w: 0", (2, 2), (3, 3), (1, 0)),
        ("kernel_size: 9 stride: 4", (9, 9), (4, 4), (0, 0)),  # larger than the image
        ("global_pooling: true", (7, 6), (1, 1), (0, 0)),
    ],
)
def test_pooling_spellings(tmp_path, method, text, kernel, stride, pad):
    x = noise(2, 3, 7, 6)
    got = one(tmp_path, "Pooling", f"pooling_param {{ pool: {method} {text} }}", x)
    assert_close(got, reference.pool(x, method, kernel, stride, pad))


def test_pooling_divides_by_the_window_cut_to_image_and_padding(tmp_path):
    """By hand: 4 wide, kernel 3, stride 2, pad 1 gives windows of 3, 3 and 2 elements."""
    x = np.array([[[[1, 2, 4, 8]]]], np.float32)
    text = "pool: AVE kernel_h: 1 kernel_w: 3 stride_h: 1 stride_w: 2 pad_h: 0 pad_w: 1"
    got = one(tmp_path, "Pooling", f"pooling_param {{ {text} }}", x)
    np.testing.assert_allclose(got, [[[[3 / 3, 14 / 3, 8 / 2]]]], rtol=1e-6)


def test_pooling_refuses_windows_outside_the_image(tmp_path):
    with pytest.raises(TilewrightError, match="leaves the image"):
        one(tmp_path, "Pooling", "pooling_param { kernel_size: 1 stride: 3 }", noise(1, 1, 5, 5))


@pytest.mark.parametrize(
    ("settings", "arguments"),
    [
        ("local_size: 5 alpha: 0.5 beta: 0.75", (5, 0.5, 0.75, 1)),
        ("local_size: 3 alpha: 0.2 beta: 0.5 k: 2", (3, 0.2, 0.5, 2)),
        ("", (5, 1, 0.75, 1)),
        ("local_size: 11 norm_region: ACROSS_CHANNELS", (11, 1, 0.75, 1)),
    ],
)
def test_lrn_across_channels(tmp_path, settings, arguments):
    x = noise(2, 7, 3, 4)
    got = one(tmp_path, "LRN", f"lrn_param {{ {settings} }}", x)
    assert_close(got, reference.lrn_across(x, *arguments))


@pytest.mark.parametrize("size", [1, 3, 5])
def test_lrn_within_channel(tmp_path, size):
    x = noise(2, 3, 6, 4)
    text = f"local_size: {size} alpha: 0.7 beta: 0.6 k: 9 norm_region: WITHIN_CHANNEL"
    got = one(tmp_path, "LRN", f"lrn_param {{ {text} }}", x)
    assert_close(got, reference.lrn_within(x, size, 0.7, 0.6))


@pytest.mark.parametrize("shape", [(2, 5), (2, 3, 4, 5), (3, 4, 2)])
@pytest.mark.parametrize("transpose", [False, True])
def test_inner_product(tmp_path, shape, transpose):
    for axis in (1, -1, len(shape) - 2):
        x = noise(*shape)
        depth = int(np.prod(shape[axis:]))
        w = noise(depth, 6, seed=1) if transpose else noise(6, depth, seed=1)
        text = f"num_output: 6 axis: {axis} transpose: {str(transpose).lower()}"
        settings = f"inner_product_param {{ {text} }}"
        b = noise(6, seed=2)
        got = one(tmp_path, "InnerProduct", settings, x, [w, b])
        assert_close(got, reference.inner_product(x, w, b, axis % len(shape), transpose))


def test_inner_product_without_bias(tmp_path):
    x, w = noise(3, 4), noise(2, 4, seed=1)
    settings = "inner_product_param { num_output: 2 bias_term: false }"
    assert_close(one(tmp_path, "InnerProduct", settings, x, [w]), reference.inner_product(x, w))


@pytest.mark.parametrize("factor", [1.0, 3.5, 0.0])
@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (4, 3)])
def test_batch_norm(tmp_path, factor, shape):
    x, mean = noise(*shape), noise(3, seed=1)
    variance = noise(3, seed=2, low=0.5, high=4)
    blobs = [mean, variance, np.array([factor], np.float32)]
    settings = "batch_norm_param { use_global_stats: true eps: 0.01 }"
    got = one(tmp_path, "BatchNorm", settings, x, blobs)
    assert_close(got, reference.batch_norm(x, mean, variance, factor, 0.01))


@pytest.mark.parametrize(
    ("settings", "axis", "covered"),
    [
        ("", 1, 1),
        ("axis: 2 num_axes: 2", 2, 2),
        ("axis: 0 num_axes: -1", 0, 4),
        ("axis: -1", 3, 1),
        ("axis: 1 num_axes: -1", 1, 3),
        ("num_axes: 0", 0, 0),
    ],
)
@pytest.mark.parametrize("bias", [False, True])
def test_scale(tmp_path, settings, axis, covered, bias):
    x = noise(2, 3, 4, 5)
    shape = x.shape[axis : axis + covered]
    factor, summand = noise(*shape, seed=1), noise(*shape, seed=2)
    text = f"scale_param {{ {settings} bias_term: {str(bias).lower()} }}"
    got = one(tmp_path, "Scale", text, x, [factor, summand] if bias else [factor])
    assert_close(got, reference.scale(x, factor, summand if bias else None, axis))


def test_scale_by_a_bottom(tmp_path):
    x, factor, summand = noise(2, 3, 4, 5), noise(3, 4, seed=1), noise(3, 4, seed=2)
    got = one(tmp_path, "Scale", "scale_param { bias_term: true }", x, [summand], [factor])
    assert_close(got, reference.scale(x, factor, summand, 1))


def test_bias(tmp_path):
    x, summand = noise(2, 3, 4), noise(4, seed=1)
    got = one(tmp_path, "Bias", "bias_param { axis: 2 }", x, [summand])
    assert_close(got, reference.scale(x, np.ones(4), summand, 2))
    assert_close(one(tmp_path, "Bias", "bias_param { axis: 2 }", x, (), [summand]), got)


POINTWISE = {
    "AbsVal": ("", np.abs),
    "BNLL": ("", lambda x: np.log1p(np.exp(x))),
    "Dropout": ("dropout_param { dropout_ratio: 0.7 }", lambda x: x),
    "ELU": ("elu_param { alpha: 0.5 }", lambda x: np.where(x > 0, x, 0.5 * np.expm1(x))),
    "Exp": ("exp_param { base: 2 scale: 0.5 shift: 1 }", lambda x: 2 ** (1 + 0.5 * x)),
    "Exp of e": ("exp_param { scale: -1 }", lambda x: np.exp(-x)),
    "Log": ("log_param { base: 10 scale: 2 shift: 5 }", lambda x: np.log10(5 + 2 * x)),
    "Log of e": ("log_param { shift: 3 }", lambda x: np.log(3 + x)),
    "Power": ("power_param { power: 3 scale: -2 shift: 0.5 }", lambda x: (0.5 - 2 * x) ** 3),
    "Power root": ("power_param { power: 0.5 shift: 3 }", lambda x: np.sqrt(3 + x)),
    "Power inverse": ("power_param { power: -1 shift: 3 }", lambda x: 1 / (3 + x)),
    "Power affine": ("power_param { scale: 3 shift: 1 }", lambda x: 3 * x + 1),
    "ReLU": ("", lambda x: np.maximum(x, 0)),
    "ReLU leaky": ("relu_param { negative_slope: 0.1 }", lambda x: np.where(x > 0, x, 0.1 * x)),
    "Sigmoid": ("", lambda x: 1 / (1 + np.exp(-x))),
    "TanH": ("", np.tanh),
}


@pytest.mark.parametrize("name", list(POINTWISE))
def test_pointwise(tmp_path, name):
    settings, function = POINTWISE[name]
    x = noise(2, 3, 5)
    got = one(tmp_path, name.split()[0], settings, x)
    assert_close(got, function(x.astype(np.float64)))


@pytest.mark.parametrize(
    ("settings", "value"),
    [("power: 0 shift: 5", 1), ("scale: 0 shift: 3 power: 2", 9), ("power: 0 scale: 0", 1)],
)
def test_power_that_forgets_its_operand(tmp_path, settings, value):
    got = one(tmp_path, "Power", f"power_param {{ {settings} }}", noise(2, 3))
    np.testing.assert_array_equal(got, np.full((2, 3), value, np.float32))


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (4, 3)])
def test_prelu(tmp_path, shape):
    x, slopes = noise(*shape), noise(3, seed=1, low=0.1, high=0.9)
    assert_close(one(tmp_path, "PReLU", "", x, [slopes]), reference.where_negative(x, slopes))
    shared = "prelu_param { channel_shared: true }"
    got = one(tmp_path, "PReLU", shared, x, [np.array(0.3, np.float32)])
    assert_close(got, reference.where_negative(x, 0.3))


@pytest.mark.parametrize("axis", [1, 0, -1])
def test_softmax(tmp_path, axis):
    x = noise(2, 5, 3, 4)
    got = one(tmp_path, "Softmax", f"softmax_param {{ axis: {axis} }}", x)
    assert_close(got, reference.softmax(x, axis))


@pytest.mark.parametrize(
    ("settings", "function"),
    [
        ("operation: PROD", lambda x, y, z: x * y * z),
        ("operation: MAX", lambda x, y, z: np.maximum(np.maximum(x, y), z)),
        ("", lambda x, y, z: x + y + z),
        ("operation: SUM coeff: 1 coeff: -1 coeff: 0.5", lambda x, y, z: x - y + 0.5 * z),
        ("coeff: 1 coeff: -2 coeff: 1", lambda x, y, z: x - 2 * y + z),
        ("coeff: -1 coeff: 2 coeff: -1", lambda x, y, z: -x + 2 * y - z),
    ],
)
def test_eltwise(tmp_path, settings, function):
    x, y, z = (noise(2, 3, 4, 5, seed=seed) for seed in range(3))
    got = one(tmp_path, "Eltwise", f"eltwise_param {{ {settings} }}", x, (), [y, z])
    assert_close(got, function(x, y, z))


@pytest.mark.parametrize("setting", ["", "axis: 1", "concat_dim: 1", "axis: -3"])
def test_concat(tmp_path, setting):
    x, y = noise(2, 3, 4, 5), noise(2, 2, 4, 5, seed=1)
    got = one(tmp_path, "Concat", f"concat_param {{ {setting} }}", x, (), [y])
    assert_close(got, np.concatenate([x, y], axis=1))


@pytest.mark.parametrize(
    ("settings", "axis", "points"),
    [
        ("", 1, [2, 4]),
        ("slice_point: 1 slice_point: 5", 1, [1, 5]),
        ("slice_dim: 2", 2, [3, 6]),
        ("axis: -1 slice_point: 3 slice_point: 4", 3, [3, 4]),
    ],
)
def test_slice(tmp_path, settings, axis, points):
    x = noise(2, 6, 9, 5)
    text = input_of("x", x.shape)
    text += layer("Slice", f"slice_param {{ {settings} }}", tops=["a", "b", "c"])
    got = run(load(tmp_path, text), x=x)
    for name, want in zip("abc", reference.slices(x, axis, points), strict=True):
        assert_close(got[name], want)


@pytest.mark.parametrize(
    ("kind", "settings", "shape"),
    [
        ("Flatten", "", (2, 60)),
        ("Flatten", "flatten_param { axis: 2 }", (2, 3, 20)),
        ("Flatten", "flatten_param { axis: 0 end_axis: -2 }", (24, 5)),
        ("Reshape", "reshape_param { shape { dim: 0 dim: -1 } }", (2, 60)),
        ("Reshape", "reshape_param { shape { dim: 2 dim: 0 dim: 20 } }", (2, 3, 20)),
        ("Reshape", "reshape_param { shape { dim: 4 dim: -1 } axis: 1 }", (2, 4, 15)),
        ("Reshape", "reshape_param { shape { dim: 6 } axis: 0 num_axes: 2 }", (6, 4, 5)),
        ("Reshape", "reshape_param { shape { dim: 1 dim: 1 } axis: 1 num_axes: 0 }",
         (2, 1, 1, 3, 4, 5)),
        ("Reshape", "reshape_param { shape { dim: 5 dim: 1 } axis: -2 }", (2, 3, 4, 5, 1)),
    ],
)  # fmt: skip
def test_shapes(tmp_path, kind, settings, shape):
    x = noise(2, 3, 4, 5)
    assert_close(one(tmp_path, kind, settings, x), x.reshape(shape))


@pytest.mark.parametrize(
    ("settings", "index"),
    [
        ("offset: 2", np.s_[:, :, 2:5, 2:4]),
        ("offset: 1 offset: 3", np.s_[:, :, 1:4, 3:5]),
        ("axis: 1 offset: 1 offset: 0 offset: 2", np.s_[:, 1:3, 0:3, 2:4]),
        ("", np.s_[:, :, :3, :2]),
    ],
)
def test_crop(tmp_path, settings, index):
    x, like = noise(2, 4, 6, 7), noise(2, 2, 3, 2)
    got = one(tmp_path, "Crop", f"crop_param {{ {settings} }}", x, (), [like])
    assert_close(got, x[index])


def test_split(tmp_path):
    x = noise(2, 3)
    text = input_of("x", x.shape) + layer("Split", tops=["a", "b"])
    text += layer("ReLU", bottoms=["a"], tops=["c"], name="r") + layer(
        "AbsVal", bottoms=["b"], tops=["d"], name="s"
    )
    got = run(load(tmp_path, text), x=x)
    assert_close(got["c"], np.maximum(x, 0))
    assert_close(got["d"], np.abs(x))
