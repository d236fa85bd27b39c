"""The layer types that are imported, and the rule of each; one file a family."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.frontends.caffe.lowering import Rule
from tilewright.frontends.caffe.operators import (
    elementwise,
    matrix,
    movement,
    normalisation,
    windows,
)

RULES: Mapping[str, Rule] = {
    "AbsVal": elementwise.unary("abs"),
    "BNLL": elementwise.unary("softplus"),
    "BatchNorm": normalisation.batch_norm,
    "Bias": elementwise.bias,
    "Concat": movement.concat,
    "Convolution": windows.convolution,
    "Crop": movement.crop,
    "Deconvolution": windows.deconvolution,
    "Dropout": elementwise.identity,
    "ELU": elementwise.elu,
    "Eltwise": elementwise.eltwise,
    "Exp": elementwise.exp,
    "Flatten": movement.flatten,
    "InnerProduct": matrix.inner_product,
    "LRN": normalisation.lrn,
    "Log": elementwise.log,
    "PReLU": elementwise.prelu,
    "Pooling": windows.pooling,
    "Power": elementwise.power,
    "ReLU": elementwise.relu,
    "Reshape": movement.reshape,
    "Scale": elementwise.scale,
    "Sigmoid": elementwise.unary("sigmoid"),
    "Slice": movement.slice_,
    "Softmax": normalisation.softmax,
    "Split": movement.split,
    "TanH": elementwise.unary("tanh"),
}
"""By Caffe's name of the type. Where inputs come from is in ``inputs.py``, one floor up."""

NOT_IN_PLACE = frozenset(
    {"Concat", "Convolution", "Deconvolution", "Flatten", "LRN", "Pooling", "Reshape", "Split"}
    | {"InnerProduct", "Slice"}
)
"""Types that Caffe does not compute in place: the result would overwrite what it is made from."""
