"""Random cases: a model and its inputs; how they are built fast, kept, and judged."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import ModelProto

from tests.fuzz.builder import Graph, data_of
from tests.fuzz.images import IMAGES
from tests.fuzz.others import OTHERS
from tests.fuzz.tensors import TENSORS
from tests.quick_build import build
from tilewright.report.agreement import Agreement, agreement, outputs_of
from tilewright.runtime import Executable
from tilewright.targets.cpu.runner import CpuRunner

Array = np.ndarray[Any, Any]

MOST_STEPS = 10
"""Draws of one or a few nodes."""


@dataclass(frozen=True)
class Case:
    """A model and its inputs."""

    model: ModelProto
    inputs: Mapping[str, Array]

    def __repr__(self) -> str:
        nodes = ", ".join(node.op_type for node in self.model.graph.node)
        return f"Case({nodes})"

    def save(self, folder: Path) -> Path:
        """Write it as ``NAME.onnx`` and ``NAME.npz``, which ``tilewright replay`` takes."""
        folder.mkdir(parents=True, exist_ok=True)
        data = self.model.SerializeToString(deterministic=True)
        path = folder / f"{sha256(data).hexdigest()[:12]}.onnx"
        path.write_bytes(data)
        np.savez(path.with_suffix(".npz"), allow_pickle=False, **self.inputs)
        return path

    def _with(self, **fields: Sequence[Any]) -> ModelProto:
        """A copy of the model in which these fields of its graph hold other messages."""
        model = ModelProto()
        model.CopyFrom(self.model)
        for field, messages in fields.items():
            model.graph.ClearField(field)
            getattr(model.graph, field).extend(messages)
        return model

    def up_to(self, last: onnx.NodeProto) -> Case | None:
        """A node and what it needs, as a case of its own; None if its results' type is unknown."""
        graph = self.model.graph
        values = onnx.shape_inference.infer_shapes(self.model).graph.value_info
        known = {value.name: value for value in (*values, *graph.output)}
        kept, wanted = list[onnx.NodeProto](), set(last.output)
        for node in reversed(graph.node):
            if wanted & set(node.output):
                kept.insert(0, node)
                wanted |= set(node.input)
        model = self._with(
            node=kept,
            output=[known[name] for name in last.output if name in known],
            input=[value for value in graph.input if value.name in wanted],
            initializer=[value for value in graph.initializer if value.name in wanted],
        )
        inputs = {value.name: self.inputs[value.name] for value in model.graph.input}
        return Case(model, inputs) if model.graph.output else None

    def since(self, start: int) -> Case | None:
        """The nodes from the one of this number on; what they read of others is an input, with the
        values that ONNX Runtime computes. None if these values' types are unknown."""
        graph = self.model.graph
        known = {v.name: v for v in onnx.shape_inference.infer_shapes(self.model).graph.value_info}
        kept = graph.node[start:]
        wanted = {name for node in kept for name in node.input}
        between = [n for node in graph.node[:start] for n in node.output if n in wanted]
        if not known.keys() >= set(between):
            return None
        before = self._with(node=graph.node[:start], output=[known[name] for name in between])
        values = {**self.inputs, **outputs_of(before, self.inputs)}
        inputs = [v for v in graph.input if v.name in wanted] + [known[name] for name in between]
        weights = [value for value in graph.initializer if value.name in wanted]
        model = self._with(node=kept, input=inputs, initializer=weights)
        return Case(model, {value.name: values[value.name] for value in inputs})


@st.composite
def cases(draw: st.DrawFn) -> Case | None:
    """Random cases; None for a graph that came out empty."""
    graph = Graph(draw)
    images = draw(st.integers(0, 2))
    for _ in range(draw(st.integers(1, MOST_STEPS))):
        choices = IMAGES if images and draw(st.integers(0, 2)) else TENSORS
        choices = choices if draw(st.integers(0, 3)) else OTHERS
        draw(st.sampled_from(choices))(graph)
    model = graph.model()
    return None if model is None else Case(model, data_of(model, draw(st.integers(0, 3))))


def operators(case: Case) -> set[str]:
    return {node.op_type for node in case.model.graph.node}


def judged(case: Case, targets: Sequence[str]) -> Agreement:
    """All engines on a case, C built in the cheapest way."""
    onnx.checker.check_model(case.model)
    return agreement(case.model, case.inputs, targets, run=quickly)


def reduced(case: Case, targets: Sequence[str]) -> Case:
    """The nodes up to the first that differs, without those that the difference does not need."""
    for last in case.model.graph.node:
        smaller = case.up_to(last)
        if smaller is not None and not judged(smaller, targets).passed:
            case = smaller
            break
    for start in range(len(case.model.graph.node) - 1, 0, -1):
        smaller = case.since(start)
        if smaller is not None and not judged(smaller, targets).passed:
            return smaller
    return case


def quickly(executable: Executable, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
    """Run a package, C as one file and without optimisation: what is tested is its meaning."""
    if executable.manifest.target != "cpu":
        return executable.run(dict(inputs))
    program = executable.directory / "program"
    with tempfile.TemporaryDirectory(prefix="tilewright-fuzz-") as name:
        library = build(program, Path(name) / "program.so")
        with patch("tilewright.targets.cpu.runner.load_library", lambda *_: library):
            return CpuRunner(program).run(inputs).outputs
