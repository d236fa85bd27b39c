"""Sequences and optionals as inputs and outputs of models: lists of arrays, and None."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from typer.testing import CliRunner

import tilewright
import tilewright.integrations.onnx_backend as backend
from tests.frontends.onnx.executed import runtime_of
from tests.frontends.onnx.onnx_models import IR_VERSION, noise
from tilewright.cli.main import app
from tilewright.errors import TilewrightError
from tilewright.frontends.onnx import import_onnx

node = helper.make_node
FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
tensor, listed = helper.make_tensor_value_info, helper.make_tensor_sequence_value_info

SHORT, LONG = noise(2, 3), noise(4, 3, seed=1)
GIVEN = {"seq": [SHORT, LONG]}
SHAPES = {"seq.0": (2, 3), "seq.1": (4, 3)}


def optional(name: str, kind: onnx.TypeProto) -> onnx.ValueInfoProto:
    return helper.make_value_info(name, helper.make_optional_type_proto(kind))


def model_of(nodes: Any, inputs: Any, outputs: Any, **constants: Any) -> onnx.ModelProto:
    stored = [onnx.numpy_helper.from_array(np.asarray(a), name) for name, a in constants.items()]
    graph = helper.make_graph(nodes, "lists", inputs, outputs, stored)
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)


def changed(shape: list[Any] | None = None) -> onnx.ModelProto:
    """A sequence of two with the second's Relu before it, and all of it joined."""
    nodes = [
        node("SequenceAt", ["seq", "one"], ["second"]),
        node("Relu", ["second"], ["positive"]),
        node("SequenceInsert", ["seq", "positive", "zero"], ["out"]),
        node("ConcatFromSequence", ["out"], ["joined"], axis=0),
    ]
    outputs = [listed("out", FLOAT, None), tensor("joined", FLOAT, None)]
    inputs = [listed("seq", FLOAT, shape or [None, 3])]
    return model_of(nodes, inputs, outputs, one=np.array(1), zero=np.array(0))


def same(got: Any, want: Any) -> None:
    assert got.keys() == want.keys()
    for name, value in want.items():
        if isinstance(value, list):
            assert isinstance(got[name], list) and len(got[name]) == len(value), name
        for have, array in zip(got[name], value, strict=True):
            np.testing.assert_allclose(have, array, rtol=1e-6, err_msg=name)


def test_lists_go_in_and_come_out_as_of_onnx_runtime(tmp_path: Path) -> None:
    model = changed()
    want = runtime_of(model, GIVEN)  # type: ignore[arg-type]
    executable = tilewright.compile(model, "cpu", shapes=SHAPES, directory=tmp_path / "package")
    elements = {"seq.0": SHORT, "seq.1": LONG}
    loaded = tilewright.Executable.load(tmp_path / "package")
    for package in (executable, loaded):
        for given in (GIVEN, {"seq": (SHORT, LONG)}, elements):
            got = package.run(given)
            same(got, want)
        same(package.reference(GIVEN), want)
        assert package.check(GIVEN, got).passed
    assert executable.check(elements, got).model.passed
    assert [info.name for info in executable.inputs] == ["seq.0", "seq.1"]
    header = (tmp_path / "package/program/include/lists.h").read_text()
    assert "Input seq.1, element 1 of the 2 of seq: float32, 4 x 3." in header
    assert "Output out.2, element 2 of the 3 of out: float32, 4 x 3." in header
    assert "const float *in_seq_0, const float *in_seq_1, float *out_out_0" in header
    (got,) = (
        dict(zip(want, each, strict=True)) for each in [backend.run_model(model, [GIVEN["seq"]])]
    )
    same(got, want)


