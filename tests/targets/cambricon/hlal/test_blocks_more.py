"""Softmax, LRN, LSTM cells, and products of vectors and matrices."""

from __future__ import annotations

import numpy as np
import pytest
from tests.targets.cambricon.hlal.running import Array, arrays, build, outputs

from tilewright.numerics import fixed


@pytest.mark.parametrize(("most", "fraction"), [(3000, 8), (32767, 11)])
def test_softmax(most: int, fraction: int) -> None:
    text = f"""
    .code
      @block_fw_softmax y, x
    .static_ro
      @tensor x, 3, 150, 3, 150, Q{fraction}
    .static_rw
      @tensor y, 3, 150, 1, 150, Q14
    """
    given = arrays(build(text), np.random.default_rng(most), most)
    expected = fixed.softmax(given["x"].reshape(3, 150), 1, fraction, 14)
    np.testing.assert_array_equal(outputs(text, given)["y"].reshape(3, 150), expected)


@pytest.mark.parametrize(
    ("size", "alpha", "bias"), [(5, 0.0001, 1.0), (3, 0.5, 2.0), (1, 0.1, 1.0)]
)
def test_lrn_forward_and_backward(size: int, alpha: float, bias: float) -> None:
    random = np.random.default_rng(size)
    text = f"""
    .code
      @block_fw_lrn y, x, #{size}, #{alpha:.4f}, #0.75, #{bias}
      @block_bw_lrn dx, dy, x, y, #{size}, #{alpha:.4f}, #0.75, #{bias}
    .static_ro
      @tensor x, 2, 3, 4, 21, 1, 2, 3, 21, Q9
      @tensor dy, 2, 3, 4, 21, 2, 1, 4, 21, Q10
    .static_rw
      @tensor y, 2, 3, 4, 21, 1, 3, 4, 21, Q10
      @tensor dx, 2, 3, 4, 21, 1, 3, 1, 21, Q10
    """
    given = arrays(build(text), random, 3000)
    found = outputs(text, given)
    expected = fixed.lrn(given["x"].transpose(0, 3, 1, 2), size, alpha, 0.75, bias, 9, 10)
    np.testing.assert_array_equal(found["y"], expected.transpose(0, 2, 3, 1))
    x, dy = given["x"] / 2.0**9, given["dy"] / 2.0**10

    def around(values: Array) -> Array:
        half = size // 2
        wide = np.pad(values, ((0, 0),) * 3 + ((half, half),))
        return sum(wide[..., j : j + 21] for j in range(size))

    base = bias + alpha / size * around(x * x)
    y = x * base**-0.75
    dx = dy * base**-0.75 - 2 * alpha * 0.75 / size * x * around(dy * y / base)
    assert np.abs(found["dx"] / 2.0**10 - dx).max() < 0.006


def test_products_of_vectors_and_matrices() -> None:
    text = """
    .code
      @block_dot s, a, b
      @block_outer p, a, c
      @block_mat_mul q, p, c
    .static_ro
      @tensor a, 201, 201
      @tensor b, 201, 201
      @tensor c, 47, 47
    .static_rw
      @tensor s, 1, 1, fix32, Q16
      @filter p, 201, 47, 33, 20, Q6
      @tensor q, 201, 201, Q4
    """
    given = arrays(build(text), np.random.default_rng(3))
    found = outputs(text, given)
    a, b, c = (given[name].reshape(-1).astype(np.int64) for name in "abc")
    matrix = fixed.requantise(np.outer(a, c), 16, 6)
    assert found["s"].item() == fixed.wrap32((a * b).sum())
    np.testing.assert_array_equal(found["p"].reshape(201, 47), matrix)
    product = fixed.wrap32(matrix.astype(np.int64) @ c)
    np.testing.assert_array_equal(found["q"].reshape(-1), fixed.requantise(product, 14, 4))


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("cut", [1, 7, 48])
def test_lstm_forward_and_backward(cut: int) -> None:
    random = np.random.default_rng(cut)
    steps, ins, hidden = 4, 5, 12
    text = f"""
    .code
      @block_fw_lstm h, c, gates, x, w, u, b
      @block_bw_lstm dgates, dh, c, gates, u
      @block_bw_lstm_weight dw, du, db, dgates, x, h
      @block_bw_fc_data dx, dgates, w
    .static_ro
      @tensor x, {steps}, {ins}, {steps}, {ins}, Q9
      @filter w, {4 * hidden}, {ins}, {cut}, {ins}, Q10
      @filter u, {4 * hidden}, {hidden}, {cut}, {hidden}, Q8
      @tensor b, {4 * hidden}, {4 * hidden}, Q10
      @tensor dh, {steps}, {hidden}, {steps}, {hidden}, Q11
    .static_rw
      @tensor h, {steps + 1}, {hidden}, 1, {hidden}, Q11
      @tensor c, {steps + 1}, {hidden}, 1, {hidden}, Q11
      @tensor gates, {steps}, {4 * hidden}, 1, {4 * hidden}, Q14
      @tensor dgates, {steps}, {4 * hidden}, 1, {4 * hidden}, Q11
      @filter dw, {4 * hidden}, {ins}, {cut}, {ins}, Q10
      @filter du, {4 * hidden}, {hidden}, {cut}, {hidden}, Q10
      @tensor db, {4 * hidden}, {4 * hidden}, Q10
      @tensor dx, {steps}, {ins}, {steps}, {ins}, Q10
    """
    x, dh = random.standard_normal((steps, ins)), random.standard_normal((steps, hidden))
    w, u = (0.6 * random.standard_normal((4 * hidden, size)) for size in (ins, hidden))
    b = 0.3 * random.standard_normal(4 * hidden)
    found = outputs(text, {"x": x, "w": w, "u": u, "b": b, "dh": dh})
    h, c = np.zeros((2, steps + 1, hidden))
    gates = []
    for t in range(steps):
        i, f, g, o = np.split(w @ x[t] + u @ h[t] + b, 4)
        i, f, g, o = sigmoid(i), sigmoid(f), np.tanh(g), sigmoid(o)
        gates.append((i, f, g, o))
        c[t + 1] = f * c[t] + i * g
        h[t + 1] = o * np.tanh(c[t + 1])
    back, dc, dgates = np.zeros(hidden), np.zeros(hidden), np.zeros((steps, 4 * hidden))
    for t in reversed(range(steps)):
        i, f, g, o = gates[t]
        d, tangent = dh[t] + back, np.tanh(c[t + 1])
        dc = dc + d * o * (1 - tangent**2)
        dgates[t] = np.concatenate(
            [dc * g * i * (1 - i), dc * c[t] * f * (1 - f), dc * i * (1 - g * g),
             d * tangent * o * (1 - o)]
        )  # fmt: skip
        dc, back = dc * f, u.T @ dgates[t]
    expected = {
        "h": (h, 11), "c": (c, 11), "dgates": (dgates, 11), "dw": (dgates.T @ x, 10),
        "du": (dgates.T @ h[:-1], 10), "db": (dgates.sum(0), 10), "dx": (dgates @ w, 10),
    }  # fmt: skip
    for name, (values, fraction) in expected.items():
        error = np.abs(found[name].reshape(values.shape) / 2.0**fraction - values).max()
        assert error < 0.012, name
