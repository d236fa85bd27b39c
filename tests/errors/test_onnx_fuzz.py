"""Damaged models: import gives a network or a TilewrightError, never anything else, and soon."""

import random
import time

import numpy as np
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper

from tilewright.errors import TilewrightError
from tilewright.frontends.onnx import import_onnx

SECONDS = 10
"""Far above what any of these imports takes, far below a hang."""


def seed_model() -> ModelProto:
    """A small valid model of many operator families."""
    rng = np.random.default_rng(5)
    constants = {
        "w": rng.standard_normal((4, 3, 3, 3)).astype(np.float32),
        "b": np.ones(4, np.float32),
        "fc": rng.standard_normal((64, 5)).astype(np.float32),
        "zero": np.array([0]),
        "low": np.array(0, np.float32),
        "split": np.array([2, 3]),
        "pads": np.array([0, 0, 1, 1, 0, 0, 0, 1]),
        "starts": np.array([0, 1]),
        "ends": np.array([4, 5]),
    }
    nodes = [
        helper.make_node("Pad", ["x", "pads"], ["padded"], "pad"),
        helper.make_node("Conv", ["padded", "w", "b"], ["c"], "conv", pads=[1, 0, 0, 1], group=1),
        helper.make_node("BatchNormalization", ["c", "b", "b", "b", "b"], ["n"], "norm"),
        helper.make_node("Clip", ["n", "low"], ["r"], "clip"),
        helper.make_node("LRN", ["r"], ["l"], "lrn", size=3),
        helper.make_node("MaxPool", ["l"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Shape", ["p"], ["s"], "shape"),
        helper.make_node("Constant", [], ["rest"], "constant", value_ints=[-1]),
        helper.make_node("Gather", ["s", "zero"], ["batch"], "gather", axis=0),
        helper.make_node("Concat", ["batch", "rest"], ["sizes"], "sizes", axis=0),
        helper.make_node("Reshape", ["p", "sizes"], ["flat"], "reshape"),
        helper.make_node("Gemm", ["flat", "fc"], ["g"], "gemm", alpha=0.5),
        helper.make_node("Split", ["g", "split"], ["first", "second"], "split", axis=1),
        helper.make_node("Slice", ["second", "starts", "ends"], ["third"], "slice"),
        helper.make_node("ReduceMean", ["third"], ["m"], "mean", axes=[1]),
        helper.make_node("Mul", ["first", "m"], ["scaled"], "mul"),
        helper.make_node("Softmax", ["scaled"], ["y"], "softmax", axis=-1),
    ]
    graph = helper.make_graph(
        nodes,
        "seed",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", 13)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


MODEL = seed_model()
DATA = MODEL.SerializeToString()


def attempt(source: bytes | ModelProto) -> bool:
    """Whether the import succeeds; anything but a network or a TilewrightError fails the test."""
    start = time.monotonic()
    try:
        imported = import_onnx(source)
    except TilewrightError as error:
        assert error.problems
        assert all(problem.code and problem.reason for problem in error.problems)
        return False
    finally:
        assert time.monotonic() - start < SECONDS
    imported.module.verify()
    return True


def test_the_seed_is_imported():
    assert attempt(DATA)
    assert attempt(MODEL)


@pytest.mark.parametrize("length", range(0, len(DATA), 23))
def test_cut_short(length):
    assert not attempt(DATA[:length])


fuzz = settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


@fuzz
@given(st.binary(max_size=200))
def test_garbage(data):
    assert not attempt(data)


@fuzz
@given(st.lists(st.tuples(st.integers(0, len(DATA) - 1), st.integers(0, 255)), min_size=1))
def test_changed_bytes(changes):
    data = bytearray(DATA)
    for place, value in changes[:8]:
        data[place] = value
    attempt(bytes(data))


@pytest.mark.slow
@fuzz
@given(st.integers(0, len(DATA)), st.integers(0, len(DATA)), st.integers(0, len(DATA)))
def test_parts_moved_doubled_and_dropped(first, second, third):
    low, middle, high = sorted((first, second, third))
    attempt(DATA[:low] + DATA[middle:high] + DATA[low:middle] + DATA[high:])
    attempt(DATA[:middle] + DATA[low:])
    attempt(DATA[:low] + DATA[high:])


INTEGERS = (-(2**63), -(2**40), -2, -1, 0, 1, 2, 3, 5, 8, 64, 2**24, 2**31, 2**40, 2**62, 2**63 - 1)
TEXTS = ("", "x", "y", "w", "axes", "Conv", "Relu", "Reshape", "ConstantOfShape", "Tile", "Range")
TEXTS += ("SAME_UPPER", "ai.onnx", "split", "Expand", "Loop", "If", "Einsum", "\x00", "é\n")
FLOATS = (0.0, -1.0, 0.5, 1e30, -1e38, float("inf"), float("nan"))


def random_value(field: FieldDescriptor, rng: random.Random) -> object:
    """A value of the field's type, often one that is absurd."""
    if field.enum_type is not None:
        return rng.choice([value.number for value in field.enum_type.values])
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_INT32:
            return rng.choice([i for i in INTEGERS if abs(i) < 2**31])
        case FieldDescriptor.CPPTYPE_INT64:
            return rng.choice(INTEGERS)
        case FieldDescriptor.CPPTYPE_UINT64:
            return abs(rng.choice(INTEGERS))
        case FieldDescriptor.CPPTYPE_FLOAT | FieldDescriptor.CPPTYPE_DOUBLE:
            return rng.choice(FLOATS)
        case _:
            text = rng.choice(TEXTS)
            return text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text


def messages_in(message: Message) -> list[Message]:
    """The message and all that it holds."""
    found = [message]
    for field, value in message.ListFields():
        if field.message_type is not None:
            for item in value if field.is_repeated else [value]:
                found.extend(messages_in(item))
    return found


def edit(message: Message, rng: random.Random) -> None:
    """Change one field at random: clear it, set it, drop or double or change an entry."""
    field = rng.choice(message.DESCRIPTOR.fields)
    if not field.is_repeated:
        if field.message_type is not None:
            rng.choice([message.ClearField, lambda name: getattr(message, name).SetInParent()])(
                field.name
            )
        elif rng.random() < 0.2:
            message.ClearField(field.name)
        else:
            setattr(message, field.name, random_value(field, rng))
        return
    entries = getattr(message, field.name)
    place = rng.randrange(len(entries)) if len(entries) else 0
    choice = rng.choice(["drop", "double", "change"])
    if choice == "drop" and len(entries):
        del entries[place]
    elif field.message_type is not None:
        if len(entries) and choice == "double":
            entries.append(entries[place])
        else:
            entries.add()
    elif len(entries) and choice == "change":
        entries[place] = random_value(field, rng)
    else:
        entries.append(random_value(field, rng))


@pytest.mark.slow
@fuzz
@given(st.integers(0, 2**32), st.integers(1, 3))
def test_changed_fields(seed, count):
    rng = random.Random(seed)
    model = ModelProto()
    model.CopyFrom(MODEL)
    for _ in range(count):
        edit(rng.choice(messages_in(model)), rng)
    attempt(model.SerializeToString())


def test_some_changed_models_are_imported_and_some_refused():
    results = set()
    for seed in range(60):
        rng = random.Random(seed)
        model = ModelProto()
        model.CopyFrom(MODEL)
        edit(rng.choice(messages_in(model)), rng)
        results.add(attempt(model))
    assert results == {True, False}