@pytest.mark.parametrize("high", ["", "8"])
def test_elements_have_free_dims_of_their_own(high: str, tmp_path: Path) -> None:
    """With bounds there may be a plan for all sizes; without, each is compiled."""
    nodes = [
        node("SequenceAt", ["seq", "one"], ["second"]),
        node("Relu", ["second"], ["positive"]),
        node("SequenceErase", ["seq", "one"], ["fewer"]),
        node("SequenceInsert", ["fewer", "positive"], ["out"]),
    ]
    outputs, inputs = [listed("out", FLOAT, None)], [listed("seq", FLOAT, ["n", 3])]
    model = model_of(nodes, inputs, outputs, one=np.array(1))
    onnx.save(model, tmp_path / "model.onnx")
    shapes = {"seq": 2, **{f"seq.{n}": (f"0..{high}" if n else f"1..{high}", 3) for n in range(2)}}
    cache = tilewright.Cache(tmp_path / "cache")
    _ = tilewright.compile(tmp_path / "model.onnx", shapes=shapes, directory=tmp_path / "package")
    executable = tilewright.Executable.load(tmp_path / "package", cache=cache)
    assert list(executable.free) == ["seq.0.0", "seq.1.0"]
    for given in ([SHORT, LONG], [LONG, SHORT]):
        got = executable.run({"seq": given})
        same(got, runtime_of(model, {"seq": given}))  # type: ignore[arg-type]
        assert executable.check({"seq": given}, got).passed
    with pytest.raises(TilewrightError, match=r"\[input-list\].* 2 arrays, and 1 "):
        executable.run({"seq": [SHORT]})


def test_an_optional_is_there_or_not_as_it_was_compiled() -> None:
    kind = helper.make_tensor_type_proto(FLOAT, [4])
    there = helper.make_graph(
        [node("OptionalGetElement", ["bias"], ["b"]), node("Add", ["x", "b"], ["t"])],
        "there", [], [tensor("t", FLOAT, [4])],
    )  # fmt: skip
    other = helper.make_graph([node("Neg", ["x"], ["e"])], "e", [], [tensor("e", FLOAT, [4])])
    nodes = [
        node("OptionalHasElement", ["bias"], ["has"]),
        node("If", ["has"], ["y"], then_branch=there, else_branch=other),
        node("Identity", ["bias"], ["kept"]),
    ]
    inputs = [tensor("x", FLOAT, [4]), optional("bias", kind)]
    outputs = [tensor("y", FLOAT, [4]), tensor("has", BOOL, []), optional("kept", kind)]
    model, x = model_of(nodes, inputs, outputs), noise(4)
    # The reference has no Identity of nothing.
    reference = ReferenceEvaluator(model_of(nodes[:2], inputs, outputs[:2]))
    for bias, constants in (
        (noise(4, seed=2), {}),
        (None, {"bias": None}),
        (None, {"bias": "none"}),
    ):
        executable = tilewright.compile(model, "cpu", constants=constants)
        given = {"x": x, "bias": bias}
        got = executable.run(given)
        for name, want in zip(["y", "has"], reference.run(None, given), strict=True):
            np.testing.assert_array_equal(got[name], want, err_msg=name)
        assert got["kept"] is None if bias is None else (got["kept"] == bias).all()
        assert executable.check(given, got).passed
        with pytest.raises(TilewrightError, match="input-"):
            executable.run({"x": x, "bias": None if bias is not None else x})
    assert executable.run({"x": x}).keys() == {"y", "has", "kept"}


def test_lists_of_nothing() -> None:
    """A list of no arrays is grown; an optional list, and elements of no numbers."""
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, [None]))
    nodes = [
        node("OptionalGetElement", ["seq"], ["held"]),
        node("SequenceInsert", ["held", "x"], ["out"]),
        node("SequenceLength", ["held"], ["n"]),
    ]
    outputs = [listed("out", FLOAT, None), tensor("n", INT, [])]
    model = model_of(nodes, [optional("seq", kind), tensor("x", FLOAT, [4])], outputs)
    x = noise(4)
    for held, shapes in (([], {"seq": 0}), ([x[:0], x[:3]], {"seq.0": [0], "seq.1": [3]})):
        executable = tilewright.compile(model, "cpu", shapes=shapes)
        got = executable.run({"seq": held, "x": x})
        assert got["n"] == len(held)
        assert [list(each) for each in got["out"]] == [list(each) for each in [*held, x]]
        assert executable.check({"seq": held, "x": x}, got).passed


