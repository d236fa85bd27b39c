"""Spectra, determinants, caches, bits and optimisers, with NumPy as the oracle."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.frontends.onnx.onnx_models import check, model_of, noise, single
from tilewright.errors import TilewrightError
from tilewright.frontends.onnx import import_onnx
from tilewright.graph.interpreter import interpret


def run(model, feeds):
    imported = import_onnx(model)
    return interpret(imported.module, imported.weights, feeds)


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("length", [1, 7, 16, 60, 127, 128, 360, 1001])
def test_dft_of_real_signals(length, onesided):
    x = noise(2, length, 1)
    model = single("DFT", [x.shape], 17, axis=1, onesided=onesided)
    got = run(model, {"x0": x})["y0"]
    want = (np.fft.rfft if onesided else np.fft.fft)(x[..., 0].astype(np.float64), axis=1)
    scale = np.abs(want).max()
    np.testing.assert_allclose(got[..., 0] + 1j * got[..., 1], want, atol=2e-6 * scale)


@pytest.mark.parametrize("inverse", [0, 1])
@pytest.mark.parametrize("length", [None, 5, 150])
@pytest.mark.parametrize("size", [6, 130])
def test_dft_of_complex_signals_cut_or_filled(size, length, inverse):
    x = noise(size, 3, 2)
    given = [] if length is None else [np.array(length)]
    model = single("DFT", [x.shape, *(given or [None]), np.array(0)], 20, inverse=inverse)
    got = run(model, {"x0": x})["y0"]
    signal = x[..., 0].astype(np.float64) + 1j * x[..., 1]
    want = (np.fft.ifft if inverse else np.fft.fft)(signal, n=length, axis=0)
    scale = np.abs(want).max()
    np.testing.assert_allclose(got[..., 0] + 1j * got[..., 1], want, atol=2e-6 * scale)


@pytest.mark.parametrize("length", [8, 9])
def test_a_real_signal_from_half_of_its_transform(length):
    x = noise(2, length // 2 + 1, 2)
    model = single("DFT", [x.shape, np.array(length), np.array(1)], 20, inverse=1, onesided=1)
    got = run(model, {"x0": x})["y0"]
    want = np.fft.irfft(x[..., 0].astype(np.float64) + 1j * x[..., 1], n=length, axis=1)
    np.testing.assert_allclose(got[..., 0], want, atol=1e-6)


@pytest.mark.parametrize("onesided", [0, 1])
def test_stft(onesided):
    x, window = noise(2, 50, 1), np.hanning(16).astype(np.float32)
    model = single("STFT", [x.shape, np.array(6), window], 17, onesided=onesided)
    got = run(model, {"x0": x})["y0"]
    frames = np.stack([x[:, i : i + 16, 0] * window for i in range(0, 50 - 15, 6)], 1)
    want = (np.fft.rfft if onesided else np.fft.fft)(frames.astype(np.float64))
    np.testing.assert_allclose(got[..., 0] + 1j * got[..., 1], want, atol=1e-5)


def test_a_long_prime_transform_is_refused():
    with pytest.raises(TilewrightError, match="onnx-too-large"):
        import_onnx(single("DFT", [(1, 8191, 1)], 17))


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_determinants(size):
    check(single("Det", [(2, 3, size, size)]))
    with pytest.raises(TilewrightError, match="at most 8"):
        import_onnx(single("Det", [(9, 9)]))


@pytest.mark.parametrize("mode", ["linear", "circular"])
@pytest.mark.parametrize("axis", [1, 2])
def test_a_cache_takes_new_entries(axis, mode):
    past = noise(2, 5, 5, 3)
    update = noise(2, 2, 5, 3, seed=1) if axis == 1 else noise(2, 5, 2, 3, seed=1)
    places = np.array([1, 3 if mode == "linear" else 4])
    model = single("TensorScatter", [past.shape, update.shape, places], 24, mode=mode, axis=axis)
    got = run(model, {"x0": past, "x1": update})["y0"]
    want = np.moveaxis(past.copy(), axis, 1)
    for batch, first in enumerate(places):
        for step in range(2):
            want[batch, (first + step) % 5] = np.moveaxis(update, axis, 1)[batch, step]
    np.testing.assert_array_equal(got, np.moveaxis(want, 1, axis))


def test_bits_are_kept():
    x = noise(3, 4)
    model = single("BitCast", [x.shape], 26, to=TensorProto.INT32)
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT32
    np.testing.assert_array_equal(run(model, {"x0": x})["y0"], x.view(np.int32))
    with pytest.raises(TilewrightError, match="not of one size"):
        import_onnx(single("BitCast", [x.shape], 26, to=TensorProto.INT16))


def test_optimisers_refuse_lists_of_unequal_length():
    domain = "ai.onnx.preview.training"
    node = helper.make_node("Adam", ["r", "t", "x", "x", "x"], ["a", "b", "c"], domain=domain)
    constants = {"r": np.array(0.1, np.float32), "t": np.array(1)}
    model = model_of([node], {"x": (3,)}, ["a", "b", "c"], constants)
    model.opset_import.append(helper.make_opsetid(domain, 1))
    with pytest.raises(TilewrightError, match="4 tensors for each weight"):
        import_onnx(model)
