"""Caffemodels: both forms, all spellings of blobs, mapped, and damaged ones."""

import numpy as np
import pytest

from tests.frontends.caffe.caffe_models import (
    assert_close,
    caffemodel,
    input_of,
    layer,
    load,
    noise,
    run,
)
from tests.frontends.caffe.caffe_reference import conv, inner_product
from tilewright.errors import TilewrightError
from tilewright.frontends.caffe.schema import message_class
from tilewright.frontends.caffe.stored import read_caffemodel

X = noise(2, 3, 5, 6)
W, B = noise(4, 3, 3, 3, seed=1), noise(4, seed=2)
V, C = noise(5, 4 * 3 * 4, seed=3), noise(5, seed=4)
BLOBS = {"a": [W, B], "b": [V, C]}
TEXT = (
    input_of("x", X.shape)
    + layer("Convolution", "convolution_param { num_output: 4 kernel_size: 3 }", name="a")
    + layer("InnerProduct", "inner_product_param { num_output: 5 }", ["y"], ["z"], "b")
)
WANT = inner_product(conv(X, W, B), V, C)


@pytest.mark.parametrize("doubles", [False, True])
@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("old", [False, True])
def test_forms_of_a_caffemodel(tmp_path, old, legacy, doubles):
    data = caffemodel(BLOBS, old=old, legacy=legacy, doubles=doubles)
    imported = load(tmp_path, TEXT, data)
    assert imported.notes == ()
    assert_close(run(imported, x=X)["z"], WANT)


def test_an_old_text_takes_weights_of_either_form(tmp_path):
    text = (
        'input: "x" input_dim: 2 input_dim: 3 input_dim: 5 input_dim: 6\n'
        'layers { name: "a" type: CONVOLUTION bottom: "x" top: "y" blobs_lr: 1 blobs_lr: 2\n'
        "  convolution_param { num_output: 4 kernel_size: 3 } }\n"
        'layers { name: "b" type: INNER_PRODUCT bottom: "y" top: "z"\n'
        "  inner_product_param { num_output: 5 } }\n"
    )
    for old in (False, True):
        imported = load(tmp_path, text, caffemodel(BLOBS, old=old))
        assert imported.opset == 1
        assert_close(run(imported, x=X)["z"], WANT)


def test_weights_are_mapped(tmp_path):
    (tmp_path / "net.caffemodel").write_bytes(caffemodel(BLOBS))
    stored, file = read_caffemodel(tmp_path / "net.caffemodel")
    for blobs, arrays in zip(stored.values(), BLOBS.values(), strict=True):
        for blob, array in zip(blobs, arrays, strict=True):
            np.testing.assert_array_equal(blob.array.reshape(array.shape), array)
            assert np.shares_memory(blob.array, file.bytes)
            assert not blob.array.flags.writeable


def test_weights_at_odd_places_survive_being_saved(tmp_path):
    """Mapped floats start at any byte; names of other lengths move them."""
    for length in range(1, 6):
        name = "n" * length
        text = input_of("x", X.shape) + layer(
            "Convolution", "convolution_param { num_output: 4 kernel_size: 3 }", name=name
        )
        imported = load(tmp_path, text, {name: [W, B]})
        imported.weights.save(tmp_path / "saved.safetensors")
        loaded = type(imported.weights).load(tmp_path / "saved.safetensors")
        assert {str(loaded.get(symbol).shape) for symbol in loaded} == {"(4, 3, 3, 3)", "(4,)"}
        for symbol in loaded:
            np.testing.assert_array_equal(loaded.get(symbol), imported.weights.get(symbol))


def test_floats_in_pieces_and_one_by_one(tmp_path):
    """Packed in two runs, and unpacked: forms that protobuf allows and Caffe does not write."""
    net = message_class("NetParameter")
    whole = net.FromString(caffemodel({"a": [noise(2, 2), noise(2)]}))
    values = np.array(whole.layer[0].blobs[0].data, "<f4")
    shape = b"\x3a\x04\x0a\x02\x02\x02"
    pieces = shape + b"\x2a\x08" + values[:2].tobytes() + b"\x2a\x08" + values[2:].tobytes()
    singles = shape + b"".join(b"\x2d" + value.tobytes() for value in values)
    for blob in (pieces, singles):
        inner = b"\x0a\x01a" + bytes([0x3A, len(blob)]) + blob
        (tmp_path / "m.caffemodel").write_bytes(b"\xa2\x06" + bytes([len(inner)]) + inner)
        (found,) = read_caffemodel(tmp_path / "m.caffemodel")[0]["a"]
        np.testing.assert_array_equal(found.array, values)
        assert found.shape == (2, 2)


