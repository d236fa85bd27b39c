"""The cases of ONNX's backend suite: models, data sets, and the suite's own judgement."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, TypeProto, numpy_helper
from onnx.backend.test import BackendTest
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests

from tilewright.errors import TilewrightError
from tilewright.frontends import Imported
from tilewright.integrations.onnx_backend import Given, given, parts, specialised

Array = np.ndarray[Any, Any]

PASSED, NEAR, REFUSED, WRONG = "passed", "near", "refused", "wrong"

NOISE = ("test_dft_inverse", "test_dft_inverse_opset19")
"""Tests whose expected outputs hold 1.9e-7 where the exact result is 0.

That is left of the reference's own rounding, and more than the suite's tolerance of 1e-7. They do
not count as passed; as near they are within 1e-6.
"""


KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator", "real")
"""The suite's groups; the last is of whole networks."""


@cache
def cases(kind: str) -> tuple[TestCase, ...]:
    """A group of the installed onnx, by name, with models and data."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = load_model_tests(kind=kind)
    if kind == "real":
        return tuple(map(_with_light_model, sorted(found, key=lambda case: case.name)))
    if kind != "node":
        return tuple(map(_with_files, sorted(found, key=lambda case: case.name)))
    return tuple(found)


def _with_files(case: TestCase) -> TestCase:
    """A case whose model and data sets lie in a folder."""
    assert case.model_dir is not None
    folder = Path(case.model_dir)
    model = onnx.load(folder / "model.onnx")
    case.model, case.data_sets = model, []
    for data in sorted(folder.glob("test_data_set*")):
        given = _read(data, "input", model.graph.input)
        case.data_sets.append((given, _read(data, "output", model.graph.output)))
    return case


def _read(folder: Path, role: str, values: Sequence[Any]) -> list[Any]:
    count = len(list(folder.glob(f"{role}_*.pb")))
    paths = [folder / f"{role}_{index}.pb" for index in range(count)]
    return [_value(p.read_bytes(), v.type) for p, v in zip(paths, values, strict=False)]


def _value(data: bytes, kind: TypeProto) -> Any:
    if kind.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    return numpy_helper.to_array(TensorProto.FromString(data))


def _with_light_model(case: TestCase) -> TestCase:
    """A bundled network with constant weights; the input is as the suite makes it: a ramp."""
    name = Path(str(case.url)).stem
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    model: ModelProto = onnx.load(folder / f"{name}.onnx")
    stored = {tensor.name for tensor in model.graph.initializer}
    (value,) = (value for value in model.graph.input if value.name not in stored)
    shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    ramp = (np.arange(np.prod(shape)) / np.prod(shape)).astype(np.float32).reshape(shape)
    want = numpy_helper.to_array(onnx.load_tensor(folder / f"{name}_output_0.pb"))
    case.model, case.data_sets = model, [([ramp], [want])]
    return case


@dataclass
class Outcome:
    """What became of one test on one engine."""

    result: str
    reason: str = ""


@dataclass
class Trial:
    """One data set of a test, imported."""

    case: TestCase
    imported: Imported
    feeds: dict[str, Array]
    wanted: Sequence[Given]

    def judge(self, got: Iterable[Array], atol: float | None = None) -> Outcome:
        """Compare with the suite's outputs, as the suite does; ``atol`` replaces its tolerance.

        Sequences have to be of one length; their elements are compared as outputs are.
        """
        have = [self.imported.lists.outputs.get(name, "tensor") for name in self.outputs]
        forms = {list: len, type(None): lambda _: None}
        want = [forms.get(type(value), lambda _: "tensor")(value) for value in self.wanted]
        if have != want:
            return Outcome(WRONG, f"outputs are {have}, not {want}")
        got, least = self.completed(got), self.case.atol if atol is None else atol
        wanted = [array for value in self.wanted for array in parts(value)]
        try:
            BackendTest.assert_similar_outputs(wanted, got, self.case.rtol, least)
        except AssertionError as error:
            if self.case.name in NOISE and atol is None:
                return Outcome(NEAR) if self.judge(got, 1e-6).result == PASSED else Outcome(WRONG)
            return Outcome(WRONG, " ".join(str(error).split())[:300])
        return Outcome(PASSED)

    @property
    def outputs(self) -> list[str]:
        """Names of the model's outputs."""
        return [value.name for value in self.case.model.graph.output]

    def completed(self, got: Iterable[Array]) -> list[Array]:
        """The tensors of outputs with those that have no elements, which no network gives."""
        empty = {output.name: output for output in self.imported.empty}
        rest, outputs, lists = list(got), list[Array](), self.imported.lists.outputs
        for name in self.outputs:
            elements = [f"{name}.{number}" for number in range(lists.get(name) or 0)]
            for each in elements if name in lists else [name]:
                if each in empty:
                    outputs.append(np.zeros(empty[each].shape, empty[each].dtype))
                elif rest:
                    outputs.append(rest.pop(0))
        return outputs


def trials_of(case: TestCase) -> list[Trial] | Outcome:
    """The test's data sets, imported, or why they are not."""
    found: list[Trial] = []
    stored = {tensor.name for tensor in case.model.graph.initializer}
    names = [value.name for value in case.model.graph.input if value.name not in stored]
    for taken, wanted in case.data_sets or []:
        feeds = {name: given(value) for name, value in zip(names, taken, strict=False)}
        try:
            imported, constant = specialised(case.model, feeds)
        except TilewrightError as error:
            problem = error.problems[-1]
            return Outcome(REFUSED, f"{problem.code}: {problem.reason}")
        left = {name: array for name, array in feeds.items() if name not in constant}
        arrays = dict(imported.lists.given(left))
        found.append(Trial(case, imported, arrays, [given(value) for value in wanted]))
    return found
