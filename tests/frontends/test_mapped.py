"""Weights are views of the model's file, which is looked at again before they are read."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, helper, numpy_helper

import tilewright
from tests.frontends.caffe.caffe_models import caffemodel, input_of, layer
from tests.frontends.onnx.onnx_models import model_of, noise, single
from tilewright.errors import TilewrightError
from tilewright.frontends.onnx import import_onnx
from tilewright.frontends.onnx.lean import LARGE, WITHIN, lean_model
from tilewright.graph.interpreter import interpret
from tilewright.graph.spill import Spill
from tilewright.graph.weights import Weights

SIDE = 160
"""Square weights of this side are larger than what is copied."""


def saved(folder: Path, model: ModelProto, **options: object) -> Path:
    onnx.save(model, folder / "model.onnx", **options)  # type: ignore[arg-type]
    return folder / "model.onnx"


def product(weight: np.ndarray) -> ModelProto:
    return single("MatMul", [(2, weight.shape[0]), weight])


def lies_in_a_file(array: np.ndarray) -> bool:
    return not array.flags.owndata and not array.flags.writeable


def as_constant(model: ModelProto) -> ModelProto:
    """Weights made by Constant nodes instead."""
    nodes = [
        helper.make_node("Constant", [], [tensor.name], value=tensor)
        for tensor in model.graph.initializer
    ]
    nodes += model.graph.node
    del model.graph.node[:], model.graph.initializer[:]
    model.graph.node.extend(nodes)
    return model


def through_views(weight: np.ndarray) -> ModelProto:
    """The weight is reshaped, and squeezed, before it is used."""
    nodes = [
        helper.make_node("Unsqueeze", ["w", "zero"], ["u"]),
        helper.make_node("Identity", ["u"], ["i"]),
        helper.make_node("Squeeze", ["i", "zero"], ["s"]),
        helper.make_node("Reshape", ["s", "shape"], ["r"]),
        helper.make_node("MatMul", ["x0", "r"], ["y0"]),
    ]
    constants = {"w": weight, "zero": np.array([0]), "shape": np.array(weight.shape)}
    return model_of(nodes, {"x0": (2, weight.shape[0])}, ["y0"], constants)


@pytest.mark.parametrize("make", [product, lambda w: as_constant(product(w)), through_views])
@pytest.mark.parametrize("outside", [False, True])
def test_weights_are_views_of_the_file(
    tmp_path: Path, make: Callable[[np.ndarray], ModelProto], outside: bool
) -> None:
    weight = noise(SIDE, SIDE)
    options = {"save_as_external_data": True, "convert_attribute": True} if outside else {}
    imported = tilewright.load(saved(tmp_path, make(weight), **options))
    (kept,) = [imported.weights.get(symbol) for symbol in imported.weights]
    np.testing.assert_array_equal(kept, weight)
    assert len(imported.files) == 1 + outside
    assert any(np.shares_memory(kept, file.bytes) for file in imported.files)


def test_bytes_in_memory_are_not_copied() -> None:
    weight = noise(SIDE, SIDE)
    data = product(weight).SerializeToString()
    imported = import_onnx(data)
    (kept,) = [imported.weights.get(symbol) for symbol in imported.weights]
    assert np.shares_memory(kept, np.frombuffer(data, np.uint8))
    assert imported.digest == import_onnx(ModelProto.FromString(data)).digest


def test_caffe_weights_are_views_of_the_file(tmp_path: Path) -> None:
    weight = noise(SIDE, SIDE)
    settings = f"inner_product_param {{ num_output: {SIDE} bias_term: false }}"
    text = input_of("x", (2, SIDE)) + layer("InnerProduct", settings)
    (tmp_path / "net.prototxt").write_text(text)
    (tmp_path / "net.caffemodel").write_bytes(caffemodel({"it": [weight]}))
    imported = tilewright.load(tmp_path / "net.prototxt", caffemodel=tmp_path / "net.caffemodel")
    arrays = [imported.weights.get(symbol) for symbol in imported.weights]
    assert any(np.shares_memory(array, imported.files[0].bytes) for array in arrays)


def hundred_megabytes(folder: Path) -> Path:
    """Five square weights of 20 MB each."""
    nodes = [helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"]) for i in range(5)]
    weights = {f"w{i}": np.full((2240, 2240), i, np.float32) for i in range(5)}
    return saved(folder, model_of(nodes, {"x0": (1, 2240)}, ["x5"], weights))


@pytest.mark.slow
def test_a_large_import_allocates_little(tmp_path: Path) -> None:
    path = hundred_megabytes(tmp_path)
    assert path.stat().st_size > 100e6
    tracemalloc.start()
    imported = tilewright.load(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert imported.weights.bytes > 100e6
    assert peak < 8e6


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is told by /proc")
def test_a_large_import_takes_little_memory_of_its_own(tmp_path: Path) -> None:
    """Also what protobuf allocates, which Python does not see."""
    program = """if True:
        import sys, tilewright
        def own():
            lines = open("/proc/self/status").read().splitlines()
            return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))
        tilewright.load(sys.argv[1])
        first = own()
        kept = tilewright.load(sys.argv[2])
        print(own() - first)
    """
    (tmp_path / "small").mkdir()
    small = saved(tmp_path / "small", product(noise(4, 4)))
    command = [sys.executable, "-c", program, str(small), str(hundred_megabytes(tmp_path))]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(ran.stdout) < 16_000


def test_results_are_those_of_a_parsed_model(tmp_path: Path) -> None:
    weight = noise(SIDE, SIDE)
    model = product(weight)
    imported = tilewright.load(saved(tmp_path, model))
    parsed = import_onnx(model)
    x = {"x0": noise(2, SIDE)}
    found = interpret(imported.module, imported.weights, x)["y0"]
    np.testing.assert_array_equal(found, interpret(parsed.module, parsed.weights, x)["y0"])
    assert list(imported.weights) == list(parsed.weights)


# Files that change


@pytest.mark.parametrize("change", ["cut", "grow", "rewrite"])
def test_a_file_that_changes_is_refused(tmp_path: Path, change: str) -> None:
    path = saved(tmp_path, product(noise(SIDE, SIDE)))
    imported = tilewright.load(path)
    data = path.read_bytes()
    with path.open("r+b") as file:
        if change == "cut":
            file.truncate(LARGE)
        else:
            file.write(data + (b"\0" if change == "grow" else b""))
    os.utime(path, ns=(1, 1))
    with pytest.raises(TilewrightError) as caught:
        tilewright.compile(imported, "cpu")
    assert [problem.code for problem in caught.value.problems] == ["model-changed"]


def test_a_file_that_is_replaced_does_no_harm(tmp_path: Path) -> None:
    weight = noise(SIDE, SIDE)
    path = saved(tmp_path, product(weight))
    imported = tilewright.load(path)
    (tmp_path / "other").write_bytes(b"")
    (tmp_path / "other").replace(path)
    executable = tilewright.compile(imported, "cpu")
    x = noise(2, SIDE)
    np.testing.assert_allclose(executable.run({"x0": x})["y0"], x @ weight, rtol=1e-4, atol=1e-4)


# Lean models


def tensors_of(model: ModelProto) -> list[onnx.TensorProto]:
    return list(model.graph.initializer)


def lean(model: ModelProto, more: bytes = b"") -> ModelProto:
    return ModelProto.FromString(lean_model(np.frombuffer(model.SerializeToString() + more, "u1")))


def test_large_constants_refer_to_the_bytes() -> None:
    weight = noise(SIDE, SIDE)
    model = product(weight)
    data = model.SerializeToString()
    (tensor,) = tensors_of(lean(model))
    place = {entry.key: entry.value for entry in tensor.external_data}
    assert place.pop("location") == WITHIN
    start, length = int(place["offset"]), int(place["length"])
    assert data[start : start + length] == weight.tobytes()
    assert not tensor.HasField("raw_data")
    small = product(noise(4, 4))
    assert lean(small) == small


def test_what_is_not_plain_is_left_to_protobuf() -> None:
    model = product(noise(SIDE, SIDE))
    twice = product(noise(SIDE, SIDE))
    twice.graph.initializer[0].data_location = onnx.TensorProto.DEFAULT
    assert lean(twice) == twice
    typed = product(noise(SIDE, SIDE))
    values = numpy_helper.to_array(typed.graph.initializer[0]).reshape(-1)
    typed.graph.initializer[0].ClearField("raw_data")
    typed.graph.initializer[0].float_data.extend(values)
    assert lean(typed) == typed
    broken = np.frombuffer(model.SerializeToString()[:-100], np.uint8)
    assert lean_model(broken) == broken.tobytes()


def test_messages_in_pieces_merge_as_protobuf_merges_them() -> None:
    """Two graph fields of a model are one graph, also where both have large constants."""
    first = product(noise(SIDE, SIDE))
    second = ModelProto()
    second.graph.initializer.add().CopyFrom(numpy_helper.from_array(noise(SIDE, SIDE, seed=1), "b"))
    found = tensors_of(lean(first, second.SerializeToString()))
    assert [tensor.name for tensor in found] == ["x1", "b"]
    assert all(tensor.external_data[0].value == WITHIN for tensor in found)


def test_a_hostile_place_within_the_model_is_refused() -> None:
    model = product(noise(4, 4))
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", WITHIN), ("offset", 1 << 40), ("length", 64)):
        tensor.external_data.add(key=key, value=str(value))
    for source in (model, model.SerializeToString()):
        with pytest.raises(TilewrightError) as caught:
            import_onnx(source)
        assert [problem.code for problem in caught.value.problems] == ["onnx-external-data"]


# Computed weights


def test_large_computed_weights_go_to_a_file() -> None:
    spill = Spill(large=1000)
    arrays = [noise(30, 30), noise(3, 3), np.arange(3000, dtype=np.int16)]
    kept = [spill.keep(array) for array in arrays]
    for array, found in zip(arrays, kept, strict=True):
        np.testing.assert_array_equal(found, array)
        assert found.dtype == array.dtype
    assert kept[1] is arrays[1]
    assert lies_in_a_file(kept[0]) and lies_in_a_file(kept[2])
    del spill
    np.testing.assert_array_equal(kept[0], arrays[0])


def test_without_room_weights_stay_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "write", full)
    array = np.ones(1 << 21, np.float32)
    store = Weights()
    symbol = store.add(array, "w")
    array[0] = 2
    assert store.get(symbol)[0] == 1