BAD_INPUTS = {
    "shorter": ({"seq": [SHORT]}, "input-list", "'seq': it is a sequence of 2 arrays, and 1 is"),
    "longer": ({"seq": [SHORT] * 3}, "input-list", "and 3 is given"),
    "no list": ({"seq": SHORT}, "input-list", "and ndarray is given"),
    "None": ({"seq": None}, "input-list", "and NoneType is given"),
    "None in it": ({"seq": [SHORT, None]}, "input-list", "'seq.1': None is given for an array"),
    "an element short": ({"seq.0": SHORT}, "input-missing", "'seq.1' is missing"),
    "one too many": ({"seq": [SHORT, LONG], "seq.2": LONG}, "input-name", "no input 'seq.2'"),
    "another order": ({"seq": [LONG, SHORT]}, "input-shape", "seq.0: has shape"),
    "another type": ({"seq": [SHORT, LONG.astype(int)]}, "input-dtype", "seq.1"),
    "nothing": ({}, "input-missing", "'seq.0' is missing"),
}


@pytest.fixture(scope="module")
def package() -> tilewright.Executable:
    return tilewright.compile(changed(), "cpu", shapes=SHAPES)


@pytest.mark.parametrize("bad", BAD_INPUTS)
def test_bad_lists(bad: str, package: tilewright.Executable) -> None:
    inputs, code, reason = BAD_INPUTS[bad]
    for function in (package.run, package.reference)[: 1 + (code == "input-list")]:
        with pytest.raises(TilewrightError, match=reason) as refusal:
            function(inputs)
        assert [problem.code for problem in refusal.value.problems] == [code]
    same(package.run(GIVEN), package.reference(GIVEN))


BAD_SHAPES = {
    "no length": (None, "shape-open", "no number from 0 to 1024 is its length"),
    "no number": ({"seq": "n"}, "shape-open", "no number from 0"),
    "a shape": ({"seq": (2, 3)}, "shape-open", "no number from 0"),
    "bounds": ({"seq": "1..4"}, "shape-open", "no number from 0"),
    "too long": ({"seq": 1025}, "shape-open", "no number from 0"),
    "too short": ({"seq": 1, **SHAPES}, "shape-open", "no number from 2 to 1024 is its length"),
    "another size": ({**SHAPES, "seq.1": (4, 4)}, "shape-fixed", "which is 3"),
    "another rank": ({**SHAPES, "seq.1": (4,)}, "shape-rank", "rank 2"),
}


@pytest.mark.parametrize("bad", BAD_SHAPES)
def test_bad_lengths(bad: str) -> None:
    shapes, code, reason = BAD_SHAPES[bad]
    for function in (import_onnx, tilewright.compile):
        with pytest.raises(TilewrightError, match=reason) as refusal:
            function(changed(), shapes=shapes)  # type: ignore[arg-type]
        assert [problem.code for problem in refusal.value.problems] == [code]


def test_elements_without_a_rank_are_given_shapes() -> None:
    model = model_of(
        [node("ConcatFromSequence", ["seq"], ["y"], axis=0)],
        [listed("seq", FLOAT, None)], [tensor("y", FLOAT, None)],
    )  # fmt: skip
    with pytest.raises(TilewrightError, match=r"'seq.1': the model does not state its shape"):
        tilewright.compile(model, shapes={"seq": 2, "seq.0": (2, 3)})
    same(tilewright.compile(model, shapes=SHAPES).run(GIVEN), runtime_of(model, GIVEN))  # type: ignore[arg-type]


def test_what_is_no_list_and_names_that_lists_take() -> None:
    length = node("SequenceLength", ["seq"], ["n"])
    count = tensor("n", INT, [])
    for constants, code in (({"seq": None}, "input-dtype"), ({"seq": [1.0]}, "onnx-dtype")):
        with pytest.raises(TilewrightError, match=code):
            import_onnx(
                model_of([length], [listed("seq", FLOAT, [3])], [count]), constants=constants
            )  # type: ignore[arg-type]
    twice = [listed("seq", FLOAT, [3]), tensor("seq.0", FLOAT, [3])]
    with pytest.raises(TilewrightError, match=r"'seq.0': it is declared twice"):
        import_onnx(model_of([length], twice, [count]), shapes={"seq": 1})
    nodes = [node("SequenceConstruct", ["x"], ["out"]), node("Relu", ["x"], ["out.0"])]
    outputs = [listed("out", FLOAT, [3]), tensor("out.0", FLOAT, [3])]
    with pytest.raises(TilewrightError, match=r"'out.0': a sequence has an element of this name"):
        import_onnx(model_of(nodes, [tensor("x", FLOAT, [3])], outputs))
    tensors = [tensor("out", FLOAT, [3]), listed("out.0", FLOAT, [3])]
    with pytest.raises(TilewrightError) as refusal:
        import_onnx(model_of(nodes, [tensor("x", FLOAT, [3])], tensors))
    assert [problem.code for problem in refusal.value.problems] == ["onnx-dtype", "onnx-dtype"]


