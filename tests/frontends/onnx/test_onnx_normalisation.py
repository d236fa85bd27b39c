"""BatchNormalization, LRN, Softmax and ReduceMean, against ONNX Runtime."""

import numpy as np
import pytest

from tests.frontends.onnx.onnx_models import check, noise, single
from tilewright.errors import TilewrightError
from tilewright.frontends.onnx import import_onnx


def statistics(channels):
    variance = np.abs(noise(channels, seed=3)) + 0.5
    return [noise(channels), noise(channels, seed=1), noise(channels, seed=2), variance]


@pytest.mark.parametrize("opset", [9, 14, 15])
@pytest.mark.parametrize("shape", [(2, 3, 5, 4), (2, 3, 5), (2, 3), (1, 3, 2, 2, 3)])
def test_batch_normalization(opset, shape):
    check(single("BatchNormalization", [shape, *statistics(3)], opset, epsilon=0.01))
    check(single("BatchNormalization", [shape, *statistics(3)], opset))


def test_batch_normalization_in_training():
    model = single(
        "BatchNormalization", [(2, 3, 4, 4), *statistics(3)], 15, outputs=3, training_mode=1
    )
    check(model)


def test_old_results_of_batch_normalization_are_refused():
    with pytest.raises(TilewrightError, match="'y1'"):
        import_onnx(single("BatchNormalization", [(2, 3, 4, 4), *statistics(3)], 9, outputs=5))


@pytest.mark.parametrize("opset", [9, 13])
@pytest.mark.parametrize("size", [1, 3, 5, 9])
def test_lrn(opset, size):
    check(single("LRN", [(2, 7, 3, 4)], opset, size=size, alpha=0.7, beta=0.6, bias=1.5))
    check(single("LRN", [(1, 7, 3, 4)], opset, size=size))


@pytest.mark.parametrize("opset", [9, 11, 13])
@pytest.mark.parametrize("axis", [None, 0, 1, 2, 3, -1])
def test_softmax(opset, axis):
    if opset < 11 and axis == -1:
        axis = 3  # Negative axes came with operator set 11.
    check(single("Softmax", [(2, 3, 4, 5)], opset, **({} if axis is None else {"axis": axis})))


def test_softmax_over_channels_of_one_pixel():
    check(single("Softmax", [(2, 6, 1, 1)], 9))
    check(single("Softmax", [(2, 6, 1, 1)], 13, axis=1))


@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("axes", [None, [0], [2, 3], [-1], [1, -1]])
def test_reduce_mean(keep, axes):
    given = {} if axes is None else {"axes": axes}
    check(single("ReduceMean", [(2, 3, 4, 5)], 11, keepdims=keep, **given))
    operands = [(2, 3, 4, 5)] + ([] if axes is None else [np.array(axes, np.int64)])
    check(single("ReduceMean", operands, 18, keepdims=keep))


def test_reduce_mean_of_no_axes():
    empty = np.array([], np.int64)
    check(single("ReduceMean", [(2, 3), empty], 18, noop_with_empty_axes=1))
    check(single("ReduceMean", [(2, 3), empty], 18))
