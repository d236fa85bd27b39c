"""Whole networks: order, in-place layers, phases, inputs and outputs."""

import numpy as np
import pytest

from tests.frontends.caffe.caffe_models import assert_close, input_of, layer, load, noise, run
from tilewright.errors import TilewrightError
from tilewright.frontends.caffe.inputs import inputs_of
from tilewright.graph.dialect import network_of
from tilewright.ir.types import shape_of

X = noise(2, 3)


def shapes_of(imported):
    return {name: shape_of(value) for name, value in network_of(imported.module).inputs}


def test_layers_in_place_replace_their_blob(tmp_path):
    text = (
        input_of("x", X.shape)
        + layer("Power", "power_param { shift: 1 }", ["x"], ["x"], "plus")
        + layer("AbsVal", "", ["x"], ["kept"], "before")
        + layer("Power", "power_param { scale: 3 }", ["x"], ["x"], "times")
        + layer("Eltwise", "", ["x", "kept"], ["y"], "sum")
    )
    got = run(load(tmp_path, text), x=X)
    assert list(got) == ["y"]
    assert_close(got["y"], 3 * (X + 1) + np.abs(X + 1))


def test_a_network_may_end_in_place(tmp_path):
    text = input_of("x", X.shape) + layer("ReLU", "", ["x"], ["x"])
    assert_close(run(load(tmp_path, text), x=X)["x"], np.maximum(X, 0))


def test_outputs_are_what_nothing_reads(tmp_path):
    text = input_of("x", X.shape) + "".join(
        layer(kind, "", [bottom], [top], top)
        for kind, bottom, top in (
            ("ReLU", "x", "c"), ("AbsVal", "x", "b"), ("TanH", "c", "a"), ("Split", "b", "d"),
        )
    )  # fmt: skip
    got = run(load(tmp_path, text), x=X)
    assert list(got) == ["a", "d"]


TRAIN_VAL = """
name: "both"
layer { name: "d" type: "Data" top: "data" top: "label" include { phase: TRAIN }
  transform_param { crop_size: 9 } data_param { batch_size: 64 } }
layer { name: "d" type: "Data" top: "data" top: "label" include { phase: TEST }
  transform_param { crop_size: 7 mean_value: 104 mean_value: 117 mean_value: 123 scale: 0.5 }
  data_param { batch_size: 5 backend: LMDB } }
layer { name: "noise" type: "Power" bottom: "data" top: "data" exclude { phase: TEST } }
layer { name: "twice" type: "Power" bottom: "data" top: "y" power_param { scale: 2 } }
layer { name: "drop" type: "Dropout" bottom: "y" top: "y" }
layer { name: "staged" type: "AbsVal" bottom: "y" top: "y" include { phase: TEST stage: "s" } }
layer { name: "top" type: "Accuracy" bottom: "y" bottom: "label" top: "top" }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "y" bottom: "label" top: "loss" }
"""


def test_training_files_are_read_in_their_test_phase(tmp_path):
    imported = load(tmp_path, TRAIN_VAL)
    assert imported.name == "both"
    assert shapes_of(imported) == {"data": (5, 3, 7, 7)}
    assert [node.name for node in imported.nodes] == ["d", "twice", "drop"]
    x = noise(5, 3, 7, 7)
    got = run(imported, data=x)
    assert list(got) == ["y"]
    assert_close(got["y"], 2 * x)
    told = " ".join(imported.notes)
    for word in ("'label'", "'top', 'loss'", "subtracts 104, 117, 123", "multiplies by 0.5"):
        assert word in told


@pytest.mark.parametrize(
    ("rules", "taken"),
    [
        ("", True),
        ("include { phase: TRAIN }", False),
        ("include { phase: TRAIN } include { phase: TEST }", True),
        ("exclude { phase: TRAIN }", True),
        ("exclude { phase: TEST }", False),
        ("include { stage: 'deploy' }", True),
        ("include { stage: 'deploy' stage: 'other' }", False),
        ("include { not_stage: 'deploy' }", False),
        ("include { phase: TEST min_level: 2 }", True),
        ("include { min_level: 3 }", False),
        ("exclude { max_level: 1 }", True),
        ("exclude { max_level: 2 stage: 'deploy' }", False),
        ("include { }", True),
    ],
)
def test_rules(tmp_path, rules, taken):
    text = "state { level: 2 stage: 'deploy' }" + input_of("x", X.shape)
    text += layer("AbsVal", "", ["x"], ["x"])
    text += layer("Power", f"power_param {{ scale: 3 }} {rules}", ["x"], ["x"], "ruled")
    assert_close(run(load(tmp_path, text), x=X)["x"], np.abs(X) * (3 if taken else 1))