def test_an_element_may_have_a_size_that_data_decide() -> None:
    nodes = [node("NonZero", ["x"], ["places"]), node("SequenceConstruct", ["places"], ["out"])]
    model = model_of(nodes, [tensor("x", FLOAT, [6])], [listed("out", INT, None)])
    executable = tilewright.compile(model)
    for x in (np.float32([0, 1, 0, 0, 2, 0]), np.zeros(6, np.float32)):
        got = executable.run({"x": x})
        same(got, runtime_of(model, {"x": x}))
        same(got, executable.reference({"x": x}))
        assert executable.check({"x": x}, got).passed


def test_lengths_that_a_run_decides_are_refused() -> None:
    def refused(each: Any, *inputs: Any, reason: str, shapes: Any = None) -> None:
        model = model_of([each], inputs, [listed("out", FLOAT, None)])
        with pytest.raises(TilewrightError, match=reason) as refusal:
            import_onnx(model, shapes=shapes)
        assert [problem.code for problem in refusal.value.problems] == ["onnx-shape"]

    x, seq = tensor("x", FLOAT, [6]), listed("seq", FLOAT, [6])
    split = node("SplitToSequence", ["x", "sizes"], ["out"], axis=0)
    refused(split, x, tensor("sizes", INT, [2]), reason="sizes are computed at run time")
    body = helper.make_graph(
        [node("Identity", ["going"], ["go"]), node("SequenceInsert", ["list", "x"], ["longer"])],
        "body",
        [tensor("i", INT, []), tensor("going", BOOL, []), listed("list", FLOAT, None)],
        [tensor("go", BOOL, []), listed("longer", FLOAT, None)],
    )
    loop = node("Loop", ["rounds", "", "seq"], ["out"], body=body)
    inputs = x, seq, tensor("rounds", INT, [])
    refused(loop, *inputs, reason="a run decides its rounds, and they carry", shapes={"seq": 0})


def test_the_command_line_takes_elements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))

    def command(*words: object) -> Any:
        return CliRunner().invoke(app, [*map(str, words), "--quiet"])

    model, archive, out = (tmp_path / name for name in ("model.onnx", "in.npz", "out.npz"))
    onnx.save(changed(), model)
    np.savez(archive, **{"seq.0": SHORT, "seq.1": LONG})
    for name, array in (("short", SHORT), ("long", LONG)):
        np.save(tmp_path / f"{name}.npy", array)
    alone = [f"seq.0={tmp_path / 'short.npy'}", f"seq.1={tmp_path / 'long.npy'}"]
    for inputs in ([archive], alone, alone):  # The last one finds what was compiled.
        options = [word for each in inputs for word in ("--input", each)]
        result = command("run", model, *options, "--check", "-o", out)
        assert result.exit_code == 0, result.output
        with np.load(out) as found:
            assert {name: array.shape for name, array in found.items()} == {
                "joined": (10, 3), "out.0": (4, 3), "out.1": (2, 3), "out.2": (4, 3),
            }  # fmt: skip
            np.testing.assert_array_equal(found["out.0"], np.maximum(LONG, 0))
    made = [word for name, shape in SHAPES.items() for word in ("--shape", f"{name}={shape[0]}x3")]
    assert command("compile", model, *made, "-o", tmp_path / "package").exit_code == 0
    assert command("run", tmp_path / "package", "--input", archive, "--check").exit_code == 0
    assert command("run", model, "--shape", "seq=3", "--check").exit_code == 0
    result = command("run", model)
    assert result.exit_code == 2 and "[shape-open] input 'seq'" in result.output
