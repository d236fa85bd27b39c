"""Caffe models that are refused: what is said, that all of it is said, and nothing else happens."""

import re

import pytest
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.frontends.caffe.caffe_models import caffemodel, input_of, layer, load, noise
from tilewright import frontends
from tilewright.errors import TilewrightError
from tilewright.frontends.caffe import limits
from tilewright.frontends.caffe.schema import message_class
from tilewright.frontends.caffe.stored import read_caffemodel

IMAGE = input_of("x", (1, 4, 6, 6))
FLAT = input_of("x", (2, 3))


def conv(text: str) -> str:
    return IMAGE + layer("Convolution", f"convolution_param {{ {text} }}")


def pool(text: str) -> str:
    return IMAGE + layer("Pooling", f"pooling_param {{ {text} }}")


CASES = {
    "no text": ("\x00\x01", "caffe-syntax", "line 1"),
    "empty": ("", "caffe-syntax", "no layers"),
    "unclosed": ('layer { name: "a"', "caffe-syntax", "line 1"),
    "wrong kind": ("layer { name: 3 }", "caffe-syntax", "line 1"),
    "unknown enum": (pool("pool: MEDIAN"), "caffe-syntax", "MEDIAN"),
    "unknown field": (pool("kernel_size: 2 shape: 3"), "caffe-field", 'no field named "shape"'),
    "deep": ("a {" * 5000, "caffe-syntax", "nested too deep"),
    "only data": ('layer { name: "l" type: "Accuracy" }', "caffe-syntax", "no layers"),
    "no output": (FLAT, "caffe-no-output", "left over"),
    "oldest form": ('layers { layer { name: "c" type: "conv" } }', "caffe-form", "oldest"),
    "both forms": (FLAT + layer("ReLU") + "layers { type: RELU }", "caffe-form", "both forms"),
    "unknown type": (FLAT + layer("Frobnicate"), "caffe-unsupported-layer", "'it' (Frobnicate)"),
    "no type": (FLAT + layer(""), "caffe-unsupported-layer", "type"),
    "missing blob": (FLAT + layer("ReLU", "", ["z"]), "caffe-missing-blob", "'z'"),
    "blob of a loss": (
        FLAT + layer("EuclideanLoss", "", ["x", "x"], ["l"], "loss") + layer("ReLU", "", ["l"]),
        "caffe-missing-blob",
        "'loss' (EuclideanLoss) is left out",
    ),
    "made twice": (
        FLAT + layer("ReLU") + layer("TanH", name="again"),
        "caffe-duplicate-name",
        "'again' (TanH): it makes the blob 'y'",
    ),
    "input twice": (FLAT + FLAT + layer("ReLU"), "caffe-duplicate-name", "'x': it is made twice"),
    "two layers of a name": (
        FLAT + layer("PReLU") + layer("PReLU", tops=["z"]),
        "caffe-duplicate-name",
        "another layer with parameters",
    ),
    "include and exclude": (
        FLAT + layer("ReLU", "include { } exclude { phase: TRAIN }"),
        "caffe-parameter",
        "include and exclude",
    ),
    "pooling in place": (
        IMAGE + layer("Pooling", "pooling_param { kernel_size: 1 }", ["x"], ["x"]),
        "caffe-parameter",
        "in place",
    ),
    "no bottoms": (FLAT + layer("ReLU", "", []), "caffe-parameter", "no bottoms"),
    "two bottoms": (FLAT + layer("ReLU", "", ["x", "x"]), "caffe-parameter", "2 bottoms"),
    "two tops": (
        IMAGE + layer("Pooling", "pooling_param { kernel_size: 2 }", tops=["y", "mask"]),
        "caffe-parameter",
        "2 tops",
    ),
    "input with a bottom": (
        FLAT + layer("Input", "input_param { shape { dim: 1 } }") + layer("ReLU", "", ["y"], ["z"]),
        "caffe-parameter",
        "no bottoms",
    ),
    "no size": (input_of("x", ()) + layer("Softmax"), "caffe-parameter", "rank 0"),
    "size of 0": (input_of("x", (2, 0)) + layer("ReLU"), "caffe-shape", "1 or more"),
    "negative size": (input_of("x", (2, -3)) + layer("ReLU"), "caffe-shape", "[2, -3]"),
    "input_dim missing": ('input: "x" input_dim: 3 ' + layer("ReLU"), "caffe-shape", "four"),
    "no num_output": (conv("kernel_size: 3"), "caffe-parameter", "num_output 0"),
    "no kernel": (conv("num_output: 2"), "caffe-parameter", "no kernel_size"),
    "kernel twice": (
        conv("num_output: 2 kernel_size: 3 kernel_h: 3"), "caffe-parameter", "one of them",
    ),
    "half a kernel": (conv("num_output: 2 kernel_h: 3"), "caffe-parameter", "kernel_h alone"),
    "three axes": (
        conv("num_output: 2 kernel_size: [3, 3, 3]"), "caffe-parameter", "3 values",
    ),
    "no stride": (conv("num_output: 2 kernel_size: 3 stride: 0"), "caffe-parameter", "stride"),
    "groups": (conv("num_output: 2 kernel_size: 1 group: 3"), "caffe-shape", "3 groups"),
    "no groups": (conv("num_output: 2 kernel_size: 1 group: 0"), "caffe-shape", "0 groups"),
    "other axis": (conv("num_output: 2 kernel_size: 1 axis: 2"), "caffe-parameter", "axis 2"),
    "kernel too large": (conv("num_output: 2 kernel_size: 9"), "caffe-shape", "exceeds"),
    "no image": (
        FLAT + layer("Convolution", "convolution_param { num_output: 2 kernel_size: 1 }"),
        "caffe-shape",
        "images",
    ),
    "huge layer": (
        conv("num_output: 16000000 kernel_size: 5"), "caffe-too-large", "1600000000 elements",
    ),
    "huge result": (
        conv("num_output: 1 kernel_size: 1 bias_term: false pad: 15000000"),
        "caffe-shape",
        "elements",
    ),
    "stochastic": (pool("pool: STOCHASTIC kernel_size: 2"), "caffe-parameter", "STOCHASTIC"),
    "wide pads": (pool("kernel_size: 2 pad: 2"), "caffe-parameter", "as large as the kernel"),
    "global kernel": (pool("global_pooling: true kernel_size: 2"), "caffe-parameter", "kernel"),
    "global pads": (pool("global_pooling: true pad: 1"), "caffe-parameter", "neither"),
    "even window": (
        IMAGE + layer("LRN", "lrn_param { local_size: 4 }"), "caffe-parameter", "not odd",
    ),
    "negative alpha": (IMAGE + layer("LRN", "lrn_param { alpha: -1 }"), "caffe-shape", "alpha"),
    "not finite": (
        FLAT + layer("ReLU", "relu_param { negative_slope: nan }"), "caffe-parameter", "finite",
    ),
    "batch statistics": (
        IMAGE + layer("BatchNorm", "batch_norm_param { use_global_stats: false }"),
        "caffe-parameter",
        "set use_global_stats to true",
    ),
    "axis out of range": (
        FLAT + layer("Softmax", "softmax_param { axis: 2 }"), "caffe-parameter", "axis 2",
    ),
    "scale beyond": (
        FLAT + layer("Scale", "scale_param { num_axes: 2 }"), "caffe-parameter", "rank 2",
    ),
    "slice points": (
        FLAT + layer("Slice", "slice_param { slice_point: 5 }", tops=["a", "b"]),
        "caffe-parameter",
        "do not rise",
    ),
    "uneven slice": (FLAT + layer("Slice", tops=["a", "b"]), "caffe-parameter", "2 parts"),
    "concat of others": (
        FLAT + input_of("z", (3, 3)) + layer("Concat", "", ["x", "z"]), "caffe-shape", "operand 1",
    ),
    "eltwise of others": (
        FLAT + input_of("z", (2, 1)) + layer("Eltwise", "", ["x", "z"]), "caffe-shape", "[2, 1]",
    ),
    "eltwise coefficients": (
        FLAT + layer("Eltwise", "eltwise_param { coeff: 1 }", ["x", "x"]),
        "caffe-parameter",
        "1 coefficients",
    ),
    "reshape": (
        FLAT + layer("Reshape", "reshape_param { shape { dim: 4 dim: -1 } }"),
        "caffe-parameter",
        "does not divide",
    ),
    "reshape to others": (
        FLAT + layer("Reshape", "reshape_param { shape { dim: 5 } }"), "caffe-shape", "reshaped",
    ),
    "crop": (
        IMAGE + input_of("z", (1, 4, 6, 7)) + layer("Crop", "", ["x", "z"]),
        "caffe-shape",
        "leaves",
    ),
    "log to the base 1": (
        FLAT + layer("Log", "log_param { base: 1 }"), "caffe-parameter", "base 1",
    ),
    "power of nothing": (
        FLAT + layer("Power", "power_param { scale: 0 power: -1 }"), "caffe-parameter", "power of",
    ),
    "beyond float32": (
        FLAT + layer("Exp", "exp_param { base: 3e38 scale: 3e38 }"), "caffe-parameter", "float32",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_refusals(name, tmp_path):
    text, code, words = CASES[name]
    with pytest.raises(TilewrightError) as caught:
        load(tmp_path, text)
    problems = caught.value.problems
    assert any(problem.code == code and words in str(problem) for problem in problems), problems


def test_all_problems_come_at_once(tmp_path):
    text = (
        IMAGE
        + layer("Frobnicate", "", ["x"], ["a"], "first")
        + layer("Pooling", "pooling_param { }", ["x"], ["b"], "second")
        + layer("Blub", "", ["a"], ["c"], "third")
        + layer("ReLU", "", ["a"], ["c2"], "depends on a refused one")
        + layer("ReLU", "", ["nowhere"], ["d"], "fourth")
        + layer("InnerProduct", "", ["x"], ["e"], "fifth")
    )
    with pytest.raises(TilewrightError) as caught:
        load(tmp_path, text)
    found = {re.search(r"'(\w+)'", problem.where)[1] for problem in caught.value.problems}
    assert found == {"first", "second", "third", "fourth", "fifth"}


def test_files_that_are_not_there(tmp_path):
    (tmp_path / "folder.prototxt").mkdir()
    for path in (tmp_path / "no.prototxt", tmp_path / "folder.prototxt", "nul\0.prototxt"):
        with pytest.raises(TilewrightError, match="caffe-missing-file"):
            frontends.load(path)
    (tmp_path / "net.prototxt").write_text(FLAT + layer("ReLU"))
    with pytest.raises(TilewrightError, match=r"caffe-missing-file.*no\.caffemodel"):
        frontends.load(tmp_path / "net.prototxt", caffemodel=tmp_path / "no.caffemodel")
    with pytest.raises(TilewrightError, match=r"model-format.*give the prototxt"):
        frontends.load(tmp_path / "net.caffemodel")
    with pytest.raises(TilewrightError, match="model-weights"):
        frontends.load(tmp_path / "net.onnx", caffemodel=tmp_path / "net.caffemodel")


def test_long_texts_are_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr("tilewright.frontends.caffe.reader.MAX_TEXT_BYTES", 50)
    with pytest.raises(TilewrightError, match="caffe-too-large"):
        load(tmp_path, FLAT + layer("ReLU"))


def test_the_number_of_layers_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("tilewright.frontends.caffe.net.MAX_LAYERS", 1)
    with pytest.raises(TilewrightError, match="more than 1 layers"):
        load(tmp_path, FLAT + layer("ReLU"))


def test_the_number_of_made_up_weights_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("tilewright.frontends.caffe.stored.MAX_SEEDED_ELEMENTS", 10)
    with pytest.raises(TilewrightError, match="more than 10 weights"):
        load(tmp_path, FLAT + layer("InnerProduct", "inner_product_param { num_output: 4 }"))


def test_the_number_of_fields_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("tilewright.frontends.caffe.stored.MAX_FIELDS", 100)
    (tmp_path / "m.caffemodel").write_bytes(b"\x08\x00" * 101)
    with pytest.raises(TilewrightError, match="too many fields"):
        read_caffemodel(tmp_path / "m.caffemodel")
    assert limits.MAX_FIELDS > 2**16


SEED = (
    IMAGE
    + layer(
        "Convolution", "convolution_param { num_output: 2 kernel_size: 3 pad: 1 }", ["x"], ["a"]
    )
    + layer("BatchNorm", "", ["a"], ["a"], "bn")
    + layer("Scale", "scale_param { bias_term: true }", ["a"], ["a"], "s")
    + layer("Pooling", "pooling_param { pool: AVE kernel_size: 3 stride: 2 }", ["a"], ["b"], "p")
    + layer("LRN", "lrn_param { norm_region: WITHIN_CHANNEL }", ["b"], ["c"], "n")
    + layer("Slice", "slice_param { axis: 1 slice_point: 1 }", ["c"], ["d", "e"], "sl")
    + layer("Eltwise", "eltwise_param { coeff: 1 coeff: -1 }", ["d", "e"], ["f"], "el")
    + layer("InnerProduct", "inner_product_param { num_output: 3 }", ["f"], ["g"], "ip")
    + layer("Reshape", "reshape_param { shape { dim: 0 dim: -1 } }", ["g"], ["h"], "re")
)
WORDS = sorted(set(re.findall(r'\w+|[{}:"]|-', SEED)) | {"Deconvolution", "Crop", "dilation", "-7"})


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_changed_texts_load_or_are_refused(tmp_path_factory, data):
    """Words of a good text are dropped, doubled and exchanged; numbers become others."""
    words = re.findall(r'"[^"]*"|\w+|[{}:]|-', SEED)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(words) - 1))
        kind = data.draw(st.sampled_from(["drop", "double", "word", "number", "swap"]))
        if kind == "drop":
            del words[at]
        elif kind == "double":
            words.insert(at, words[at])
        elif kind == "word":
            words[at] = data.draw(st.sampled_from(WORDS))
        elif kind == "number":
            places = [i for i, word in enumerate(words) if word.isdigit()] or [at]
            place = data.draw(st.sampled_from(places))
            words[place] = str(data.draw(st.integers(-3, 40) | st.just(2**31 - 1)))
        else:
            other = data.draw(st.integers(0, len(words) - 1))
            words[at], words[other] = words[other], words[at]
    folder = tmp_path_factory.mktemp("fuzz")
    try:
        imported = load(folder, " ".join(words))
    except TilewrightError as error:
        assert all(re.match(r"(caffe|weights)-", problem.code) for problem in error.problems)
    else:
        imported.module.verify()


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.text(alphabet='layer{}:"ntypbomx0123456789.-#\n [],<>\x00\u00e9', max_size=60))
def test_any_text_loads_or_is_refused(tmp_path_factory, text):
    with pytest.raises(TilewrightError):
        load(tmp_path_factory.mktemp("fuzz"), text)


