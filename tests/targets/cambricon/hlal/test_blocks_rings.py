"""Blocks of a common case: convolutions of equal extents, windows that do not overlap."""

from __future__ import annotations

import numpy as np
import pytest
from tests.targets.cambricon.hlal.running import arrays, build, outputs, sizes

from tilewright.numerics import fixed


def pick(random: np.random.Generator, low: int, high: int) -> int:
    return int(random.integers(low, high + 1))


@pytest.mark.parametrize("seed", range(8))
def test_convolution_of_equal_extents(seed: int) -> None:
    random = np.random.default_rng(seed)
    n, ci, co = pick(random, 1, 2), pick(random, 1, 40), pick(random, 1, 40)
    kernel = (1, 3, 5)[seed % 3]
    h, w = (pick(random, kernel // 2 + 1, 8) for _ in range(2))
    os = pick(random, 1, co) if seed % 4 else co
    fi, fw, fb, fo = (pick(random, 5, 11) for _ in range(4))
    kind = ("fix16", "fix32")[seed % 2]
    relu = "_relu" * (seed // 2 % 2)
    wide, narrow = (sizes((n, h, w, size), random).split(", ")[:7] for size in (ci, co))
    text = f"""
    .code
      @block_fw_conv_same{relu} y, x, w, b
    .static_ro
      @tensor x, {", ".join(wide)}, {ci}, Q{fi}
      @filter w, {co}, {kernel}, {kernel}, {ci}, {os}, {kernel}, {kernel}, {ci}, HWIO, Q{fw}
      @tensor b, 1, 1, 1, {co}, 1, 1, 1, {co}, Q{fb}, {kind}
    .static_rw
      @tensor y, {", ".join(narrow)}, {os}, Q{fo}
    """
    given = arrays(build(text), random)
    acc = fixed.conv2d(
        given["x"].transpose(0, 3, 1, 2),
        given["w"].transpose(0, 3, 1, 2),
        fixed.shift_right_rounded(given["b"].reshape(-1), fb - fi - fw),
        (1, 1),
        (kernel // 2,) * 4,
    )
    expected = fixed.requantise(acc, fi + fw, fo).transpose(0, 2, 3, 1)
    if relu:
        expected = np.maximum(expected, 0)
    np.testing.assert_array_equal(outputs(text, given)["y"], expected)


@pytest.mark.parametrize(
    ("width", "kernel", "relu"), [(300, 3, ""), (401, 1, "_relu"), (97, 5, "")]
)
def test_convolution_in_strips(width: int, kernel: int, relu: str) -> None:
    """Rows that do not fit the small machine's vector scratchpad."""
    text = f"""
    .code
      @block_fw_conv_same{relu} y, x, w, b
    .static_ro
      @tensor x, 2, 5, {width}, 20, 1, 5, {width}, 20, Q8
      @filter w, 12, {kernel}, {kernel}, 20, 8, {kernel}, {kernel}, 20, HWIO, Q8
      @tensor b, 12, 12, Q8
    .static_rw
      @tensor y, 2, 5, {width}, 12, 1, 1, {width}, 8, Q4
    """
    given = arrays(build(text, "cambricon-s"), np.random.default_rng(width), 500)
    acc = fixed.conv2d(
        given["x"].transpose(0, 3, 1, 2),
        given["w"].transpose(0, 3, 1, 2),
        given["b"].reshape(-1).astype(np.int64) << 8,
        (1, 1),
        (kernel // 2,) * 4,
    )
    expected = fixed.requantise(acc, 16, 4).transpose(0, 2, 3, 1)
    if relu:
        expected = np.maximum(expected, 0)
    np.testing.assert_array_equal(outputs(text, given, "cambricon-s")["y"], expected)


@pytest.mark.parametrize("seed", range(8))
def test_maxima_of_windows_that_do_not_overlap(seed: int) -> None:
    random = np.random.default_rng(seed)
    n, c, kernel = pick(random, 1, 2), pick(random, 1, 20), pick(random, 2, 4)
    oh, ow, cs = pick(random, 1, 4), pick(random, 1, 9), pick(random, 1, c)
    h, w = oh * kernel, ow * kernel
    rows = (kernel, pick(random, 1, h), 1)[seed % 3]
    cut = (n, h, w, c, 1 if rows == kernel else pick(random, 1, n), rows, w, cs)
    wide = ", ".join(map(str, cut))
    narrow = f"{n}, {oh}, {ow}, {c}, 1, {pick(random, 1, oh)}, {pick(random, 1, ow)}, {cs}"
    text = f"""
    .code
      @block_fw_pool_max pooled, x, #{kernel}, #{kernel}, #0
      @block_bw_pool_max dx, d, x, y, #{kernel}, #{kernel}, #0
      @block_fw_unpool image, d, x, y, #{kernel}, #{kernel}, #0
    .static_ro
      @tensor x, {wide}
      @tensor y, {narrow}
      @tensor d, {narrow}
    .static_rw
      @tensor pooled, {narrow}
      @tensor dx, {wide}
      @tensor image, {n}, {h}, {w}, {c}, 1, 1, {pick(random, 1, w)}, {cs}
    """
    # Few values, so that windows have their maximum twice: the first one takes the gradient.
    x = random.integers(-2, 3, (n, h, w, c))
    d = random.integers(-32768, 32768, (n, oh, ow, c))
    windows = x.reshape(n, oh, kernel, ow, kernel, c).transpose(0, 1, 3, 2, 4, 5)
    windows = windows.reshape(n, oh, ow, kernel * kernel, c)
    places = np.arange(kernel * kernel)[:, None] == windows.argmax(3)[:, :, :, None]
    spread = (places * d[:, :, :, None]).reshape(n, oh, ow, kernel, kernel, c)
    expected = spread.transpose(0, 1, 3, 2, 4, 5).reshape(n, h, w, c)
    found = outputs(text, {"x": x, "y": windows.max(3), "d": d})
    np.testing.assert_array_equal(found["pooled"], windows.max(3))
    np.testing.assert_array_equal(found["dx"], expected)
    np.testing.assert_array_equal(found["image"], expected)


@pytest.mark.parametrize("cut", [64, 100])
def test_lstm_weights_that_do_not_fit_come_again_in_every_step(cut: int) -> None:
    steps, ins, hidden = 3, 2, 60
    text = f"""
    .code
      @block_fw_lstm h, c, gates, x, w, u, b
    .static_ro
      @tensor x, {steps}, {ins}, {steps}, {ins}
      @filter w, {4 * hidden}, {ins}, {cut}, {ins}, Q10
      @filter u, {4 * hidden}, {hidden}, {cut}, {hidden}, Q10
      @tensor b, {4 * hidden}, {4 * hidden}
    .static_rw
      @tensor h, {steps + 1}, {hidden}, 1, {hidden}
      @tensor c, {steps + 1}, {hidden}, 1, {hidden}
      @tensor gates, {steps}, {4 * hidden}, 1, {4 * hidden}, Q14
    """
    given = arrays(build(text), np.random.default_rng(cut), 300)
    # The small machine keeps one of the segments at most, the large one all.
    small, large = (outputs(text, given, target) for target in ("cambricon-s", "cambricon"))
    for name in ("h", "c", "gates"):
        np.testing.assert_array_equal(small[name], large[name])
        assert np.unique(small[name]).size > 10


@pytest.mark.parametrize("seed", range(8))
def test_maxima_in_the_matrix_scratchpad(seed: int) -> None:
    """Windows that overlap or leave points out, in pieces that they reach across."""
    random = np.random.default_rng(seed)
    n, blocks, kernel = pick(random, 1, 2), pick(random, 1, 2), pick(random, 2, 4)
    stride, cs = pick(random, 1, kernel + 1), pick(random, 32, 50)
    h, w = kernel + pick(random, 0, 9), kernel + pick(random, 0, 6)
    oh, ow = (h - kernel) // stride + 1, (w - kernel) // stride + 1
    c, rows = blocks * cs, min(pick(random, kernel - 1, kernel + 3), h)
    text = f"""
    .code
      @block_fw_pool_max y, x, #{kernel}, #{stride}, #0
    .static_ro
      @tensor x, {n}, {h}, {w}, {c}, 1, {rows}, {w}, {cs}
    .static_rw
      @tensor y, {n}, {oh}, {ow}, {c}, {n}, {pick(random, 1, oh)}, {pick(random, 1, ow)}, {cs}
    """
    x = random.integers(-32768, 32768, (n, h, w, c))
    windows = np.lib.stride_tricks.sliding_window_view(x, (kernel, kernel), (1, 2))
    expected = windows[:, ::stride, ::stride].max((4, 5))
    program = build(text)
    assert any(one.mnemonic == "MSM" for one in program.statements)
    found = outputs(text, {"x": x.astype(np.int16)})
    np.testing.assert_array_equal(found["y"], expected)