INPUTS = {
    "input_dim": ('input: "x" input_dim: 1 input_dim: 2 input_dim: 3 input_dim: 4', (1, 2, 3, 4)),
    "input_shape": ('input: "x" input_shape { dim: 6 dim: 2 }', (6, 2)),
    "Input": (input_of("x", (4, 5)), (4, 5)),
    "shape for all": (
        'layer { name: "i" type: "Input" top: "u" top: "x" input_param { shape { dim: 3 } } }',
        (3,),
    ),
    "shape each": (
        'layer { name: "i" type: "Input" top: "u" top: "x" '
        "input_param { shape { dim: 3 } shape { dim: 2 dim: 2 } } }",
        (2, 2),
    ),
    "MemoryData": (
        'layer { name: "i" type: "MemoryData" top: "x" top: "label" '
        "memory_data_param { batch_size: 2 channels: 3 height: 4 width: 5 } }",
        (2, 3, 4, 5),
    ),
    "ImageData": (
        'layer { name: "i" type: "ImageData" top: "x" top: "label" image_data_param '
        "{ batch_size: 2 new_height: 6 new_width: 5 is_color: false } }",
        (2, 1, 6, 5),
    ),
    "DummyData": (
        'layer { name: "i" type: "DummyData" top: "x" dummy_data_param '
        "{ num: 1 channels: 2 height: 3 width: 3 } }",
        (1, 2, 3, 3),
    ),
    "old crop": (
        'layers { name: "i" type: DATA top: "x" top: "l" data_param { batch_size: 3 crop_size: 8 '
        "} transform_param { force_gray: true } }",
        (3, 1, 8, 8),
    ),
}


@pytest.mark.parametrize("name", INPUTS)
def test_inputs(tmp_path, name):
    text, shape = INPUTS[name]
    use = layer("AbsVal")
    if "layers {" in text:
        use = 'layers { name: "it" type: ABSVAL bottom: "x" top: "y" }'
    imported = load(tmp_path, text + "\n" + use)
    assert shapes_of(imported)["x"] == shape
    wide = (7, *shape[1:])
    again = load(tmp_path, text + "\n" + use, shapes={"x": wide})
    assert shapes_of(again)["x"] == wide


def test_data_without_a_size_needs_a_shape(tmp_path):
    text = 'layer { name: "d" type: "Data" top: "x" top: "label" data_param { batch_size: 3 } }'
    text += layer("AbsVal")
    with pytest.raises(TilewrightError, match=r"input 'x'.*--shape x="):
        load(tmp_path, text)
    assert shapes_of(load(tmp_path, text, shapes={"x": (1, 1, 28, 28)})) == {"x": (1, 1, 28, 28)}


@pytest.mark.parametrize("shape", [(1, 2, 3), (0, 3), (2.5, 3), (2**40, 2**40)])
def test_shapes_that_do_not_fit(tmp_path, shape):
    with pytest.raises(TilewrightError, match=r"caffe-(shape|too-large)"):
        load(tmp_path, input_of("x", X.shape) + layer("AbsVal"), shapes={"x": shape})


def test_a_shape_for_no_input(tmp_path):
    with pytest.raises(TilewrightError, match=r"'z', which is no input.*the inputs are 'x'"):
        load(tmp_path, input_of("x", X.shape) + layer("AbsVal"), shapes={"z": (1,)})


def test_inputs_of_nothing():
    assert inputs_of([], None, [], []) == {}


def test_names_become_identifiers_and_nodes(tmp_path):
    imported = load(tmp_path, input_of("a/b", X.shape) + layer("ReLU", "", ["a/b"], ["c d"], ""))
    assert imported.name == "net"
    assert [(node.name, node.operator) for node in imported.nodes][1] == ("ReLU_1", "ReLU")
    assert list(run(imported, **{"a/b": X})) == ["c d"]


def test_comments_in_any_encoding_and_spellings_of_text(tmp_path):
    text = input_of("x", X.shape) + layer("ReLU", "relu_param: { negative_slope: .5; }")
    path = tmp_path / "net.prototxt"
    path.write_bytes("# \u6ce8\n".encode("gbk") + text.encode() + b"#\xff\n")
    from tilewright.frontends import load as load_any

    imported = load_any(path)
    assert_close(run(imported, x=X)["y"], np.where(X > 0, X, X / 2).astype(np.float32))
