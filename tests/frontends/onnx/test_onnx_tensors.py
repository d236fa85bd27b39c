"""Constants of a model in every storage: raw, typed, in nodes, outside the file, as inputs."""

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.frontends.onnx.onnx_models import check, model_of, noise, single
from tilewright.errors import TilewrightError
from tilewright.frontends import load
from tilewright.frontends.onnx import import_onnx
from tilewright.frontends.onnx.tensors import array_of
from tilewright.graph.interpreter import interpret

DTYPES = [
    np.float32,
    np.float64,
    np.float16,
    ml_dtypes.bfloat16,
    np.bool_,
    np.int8,
    np.int16,
    np.int32,
    np.int64,
    np.uint8,
    np.uint16,
    np.uint32,
    np.uint64,
]


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_typed_and_raw_data(dtype, raw):
    values = np.arange(-2, 4) if np.dtype(dtype).kind not in "ub" else np.arange(6)
    array = values.reshape(2, 3).astype(dtype)
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    data = array.tobytes() if raw else array.reshape(-1)
    tensor = helper.make_tensor("t", kind, array.shape, data, raw=raw)
    assert tensor.HasField("raw_data") == raw
    found = array_of(tensor)
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


def test_largest_integers():
    for dtype in (np.int64, np.uint64, np.uint32):
        array = np.array([np.iinfo(dtype).min, np.iinfo(dtype).max], dtype)
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        np.testing.assert_array_equal(array_of(helper.make_tensor("t", kind, [2], array)), array)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda t: setattr(t, "raw_data", t.raw_data[:-1]), "onnx-truncated"),
        (lambda t: t.dims.append(2), "onnx-truncated"),
        (lambda t: t.dims.append(-1), "onnx-shape"),
        (lambda t: t.dims.append(2**40), "onnx-too-large"),
        (lambda t: t.dims.extend([1] * 20), "onnx-too-large"),
        (lambda t: setattr(t, "data_type", TensorProto.STRING), "onnx-truncated"),
        (lambda t: setattr(t, "data_type", 99), "onnx-dtype"),
        (lambda t: setattr(t.segment, "begin", 1), "onnx-dtype"),
    ],
)
def test_tensors_that_do_not_add_up_are_refused(change, code):
    tensor = numpy_helper.from_array(noise(2, 3), "t")
    change(tensor)
    with pytest.raises(TilewrightError) as caught:
        array_of(tensor)
    assert [problem.code for problem in caught.value.problems] == [code]
    assert "'t'" in str(caught.value)


def test_constants_in_nodes():
    w = noise(3, 4)
    nodes = [
        helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(w)),
        helper.make_node("Constant", [], ["b"], value_floats=[1.0, 2.0, 3.0, 4.0]),
        helper.make_node("Constant", [], ["f"], value_float=0.5),
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Add", ["a", "b"], ["c"]),
        helper.make_node("Mul", ["c", "f"], ["y"]),
    ]
    check(model_of(nodes, {"x": (2, 3)}, ["y"]))


def test_initializers_listed_as_inputs_are_weights_and_unused_ones_are_dropped():
    model = single("MatMul", [(2, 3), noise(3, 4)])
    for name, sizes in (("x1", [3, 4]), ("unused", [7, 7])):
        model.graph.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes))
    model.graph.initializer.append(numpy_helper.from_array(noise(7, 7), "unused"))
    for version in (3, 8):
        model.ir_version = version
        imported = check(model, {"x0": noise(2, 3)})
        assert len(imported.weights) == 1


def test_equal_weights_are_kept_once():
    nodes = [
        helper.make_node("Add", ["x", "a"], ["t"]),
        helper.make_node("Mul", ["t", "b"], ["y"]),
    ]
    imported = check(model_of(nodes, {"x": (2, 3)}, ["y"], {"a": noise(3), "b": noise(3)}))
    assert len(imported.weights) == 1


@pytest.mark.parametrize("dtype", [np.float64, np.int8, np.int32])
def test_weights_of_other_elements_than_the_operand_are_refused(dtype):
    model = single("MatMul", [(2, 3), noise(3, 4).astype(dtype)])
    with pytest.raises(TilewrightError, match="element type") as caught:
        import_onnx(model)
    assert [problem.code for problem in caught.value.problems] == ["onnx-dtype"]


def test_sparse_tensors_are_refused():
    model = single("MatMul", [(2, 3), noise(3, 4)])
    sparse = onnx.SparseTensorProto()
    sparse.values.name = "sparse one"
    model.graph.sparse_initializer.append(sparse)
    with pytest.raises(TilewrightError, match="'sparse one'"):
        import_onnx(model)


# External data


def external(folder, **entries):
    """A model in ``folder`` whose weights lie in weights.bin behind 64 bytes of something else."""
    w = noise(3, 4)
    (folder / "weights.bin").write_bytes(b"\0" * 64 + w.tobytes() + b"\1" * 16)
    model = single("MatMul", [(2, 3), w])
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    fields = {"location": "weights.bin", "offset": 64, "length": w.nbytes} | entries
    for key, value in fields.items():
        if value is not None:
            entry = tensor.external_data.add()
            entry.key, entry.value = key, str(value)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path, w


@pytest.mark.parametrize("length", [None, 48])
def test_external_data(tmp_path, length):
    path, w = external(tmp_path, length=length)
    imported = load(path)
    x = noise(2, 3)
    got = interpret(imported.module, imported.weights, {"x0": x})["y0"]
    np.testing.assert_allclose(got, x @ w, rtol=1e-5, atol=1e-6)


def test_external_data_of_a_subfolder_and_as_onnx_writes_it(tmp_path):
    (tmp_path / "data").mkdir()
    path, w = external(tmp_path, location="data/w.bin", offset=None)
    (tmp_path / "data" / "w.bin").write_bytes(w.tobytes())
    load(path)
    model = single("MatMul", [(20, 30), noise(30, 40)])
    saved = tmp_path / "saved.onnx"
    onnx.save(model, saved, save_as_external_data=True, location="x.data", size_threshold=0)
    load(saved)


@pytest.mark.parametrize(
    "entries",
    [
        {"location": "missing.bin"},
        {"location": ""},
        {"location": "."},
        {"location": "../outside.bin"},
        {"location": "sub/../../outside.bin"},
        {"location": "..\\outside.bin"},
        {"location": "/etc/passwd"},
        {"location": "C:\\outside.bin"},
        {"location": "link.bin"},
        {"location": "linked/outside.bin"},
        {"location": "name\0.bin"},
        {"location": "long" * 2000},
        {"offset": 100},
        {"offset": -1},
        {"offset": "1e3"},
        {"offset": 2**70},
        {"length": 44},
        {"length": "x"},
    ],
)
def test_external_data_elsewhere_or_of_another_size_is_refused(tmp_path, entries):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "outside.bin").write_bytes(b"\0" * 200)
    (folder / "link.bin").symlink_to(tmp_path / "outside.bin")
    (folder / "linked").symlink_to(tmp_path)
    path, _ = external(folder, **entries)
    with pytest.raises(TilewrightError) as caught:
        load(path)
    assert [problem.code for problem in caught.value.problems] == ["onnx-external-data"]
    assert "'x1'" in str(caught.value)


def test_external_data_needs_a_folder(tmp_path):
    path, _ = external(tmp_path)
    for source in (path.read_bytes(), onnx.load(path, load_external_data=False)):
        with pytest.raises(TilewrightError, match="onnx-external-data"):
            import_onnx(source)
    import_onnx(onnx.load(path))
