"""The built-in blocks, forward, at random sizes and segments: bit for bit as fixed point has it."""

from __future__ import annotations

import numpy as np
import pytest
from tests.targets.cambricon.hlal.running import Array, arrays, build, outputs, sizes

from tilewright.numerics import fixed, tables

SEEDS = range(4)


def pick(random: np.random.Generator, low: int, high: int) -> int:
    return int(random.integers(low, high + 1))


def lifted(bias: Array, fraction: int) -> Array:
    """A bias as the accumulator takes it."""
    return fixed.shift_right_rounded(bias.reshape(-1), -fraction)


@pytest.mark.parametrize("seed", SEEDS)
def test_fully_connected(seed: int) -> None:
    random = np.random.default_rng(seed)
    n, ins, outs = pick(random, 1, 3), pick(random, 1, 90), pick(random, 1, 60)
    is_, os = pick(random, 1, ins), pick(random, 1, outs)
    fi, fw, fb, fo = (pick(random, 5, 11) for _ in range(4))
    kind = ("fix16", "fix32")[seed % 2]
    text = f"""
    .code
      @block_fw_fc y, x, w, b
    .static_ro
      @tensor x, {n}, 1, 1, {ins}, 1, 1, 1, {ins}, Q{fi}
      @filter w, {outs}, 1, 1, {ins}, {os}, 1, 1, {is_}, Q{fw}
      @tensor b, 1, 1, 1, {outs}, 1, 1, 1, {outs}, Q{fb}, {kind}
    .static_rw
      @tensor y, {n}, 1, 1, {outs}, 1, 1, 1, {outs}, Q{fo}
    """
    given = arrays(build(text), random)
    acc = fixed.matmul(
        given["x"].reshape(n, ins),
        given["w"].reshape(outs, ins).T,
        lifted(given["b"], fi + fw - fb),
    )
    expected = fixed.requantise(acc, fi + fw, fo)
    np.testing.assert_array_equal(outputs(text, given)["y"].reshape(n, outs), expected)


