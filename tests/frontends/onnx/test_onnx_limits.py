"""Sizes that nothing has room for: coded refusals, and neither time nor memory before them."""

import resource

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.frontends.onnx.onnx_models import model_of, noise
from tilewright.errors import TilewrightError
from tilewright.frontends.onnx import import_onnx

WHOLE = [-(2**62), -(2**35), -1, 0, 2**31, 2**35, 2**62, 2**63 - 1]
REAL = [float("nan"), float("inf"), -float("inf"), -1.0, 0.0, 1e-30, 1e30]

X, IMAGE = noise(1, 3, 4), noise(1, 3, 4, 4)


def whole(*values):
    return np.array(values, np.int64)


def number(value):
    return np.array(value, np.int64)


OPERATORS = {
    "Range": [number(0), number(5), number(1)],
    "Range real": [np.array(v, np.float32) for v in (0, 5, 1)],
    "OneHot": [whole(0, 1), number(4), np.array([0, 1], np.float32)],
    "OneHot real": [whole(0, 1), np.array(4, np.float32), np.array([0, 1], np.float32)],
    "Expand": [X, whole(1, 3, 4)],
    "Tile": [X, whole(1, 1, 1)],
    "Reshape": [X, whole(1, 3, 4)],
    "Slice": [X, whole(0), whole(2), whole(2), whole(1)],
    "Pad": [X, whole(0, 0, 0, 0, 0, 0)],
    "Pad reflect": [X, whole(0, 0, 0, 0, 0, 0)],
    "Pad edge": [X, whole(0, 0, 0, 0, 0, 0)],
    "Pad wrap": [X, whole(0, 0, 0, 0, 0, 0)],
    "TopK": [X, whole(1)],
    "Split": [X, whole(2, 2)],
    "Resize": [IMAGE, None, np.ones(4, np.float32)],
    "Resize sizes": [IMAGE, None, None, whole(1, 3, 4, 4)],
    "Resize linear": [IMAGE, None, np.ones(4, np.float32)],
    "Upsample": [IMAGE, np.ones(4, np.float32)],
    "ConstantOfShape": [whole(1, 2)],
    "Squeeze": [X, whole(0)],
    "Unsqueeze": [X, whole(0)],
    "CumSum": [X, number(0)],
    "ReduceSum": [X, whole(0)],
    "Trilu": [X[0], number(0)],
    "Gather": [X, whole(0)],
    "DFT": [noise(1, 4, 1), number(4), number(1)],
    "STFT": [noise(1, 16, 1), number(4), None, number(4)],
    "HannWindow": [number(4)],
    "MelWeightMatrix": [
        *(number(v) for v in (4, 8, 8000)),
        *(np.array(v, np.float32) for v in (0, 4000)),
    ],
    "Col2Im": [noise(1, 4, 4), whole(3, 3), whole(2, 2)],
    "MaxUnpool": [noise(1, 1, 2, 2), np.zeros((1, 1, 2, 2), np.int64), whole(1, 1, 4, 4)],
    "CenterCropPad": [X, whole(1, 3, 4)],
}
"""Operands with which each is taken; all that are small are varied, one number at a time."""


def built(title, operands, live):
    operator, _, mode = title.partition(" ")
    attributes = {"mode": mode} if mode in ("reflect", "edge", "wrap", "linear") else {}
    attributes |= {"axis": 2} if operator == "Split" else {}
    attributes |= {"kernel_shape": [2, 2]} if operator == "MaxUnpool" else {}
    names = [f"x{index}" if value is not None else "" for index, value in enumerate(operands)]
    outputs = ["y", "z"] if operator in ("TopK", "Split") else ["y"]
    stored = {n: v for n, v in zip(names, operands, strict=True) if v is not None}
    inputs = []
    if live:
        first = stored.pop(names[0])
        kind = helper.np_dtype_to_tensor_dtype(first.dtype)
        inputs = [helper.make_tensor_value_info(names[0], kind, first.shape)]
    graph = helper.make_graph(
        [helper.make_node(operator, names, outputs, **attributes)],
        "g",
        inputs,
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(np.asarray(v), n) for n, v in stored.items()],
    )
    opset = 9 if operator == "Upsample" else 20
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def variations(operands):
    """The operands with one number of one that gives sizes changed."""
    for place, operand in enumerate(operands):
        if operand is None or (place == 0 and operand.size > 4):
            continue
        for value in WHOLE if operand.dtype.kind == "i" else REAL:
            for index in range(operand.size):
                changed = np.array(operand)
                changed.reshape(-1)[index] = value
                yield place, [*operands[:place], changed, *operands[place + 1 :]]


@pytest.mark.few(13)
@pytest.mark.parametrize("title", OPERATORS)
def test_sizes_out_of_bounds_are_refused_and_cost_nothing(title):
    """Nothing but refusals comes out, and none takes a gibibyte first."""
    import_onnx(built(title, OPERATORS[title], live=False))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused = 0
    for place, operands in variations(OPERATORS[title]):
        for live in (True, False) if place else (False,):
            try:
                import_onnx(built(title, operands, live))
            except TilewrightError:
                refused += 1
    assert refused or title == "Trilu"  # Any diagonal is one.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**20


def test_an_empty_constant_of_a_huge_size_is_refused():
    built = model_of([helper.make_node("Add", ["x", "w"], ["y"])], {"x": [1]}, ["y"])
    built.graph.initializer.append(onnx.TensorProto(name="w", data_type=1, dims=[0, 2**62]))
    with pytest.raises(TilewrightError) as refused:
        import_onnx(built)
    assert refused.value.problems[0].code == "onnx-too-large"


def test_a_long_equation_is_refused():
    node = helper.make_node("Einsum", ["x", "x"], ["y"], equation="..." * 5000 + ",ij->")
    with pytest.raises(TilewrightError) as refused:
        import_onnx(model_of([node], {"x": [2, 2]}, ["y"]))
    assert refused.value.problems[0].code == "onnx-too-large"


def test_a_node_of_thousands_of_operands_is_refused():
    node = helper.make_node("Concat", ["x"] * 20_000, ["y"], axis=0)
    with pytest.raises(TilewrightError) as refused:
        import_onnx(model_of([node], {"x": [2, 2]}, ["y"]))
    assert refused.value.problems[0].code == "onnx-too-large"
