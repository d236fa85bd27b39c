"""Caffe's networks through the library, layer by layer; the engine is a parameter.

    net = Net("deploy.prototxt", "net.caffemodel", engine="DLP", target="cambricon-x")
    probabilities = net.forward({"data": image})["prob"]

The prototxt is not changed (thesis, section 3.6). Its layers are read by Caffe's importer, which
states each in graph operations; every operation becomes a call of the library.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tilewright.codegen.program.interface import TensorInfo
from tilewright.errors import Problem, TilewrightError, choose, refuse
from tilewright.frontends.caffe import import_caffe
from tilewright.graph.dialect import network_of
from tilewright.graph.operations import Operation
from tilewright.graph.passes.editing import only_user
from tilewright.integrations.dlplib.compiled import OperatorCache
from tilewright.integrations.dlplib.handle import Handle, Ran
from tilewright.integrations.dlplib.layers import STEPS, Blob, Device, Step, choose_numbers
from tilewright.ir.types import Array, shape_of
from tilewright.numbers.calibration import Samples
from tilewright.numerics.operators import has
from tilewright.system.choices import ENGINES


@dataclass(frozen=True)
class Layer:
    """A layer of the prototxt."""

    name: str
    type: str
    steps: tuple[Step, ...]
    """Steps whose ``setup``, ``reshape`` and ``forward`` are the layer's; empty where it computes
    nothing, or the layer before it takes it in."""


class Net:
    """A network on one handle.

    ``engine`` is DLP (on ``target``) or CAFFE (on the cpu). Binary points come from
    ``calibration``, or from random inputs. An activation (ReLU) that alone reads a convolution or a
    fully connected layer is computed by it. ``check`` and ``compute`` are the handle's. Raises
    TilewrightError with every layer that the library cannot compute (``dlp-layer``).
    """

    def __init__(
        self,
        prototxt: str | Path,
        caffemodel: str | Path | None = None,
        *,
        engine: str = "DLP",
        target: str = "cambricon-x",
        shapes: Mapping[str, Sequence[int]] | None = None,
        calibration: Samples | None = None,
        check: bool = False,
        compute: bool = True,
        cache: OperatorCache | None = None,
    ) -> None:
        if engine not in ENGINES:
            raise refuse("dlp-parameter", f"no engine {engine!r}", help=choose(engine, ENGINES))
        self.model = import_caffe(prototxt, caffemodel=caffemodel, shapes=shapes)
        handle = Handle(
            target if engine == "DLP" else "cpu", check=check, compute=compute, cache=cache
        )
        self.handle = handle
        self.layers = self._layers(handle, calibration)
        self.ran: dict[str, tuple[Ran, ...]] = {}
        """The costs of the operators of each layer in its last run."""
        for file in self.model.files:
            file.check()
        steps = [step for layer in self.layers for step in layer.steps]
        for step in steps:
            step.setup()
        for name, value in self._network.inputs:
            blob = Blob(shape_of(value), self._device.numbers.of(value))
            if len(blob.shape) > 4:
                raise refuse("dlp-layer", f"its rank is {len(blob.shape)}; tensors have 4", name)
            self._device.empty(blob)
            self._device.blobs[value] = blob
        for step in steps:
            step.reshape()

    def _layers(self, handle: Handle, calibration: Samples | None) -> list[Layer]:
        """The layers, in order; refuses all that the library has no operator for at once."""
        self._network = network_of(self.model.module)
        operations = self._network.operations
        problems = [
            Problem("dlp-layer", f"the library has no operator for {op.operation}", op.node_name)
            for op in operations
            if op.operation not in STEPS
        ]
        if problems:
            raise TilewrightError(problems)
        numbers = choose_numbers(self.model, handle, calibration)
        order = "NHWC" if handle.is_fixed else "NCHW"
        self._device = Device(handle, self.model.weights, numbers, order)
        steps: dict[str, list[Step]] = {}
        taken: set[Operation] = set()
        for op in operations:
            if op in taken:
                continue
            activation = _activation_of(op)
            if activation is not None:
                taken.add(activation)
            layer = Step(self._device, op, activation)
            steps.setdefault(op.node_name, []).append(layer)
        return [
            Layer(node.name, node.operator, tuple(steps.get(node.name, ())))
            for node in self.model.nodes
        ]

    def forward(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run all layers on arrays by input name; gives float32 arrays by output name."""
        wanted = dict(self._network.inputs)
        if set(inputs) != set(wanted):
            raise refuse("input-name", f"the inputs are {', '.join(wanted)}")
        for name, value in wanted.items():
            if inputs[name].shape != shape_of(value):
                raise refuse("input-shape", f"it has shape {list(shape_of(value))}", name)
            self.handle.store(self._device.blobs[value].memory, inputs[name])
        for layer in self.layers:
            before = len(self.handle.runs)
            for step in layer.steps:
                step.forward()
            self.ran[layer.name] = tuple(self.handle.runs[before:])
        outputs: dict[str, Array] = {}
        for name, value in self._network.outputs:
            array = self.handle.load(self._device.blobs[value].memory)
            outputs[name] = array.reshape(shape_of(value)).astype(np.float32)
        return outputs

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """Name, shape and dtype of every input."""
        return tuple(
            TensorInfo(name, shape_of(value), "float32") for name, value in self._network.inputs
        )

    @property
    def cycles(self) -> int:
        """Simulated cycles of the last forward run."""
        return sum(run.cycles or 0 for runs in self.ran.values() for run in runs)

    def report(self) -> str:
        """The layers, their operators and cycles, as text."""
        unit = "cycles" if self.handle.is_fixed else "microseconds"
        lines = [f"{'layer':20} {'type':16} {unit:>12}  operators"]
        total = 0
        for layer in self.layers:
            runs = self.ran.get(layer.name, ())
            took = sum(run.cycles or round(1e6 * (run.seconds or 0.0)) for run in runs)
            total += took
            called = ", ".join(run.operator for run in runs) or "-"
            lines.append(f"{layer.name:20} {layer.type:16} {took:12,}  {called}")
        return "\n".join([*lines, f"{'':37} {total:12,}  in all"])

    def close(self) -> None:
        """Free all memory and destroy the handle."""
        self.handle.release(*self._device.owned)
        self.handle.destroy()


def _activation_of(op: Operation) -> Operation | None:
    """The ReLU that a layer with weights computes along with it."""
    if not has(op.operation, "product"):
        return None
    user = only_user(op.result)
    return user if isinstance(user, Operation) and user.operation == "relu" else None
