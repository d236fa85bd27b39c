"""The built-in blocks, backward, at random sizes and segments, against sums of products."""

from __future__ import annotations

import numpy as np
import pytest
from tests.targets.cambricon.hlal.running import Array, arrays, build, outputs

from tilewright.numerics import fixed


def pick(random: np.random.Generator, low: int, high: int) -> int:
    return int(random.integers(low, high + 1))


def rounded(sums: Array, fraction: int, to: int) -> Array:
    """Sums as the accumulators of 32 bits give them."""
    return fixed.requantise(fixed.wrap32(sums), fraction, to)


@pytest.mark.parametrize("seed", range(4))
def test_fully_connected(seed: int) -> None:
    random = np.random.default_rng(seed)
    n, ins, outs = pick(random, 1, 4), pick(random, 1, 60), pick(random, 1, 60)
    cut = f"{outs}, 1, 1, {ins}, {pick(random, 1, outs)}, 1, 1, {pick(random, 1, ins)}"
    text = f"""
    .code
      @block_bw_fc_data dx, d, w
      @block_bw_fc_weight dw, db, d, x
    .static_ro
      @tensor d, {n}, 1, 1, {outs}, {n}, 1, 1, {outs}, Q9
      @tensor x, {n}, 1, 1, {ins}, {n}, 1, 1, {ins}, Q8
      @filter w, {cut}, Q10
    .static_rw
      @tensor dx, {n}, 1, 1, {ins}, {n}, 1, 1, {ins}, Q7
      @filter dw, {cut}, Q5
      @tensor db, {outs}, {outs}, Q11, fix32
    """
    given = arrays(build(text), random)
    found = outputs(text, given)
    d, x = (given[name].reshape(n, -1).astype(np.int64) for name in ("d", "x"))
    w = given["w"].reshape(outs, ins).astype(np.int64)
    np.testing.assert_array_equal(found["dx"].reshape(n, ins), rounded(d @ w, 19, 7))
    np.testing.assert_array_equal(found["dw"].reshape(outs, ins), rounded(d.T @ x, 17, 5))
    np.testing.assert_array_equal(found["db"].reshape(-1), 4 * d.sum(0))


@pytest.mark.parametrize("seed", range(5))
def test_convolution_and_deconvolution(seed: int) -> None:
    random = np.random.default_rng(seed)
    n, ci, co = pick(random, 1, 2), pick(random, 1, 9), pick(random, 1, 9)
    kh, kw, stride = pick(random, 1, 4), pick(random, 1, 4), pick(random, 1, 3)
    pad = pick(random, 0, min(kh, kw) - 1)
    h, w = (max(1, k - 2 * pad) + pick(random, 0, 5) for k in (kh, kw))
    oh, ow = (h + 2 * pad - kh) // stride + 1, (w + 2 * pad - kw) // stride + 1
    cs, os = pick(random, 1, ci), pick(random, 1, co)
    wide = f"{n}, {h}, {w}, {ci}, 1, {pick(random, 1, h)}, {pick(random, 1, w)}, {cs}"
    narrow = f"{n}, {oh}, {ow}, {co}, {pick(random, 1, n)}, {pick(random, 1, oh)}, {ow}, {os}"
    cut = f"{co}, {kh}, {kw}, {ci}, {os}, 1, {kw}, {cs}"
    text = f"""
    .code
      @block_bw_conv_data dx, d, w, #{stride}, #{pad}
      @block_fw_deconv y, d, w, b, #{stride}, #{pad}
      @block_bw_conv_weight dw, db, d, x, #{stride}, #{pad}
    .static_ro
      @tensor d, {narrow}, Q9
      @tensor x, {wide}, Q8
      @filter w, {cut}, Q10
      @tensor b, {ci}, {ci}, Q8
    .static_rw
      @tensor dx, {wide}, Q7
      @tensor y, {wide}, Q6
      @filter dw, {cut}, Q5
      @tensor db, {co}, {co}, Q9, fix32
    """
    given = arrays(build(text), random)
    found = outputs(text, given, ("cambricon", "cambricon-m")[seed % 2])
    d, x, weight = (given[name].astype(np.int64) for name in ("d", "x", "w"))
    inner = np.s_[:, pad : pad + h, pad : pad + w]
    dx = np.zeros((n, h + 2 * pad + kh + stride, w + 2 * pad + kw + stride, ci), np.int64)
    padded, dw = np.zeros_like(dx), np.zeros((co, kh, kw, ci), np.int64)
    padded[inner] = x
    for i in range(oh):
        for j in range(ow):
            window = np.s_[:, i * stride : i * stride + kh, j * stride : j * stride + kw]
            dx[window] += np.einsum("no,ojkc->njkc", d[:, i, j], weight)
            dw += np.einsum("no,njkc->ojkc", d[:, i, j], padded[window])
    biased = dx[inner] + (given["b"].reshape(-1).astype(np.int64) << 11)
    np.testing.assert_array_equal(found["dx"], rounded(dx[inner], 19, 7))
    np.testing.assert_array_equal(found["y"], rounded(biased, 19, 6))
    np.testing.assert_array_equal(found["dw"], rounded(dw, 17, 5))
    np.testing.assert_array_equal(found["db"].reshape(-1), d.sum((0, 1, 2)))