@pytest.mark.parametrize("seed", range(6))
def test_convolution(seed: int) -> None:
    random = np.random.default_rng(seed)
    n, ci, co = pick(random, 1, 2), pick(random, 1, 14), pick(random, 1, 14)
    kh, kw, stride = pick(random, 1, 4), pick(random, 1, 4), pick(random, 1, 3)
    pad = pick(random, 0, min(kh, kw) - 1)
    h, w = (max(1, k - 2 * pad) + pick(random, 0, 6) for k in (kh, kw))
    oh, ow = ((size + 2 * pad - k) // stride + 1 for size, k in ((h, kh), (w, kw)))
    cs, os = pick(random, 1, ci), pick(random, 1, co)
    fi, fw, fb, fo = (pick(random, 5, 11) for _ in range(4))
    relu = "_relu" * (seed % 2)

    def tensor(shape: tuple[int, ...], channels: int) -> str:
        return ", ".join([*sizes(shape, random).split(", ")[:7], str(channels)])

    text = f"""
    .code
      @block_fw_conv{relu} y, x, w, b, #{stride}, #{pad}
    .static_ro
      @tensor x, {tensor((n, h, w, ci), cs)}, Q{fi}
      @filter w, {co}, {kh}, {kw}, {ci}, {os}, 1, {kw}, {cs}, Q{fw}
      @tensor b, 1, 1, 1, {co}, 1, 1, 1, {co}, Q{fb}
    .static_rw
      @tensor y, {tensor((n, oh, ow, co), os)}, Q{fo}
    """
    given = arrays(build(text), random)
    acc = fixed.conv2d(
        given["x"].transpose(0, 3, 1, 2),
        given["w"].transpose(0, 3, 1, 2),
        lifted(given["b"], fi + fw - fb),
        (stride, stride),
        (pad,) * 4,
    )
    expected = fixed.requantise(acc, fi + fw, fo).transpose(0, 2, 3, 1)
    if relu:
        expected = np.maximum(expected, 0)
    # On the small machine a segment of weights fits once only.
    for target in ("cambricon", "cambricon-s"):
        np.testing.assert_array_equal(outputs(text, given, target)["y"], expected)


@pytest.mark.parametrize("kind", ["max", "average"])
@pytest.mark.parametrize("seed", SEEDS)
def test_pooling(seed: int, kind: str) -> None:
    random = np.random.default_rng(seed)
    n, c, k, stride = (
        pick(random, 1, 2),
        pick(random, 1, 40),
        pick(random, 1, 4),
        pick(random, 1, 3),
    )
    pad = pick(random, 0, k // 2)
    h, w = (max(1, k - 2 * pad) + pick(random, 0, 6) for _ in range(2))
    oh, ow = ((size + 2 * pad - k) // stride + 1 for size in (h, w))
    if (ow * stride) < w + pad and seed % 2:
        ow += 1  # a window that reaches outside the image, as Caffe has them
    cs = pick(random, 1, c)
    text = f"""
    .code
      @block_fw_pool_{kind} y, x, #{k}, #{stride}, #{pad}
    .static_ro
      @tensor x, {n}, {h}, {w}, {c}, {pick(random, 1, n)}, {pick(random, 1, h)}, {w}, {cs}
    .static_rw
      @tensor y, {n}, {oh}, {ow}, {c}, 1, {pick(random, 1, oh)}, {pick(random, 1, ow)}, {cs}
    """
    given = arrays(build(text), random, 32767)
    expected = np.zeros((n, oh, ow, c), np.int16)
    for y in range(oh):
        for x in range(ow):
            top, left = y * stride - pad, x * stride - pad
            window = given["x"][:, max(top, 0) : top + k, max(left, 0) : left + k].astype(np.int64)
            count = window.shape[1] * window.shape[2]
            mean = fixed.rounded_divide(window.sum((1, 2)), count)
            expected[:, y, x] = window.max((1, 2)) if kind == "max" else mean
    np.testing.assert_array_equal(outputs(text, given)["y"], expected)


@pytest.mark.parametrize("target", ["cambricon", "cambricon-s"])
@pytest.mark.parametrize("name", ["fw_relu", "fw_sigmoid", "fw_tanh", "add", "sub", "mul", "div"])
def test_elementwise(name: str, target: str) -> None:
    random = np.random.default_rng(len(name))
    shape = (2, pick(random, 1, 5), pick(random, 1, 5), pick(random, 1, 900))
    cut = sizes(shape, random)
    fa, fb, fy = 9, 7, 9 if name == "fw_relu" else 8
    text = f"""
    .code
      @block_{name} y, a{"" if name.startswith("fw_") else ", b"}
    .static_ro
      @tensor a, {cut}, Q{fa}
      @tensor b, {cut}, Q{fb}
    .static_rw
      @tensor y, {cut}, Q{fy}
    """
    given = arrays(build(text), random, 32767)
    a, b = given["a"].astype(np.int64), given["b"].astype(np.int64)
    b[b == 0] = 1
    given["b"] = b.astype(np.int16)
    if name in ("fw_sigmoid", "fw_tanh"):
        expected = tables.interpolate(tables.table(name[3:], fa, fy), given["a"])
    elif name == "fw_relu":
        expected = np.maximum(a, 0)
    elif name == "mul":
        expected = fixed.requantise(a * b, fa + fb, fy)
    elif name == "div":
        expected = np.floor(2.0 ** (fy + fb - fa) * a / b + 0.5)
    else:
        both = a + 4 * b if name == "add" else a - 4 * b
        expected = fixed.requantise(both, fa, fy)
    expected = np.clip(expected, -32768, 32767)
    np.testing.assert_array_equal(outputs(text, given, target)["y"], expected)


@pytest.mark.parametrize("pool", [2, 3])
def test_fused_convolution_relu_and_pooling(pool: int) -> None:
    random = np.random.default_rng(pool)
    text = f"""
    .code
      @block_fw_conv_relu y, x, w, b, #1, #1
      @block_fw_pool_max z, y, #{pool}, #{pool}, #0
      @block_fw_conv_relu_pool fused, x, w, b, #1, #1, #{pool}
    .static_ro
      @tensor x, 2, 11, 10, 7, 1, 4, 10, 4
      @filter w, 9, 3, 3, 7, 5, 1, 3, 4
      @tensor b, 9, 9
    .static_rw
      @tensor y, 2, 11, 10, 9, 1, 1, 10, 5
      @tensor z, 2, {11 // pool}, {10 // pool}, 9, 1, 1, {10 // pool}, 5
      @tensor fused, 2, {11 // pool}, {10 // pool}, 9, 1, 1, {10 // pool}, 5
    """
    found = outputs(text, arrays(build(text), random, 500))
    assert found["fused"].any()
    np.testing.assert_array_equal(found["fused"], found["z"])