PRELU = input_of("x", (2, 3)) + layer("PReLU")
GOOD = caffemodel({"it": [noise(3)], "other": [noise(2, 2)]})


@pytest.mark.slow
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_changed_bytes_load_or_are_refused(tmp_path_factory, data):
    """Where protobuf itself reads other weights from the same bytes, something is wrong."""
    changed = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del changed[data.draw(st.integers(0, len(changed))) :]
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "m.caffemodel").write_bytes(changed)
    try:
        found, _ = read_caffemodel(folder / "m.caffemodel")
    except TilewrightError as error:
        assert all(problem.code.startswith("caffe-") for problem in error.problems)
        return
    try:
        net = message_class("NetParameter").FromString(bytes(changed))
    except DecodeError:  # in a part that holds no weights, which is skipped unread
        return
    want = [
        [list(blob.double_data or blob.data) for blob in item.blobs]
        for item in (*net.layer, *net.layers)
        if item.blobs
    ]
    got = [[blob.array.tolist() for blob in blobs] for blobs in found.values()]
    assert str(sorted(map(str, got))) == str(sorted(map(str, want)))


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "m.caffemodel").write_bytes(data)
    try:
        read_caffemodel(folder / "m.caffemodel")
    except TilewrightError as error:
        assert all(problem.code == "caffe-caffemodel" for problem in error.problems)