def test_blobs_in_the_prototxt_are_used(tmp_path):
    text = 'layer { name: "it" type: "PReLU" bottom: "x" top: "y" blobs { shape { dim: 3 }'
    text += " data: 0.5 data: 0.25 data: 2 } }"
    x = noise(2, 3)
    got = run(load(tmp_path, input_of("x", x.shape) + text), x=x)["y"]
    assert_close(got, np.where(x > 0, x, x * [0.5, 0.25, 2]).astype(np.float32))


def test_layers_that_the_network_does_not_have_are_noted(tmp_path):
    imported = load(tmp_path, TEXT, {**BLOBS, "other": [B]})
    assert any("'other'" in note for note in imported.notes)


CASES = {
    "missing layer": ({"a": [W, B]}, r"'b' \(InnerProduct\): the caffemodel has no weights"),
    "missing blob": ({**BLOBS, "a": [W]}, r"'a' \(Convolution\): it has 1 parameters stored"),
    "blob too many": ({**BLOBS, "a": [W, B, B]}, "3 parameters are stored for it, which takes 2"),
    "wrong shape": ({**BLOBS, "b": [V.T, C]}, r"stored with shape \[48, 5\], where \[5, 48\]"),
    "empty": (b"", "the caffemodel has no weights"),
    "cut short": (caffemodel(BLOBS)[:-7], "not a whole caffemodel.*cut short"),
    "text": (b"layer { name: 'a' }", "not a whole caffemodel"),
    "hdf5": (b"\x89HDF\r\n\x1a\n" + bytes(64), "HDF5"),
    "two of a name": (caffemodel(BLOBS) + caffemodel(BLOBS), "two layers of this name"),
    "fewer elements": (
        b"\xa2\x06\x0d\x0a\x01a\x3a\x08\x3a\x02\x0a\x00\x28\x01\x2a\x00",
        "not a whole caffemodel",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_weights_that_do_not_fit(tmp_path, name):
    blobs, message = CASES[name]
    with pytest.raises(TilewrightError, match=message) as caught:
        load(tmp_path, TEXT, blobs)
    assert {problem.code for problem in caught.value.problems} <= {
        "caffe-weights",
        "caffe-caffemodel",
        "caffe-duplicate-name",
    }


def test_all_wrong_weights_are_reported_at_once(tmp_path):
    with pytest.raises(TilewrightError) as caught:
        load(tmp_path, TEXT, {"a": [W[:2], B[:1]], "b": [V]})
    assert [problem.where for problem in caught.value.problems] == [
        "layer 'a' (Convolution)",
        "layer 'a' (Convolution)",
        "layer 'b' (InnerProduct)",
    ]


def test_made_up_weights_are_the_same_every_time(tmp_path):
    first, second = load(tmp_path, TEXT), load(tmp_path, TEXT)
    assert any("weights are random" in note for note in first.notes)
    assert list(first.weights) == list(second.weights)
    np.testing.assert_array_equal(run(first, x=X)["z"], run(second, x=X)["z"])
    renamed = load(tmp_path, TEXT.replace('"b"', '"other"'))
    assert len(set(first.weights) & set(renamed.weights)) == 2
    (weight,) = (array for array in map(first.weights.get, first.weights) if array.ndim == 2)
    assert float(weight.std()) == pytest.approx((2 / 48) ** 0.5, rel=0.15)


def test_shared_parameters_have_one_seed(tmp_path):
    def product(name: str, shared: str) -> str:
        settings = f'param {{ name: "{shared}" }} inner_product_param {{ num_output: 6 '
        return layer("InnerProduct", settings + "bias_term: false }", ["x"], [name], name)

    text = input_of("x", (2, 6)) + product("a", "w") + product("b", "w") + product("c", "v")
    x = noise(2, 6)
    got = run(load(tmp_path, text), x=x)
    np.testing.assert_array_equal(got["a"], got["b"])
    assert np.abs(got["a"] - got["c"]).max() > 0.1