@pytest.mark.parametrize("seed", range(4))
def test_pooling_and_unpooling(seed: int) -> None:
    random = np.random.default_rng(seed)
    n, c, k, stride = (
        pick(random, 1, 2),
        pick(random, 1, 20),
        pick(random, 1, 4),
        pick(random, 1, 4),
    )
    pad = pick(random, 0, k // 2)
    h, w = (max(1, k - 2 * pad) + pick(random, 0, 5) for _ in range(2))
    oh, ow = (h + 2 * pad - k) // stride + 1, (w + 2 * pad - k) // stride + 1
    cs = pick(random, 1, c)
    wide = f"{n}, {h}, {w}, {c}, {pick(random, 1, n)}, {pick(random, 1, h)}, {w}, {cs}"
    narrow = f"{n}, {oh}, {ow}, {c}, 1, {pick(random, 1, oh)}, {pick(random, 1, ow)}, {cs}"
    # Few values, so that windows have their maximum twice: the first one takes the gradient.
    x = random.integers(-4, 5, (n, h, w, c))
    d = random.integers(-2000, 2000, (n, oh, ow, c))
    y = np.zeros_like(d)
    greatest, mean = np.zeros((n, h, w, c), np.int64), np.zeros((n, h, w, c), np.int64)
    for i in range(oh):
        for j in range(ow):
            top, left = i * stride - pad, j * stride - pad
            window = np.s_[:, max(0, top) : top + k, max(0, left) : left + k]
            points = x[window].reshape(n, -1, c)
            y[:, i, j] = points.max(1)
            share = fixed.rounded_divide(d[:, i, j], points.shape[1])
            mean[window] += share[:, None, None]
            first = np.zeros_like(points)
            np.put_along_axis(first, points.argmax(1)[:, None], d[:, i, j][:, None], 1)
            greatest[window] += first.reshape(x[window].shape)
    text = f"""
    .code
      @block_bw_pool_max greatest, d, x, y, #{k}, #{stride}, #{pad}
      @block_bw_pool_average mean, d, #{k}, #{stride}, #{pad}
      @block_fw_unpool image, d, x, y, #{k}, #{stride}, #{pad}
    .static_ro
      @tensor x, {wide}
      @tensor y, {narrow}
      @tensor d, {narrow}
    .static_rw
      @tensor greatest, {wide}
      @tensor mean, {wide}
      @tensor image, {wide}
    """
    found = outputs(text, {"x": x, "y": y, "d": d})
    np.testing.assert_array_equal(found["greatest"], greatest)
    np.testing.assert_array_equal(found["image"], greatest)
    np.testing.assert_array_equal(found["mean"], mean)


@pytest.mark.parametrize("name", ["relu", "sigmoid", "tanh"])
def test_activations(name: str) -> None:
    random = np.random.default_rng(7)
    text = f"""
    .code
      @block_fw_{name} y, x
      @block_bw_{name} dx, dy, y
    .static_ro
      @tensor x, 3000, 3000, Q12
      @tensor dy, 3000, 3000, Q12
    .static_rw
      @tensor y, 3000, 3000, Q12
      @tensor dx, 3000, 3000, Q12
    """
    x, dy = random.standard_normal((2, 3000))
    found = outputs(text, {"x": x, "dy": dy})
    kept = np.round(x * 4096) / 4096
    slopes = {
        "relu": (kept > 0).astype(float),
        "sigmoid": np.exp(-x) / (1 + np.exp(-x)) ** 2,
        "tanh": 1 - np.tanh(x) ** 2,
    }
    error = np.abs(found["dx"].reshape(-1) / 4096 - dy * slopes[name])
    assert error.max() < 4 / 4096 * np.abs(dy).max()


def test_update_with_momentum() -> None:
    random = np.random.default_rng(8)
    text = """
    .code
      @block_update w, m, v, g, #0.01, #0.9
    .static_ro
      @filter g, 77, 131, 20, 131, Q10
    .static_rw
      @filter w, 77, 131, 20, 131, Q12
      @filter m, 77, 131, 20, 131, Q24, fix32
      @filter v, 77, 131, 20, 131, Q24, fix32
    """
    shape = (77, 1, 1, 131)
    m, v = random.integers(-(2**26), 2**26, shape), random.integers(-(2**20), 2**20, shape)
    g = random.integers(-3000, 3000, shape)
    found = outputs(text, {"w": np.zeros(shape), "m": m, "v": v, "g": g})
    step = fixed.shift_right_rounded(v * round(0.9 * 128), 7)
    step = step + fixed.shift_right_rounded(-g * round(0.01 * 2**15), 10 + 15 - 24)
    np.testing.assert_array_equal(found["v"], step)
    np.testing.assert_array_equal(found["m"], m + step)
    np.testing.assert_array_equal(found["w"], fixed.requantise(m + step, 24, 12))
    assert np.abs(step / 2**24 - (0.9 * v / 2**24 - 0.01 * g / 2**10)).max() < 0.002
