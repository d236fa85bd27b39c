"""The layer types that are imported, and the rule of each; one file a family."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.frontends.caffe.lowering import Rule, of_one
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
    "BatchNorm": of_one(normalisation.batch_norm),
    "Bias": elementwise.bias,
    "Concat": movement.concat,
    "Convolution": windows.convolution,
    "Crop": movement.crop,
    "Deconvolution": windows.deconvolution,
    "Dropout": of_one(lambda at: at.x),  # it does nothing in the test phase
    "ELU": of_one(elementwise.elu),
    "Eltwise": elementwise.eltwise,
    "Exp": of_one(elementwise.exp),
    "Flatten": of_one(movement.flatten),
    "InnerProduct": of_one(matrix.inner_product),
    "LRN": of_one(normalisation.lrn),
    "Log": of_one(elementwise.log),
    "PReLU": of_one(elementwise.prelu),
    "Pooling": of_one(windows.pooling),
    "Power": of_one(elementwise.power),
    "ReLU": of_one(elementwise.relu),
    "Reshape": of_one(movement.reshape),
    "Scale": elementwise.scale,
    "Sigmoid": elementwise.unary("sigmoid"),
    "Slice": movement.slice_,
    "Softmax": of_one(normalisation.softmax),
    "Split": movement.split,
    "TanH": elementwise.unary("tanh"),
}
"""Rules by Caffe's name of the type. Inputs are in frontends/caffe/inputs.py."""

NOT_IN_PLACE = frozenset(
    {"Concat", "Convolution", "Deconvolution", "Flatten", "LRN", "Pooling", "Reshape", "Split"}
    | {"InnerProduct", "Slice"}
)
"""Types that Caffe does not compute in place: the result would overwrite what it is made from."""
