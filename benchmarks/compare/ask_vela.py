"""What Vela estimates for a network of int8; run by the Python of an environment that has it.

The network comes as JSON on the standard input: tensors (name: shape in NHWC) and layers (``op``,
``inputs``, ``output``, and for windows ``kernel``, ``stride``, ``pads``, ``relu``). It is written
as a TensorFlow Lite file with weights of a seeded distribution, compiled by Vela, and its summary
is printed as JSON. TensorFlow Lite has no numbers of pads: SAME stands for half a window.
"""

from __future__ import annotations

import csv
import json
import sys
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import flatbuffers
import numpy as np
from ethosu.vela import vela

OPERATORS = {
    "conv": (3, 1, "Conv2DOptions"),
    "depthwise": (4, 2, "DepthwiseConv2DOptions"),
    "add": (0, 11, "AddOptions"),
    "average": (1, 5, "Pool2DOptions"),
    "dense": (9, 8, "FullyConnectedOptions"),
}
"""Codes of TensorFlow Lite's schema: of an operator, and of its options, with their table."""

INT8, INT32, SAME, VALID, RELU6 = 9, 2, 0, 1, 3


def schema(name: str) -> Any:
    """A table of TensorFlow Lite's schema, as Vela has it."""
    return import_module(f"ethosu.vela.tflite.{name}")


class Writer:
    """A TensorFlow Lite file that grows tensor by tensor."""

    def __init__(self) -> None:
        self.b = flatbuffers.Builder(1 << 20)
        self.buffers = [self._buffer(b"")]
        self.tensors: list[int] = []
        self.operators: list[int] = []
        self.names: dict[str, int] = {}
        self.random = np.random.default_rng(1)

    def _buffer(self, data: bytes) -> int:
        table = schema("Buffer")
        held = self.b.CreateByteVector(data) if data else None
        table.BufferStart(self.b)
        if held is not None:
            table.BufferAddData(self.b, held)
        return table.BufferEnd(self.b)

    def _numbers(self, start: Any, values: list[int], width: int = 4) -> int:
        start(self.b, len(values))
        for value in reversed(values):
            (self.b.PrependInt32 if width == 4 else self.b.PrependInt64)(value)
        return self.b.EndVector()

    def tensor(self, name: str, shape: list[int], kind: int = INT8, data: Any = None) -> int:
        """Add a tensor; its scale is 0.05, its zero point 0."""
        table, quantised = schema("Tensor"), schema("QuantizationParameters")
        buffer = 0
        if data is not None:
            buffer = len(self.buffers)
            self.buffers.append(self._buffer(data.tobytes()))
        quantised.QuantizationParametersStartScaleVector(self.b, 1)
        self.b.PrependFloat32(0.05)
        scale = self.b.EndVector()
        zero = self._numbers(quantised.QuantizationParametersStartZeroPointVector, [0], 8)
        quantised.QuantizationParametersStart(self.b)
        quantised.QuantizationParametersAddScale(self.b, scale)
        quantised.QuantizationParametersAddZeroPoint(self.b, zero)
        parameters = quantised.QuantizationParametersEnd(self.b)
        sizes = self._numbers(table.TensorStartShapeVector, shape)
        text = self.b.CreateString(name)
        table.TensorStart(self.b)
        table.TensorAddShape(self.b, sizes)
        table.TensorAddType(self.b, kind)
        table.TensorAddBuffer(self.b, buffer)
        table.TensorAddName(self.b, text)
        table.TensorAddQuantization(self.b, parameters)
        self.tensors.append(table.TensorEnd(self.b))
        self.names[name] = len(self.tensors) - 1
        return self.names[name]

    def layer(self, layer: dict[str, Any], shapes: dict[str, list[int]]) -> None:
        """Add an operator, with weights of its own."""
        op, output = layer["op"], layer["output"]
        inputs = [self.names[name] for name in layer["inputs"]]
        if op in ("conv", "depthwise", "dense"):
            ci, co = shapes[layer["inputs"][0]][-1], shapes[output][-1]
            kernel = layer.get("kernel", [])
            shape = {"conv": [co, *kernel, ci], "depthwise": [1, *kernel, co], "dense": [co, ci]}
            weights = self.random.normal(0, 30, shape[op]).round().clip(-127, 127).astype(np.int8)
            inputs.append(self.tensor(f"{output}/w", shape[op], data=weights))
            bias = np.zeros(co, np.int32)
            inputs.append(self.tensor(f"{output}/b", [co], INT32, bias))
        made = self.tensor(output, shapes[output])
        options = self._options(layer)
        table = schema("Operator")
        ins = self._numbers(table.OperatorStartInputsVector, inputs)
        outs = self._numbers(table.OperatorStartOutputsVector, [made])
        table.OperatorStart(self.b)
        table.OperatorAddOpcodeIndex(self.b, list(OPERATORS).index(op))
        table.OperatorAddInputs(self.b, ins)
        table.OperatorAddOutputs(self.b, outs)
        table.OperatorAddBuiltinOptionsType(self.b, OPERATORS[op][1])
        table.OperatorAddBuiltinOptions(self.b, options)
        self.operators.append(table.OperatorEnd(self.b))

    def _options(self, layer: dict[str, Any]) -> int:
        name = OPERATORS[layer["op"]][2]
        table, b = schema(name), self.b

        def add(field: str, value: int) -> None:
            getattr(table, f"{name}Add{field}")(b, value)

        getattr(table, f"{name}Start")(b)
        if "kernel" in layer:
            add("Padding", SAME if any(layer["pads"]) else VALID)
            add("StrideH", layer["stride"])
            add("StrideW", layer["stride"])
        if layer["op"] in ("conv", "depthwise"):
            add("DilationHFactor", 1)
            add("DilationWFactor", 1)
        if layer["op"] == "depthwise":
            add("DepthMultiplier", 1)
        if layer["op"] == "average":
            add("FilterHeight", layer["kernel"][0])
            add("FilterWidth", layer["kernel"][1])
        if layer.get("relu"):
            add("FusedActivationFunction", RELU6)
        return getattr(table, f"{name}End")(b)

    def finish(self, first: str, last: str) -> bytes:
        """The file, whose input and output are these tensors."""
        b = self.b
        model, graph, code = schema("Model"), schema("SubGraph"), schema("OperatorCode")
        codes: list[int] = []
        for number, _, _ in OPERATORS.values():
            code.OperatorCodeStart(b)
            code.OperatorCodeAddDeprecatedBuiltinCode(b, number)
            code.OperatorCodeAddBuiltinCode(b, number)
            code.OperatorCodeAddVersion(b, 3)
            codes.append(code.OperatorCodeEnd(b))

        def offsets(start: Any, values: list[int]) -> int:
            start(b, len(values))
            for value in reversed(values):
                b.PrependUOffsetTRelative(value)
            return b.EndVector()

        tensors = offsets(graph.SubGraphStartTensorsVector, self.tensors)
        operators = offsets(graph.SubGraphStartOperatorsVector, self.operators)
        ins = self._numbers(graph.SubGraphStartInputsVector, [self.names[first]])
        outs = self._numbers(graph.SubGraphStartOutputsVector, [self.names[last]])
        graph.SubGraphStart(b)
        graph.SubGraphAddTensors(b, tensors)
        graph.SubGraphAddInputs(b, ins)
        graph.SubGraphAddOutputs(b, outs)
        graph.SubGraphAddOperators(b, operators)
        made = graph.SubGraphEnd(b)
        graphs = offsets(model.ModelStartSubgraphsVector, [made])
        all_codes = offsets(model.ModelStartOperatorCodesVector, codes)
        buffers = offsets(model.ModelStartBuffersVector, self.buffers)
        model.ModelStart(b)
        model.ModelAddVersion(b, 3)
        model.ModelAddOperatorCodes(b, all_codes)
        model.ModelAddSubgraphs(b, graphs)
        model.ModelAddBuffers(b, buffers)
        b.Finish(model.ModelEnd(b), b"TFL3")
        return bytes(b.Output())


def main() -> None:
    """Read a network, compile it, print what Vela says."""
    network = json.load(sys.stdin)
    shapes, layers = network["shapes"], network["layers"]
    writer = Writer()
    writer.tensor(network["input"], shapes[network["input"]])
    for layer in layers:
        writer.layer(layer, shapes)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "network.tflite"
        file.write_bytes(writer.finish(network["input"], layers[-1]["output"]))
        command = [str(file), "--output-dir", folder, "--config", "Arm/vela.ini"]
        command += ["--accelerator-config", network["core"], "--system-config", network["system"]]
        sys.stdout, told = sys.stderr, sys.stdout
        vela.main([*command, "--memory-mode", network["memory"], "--optimise", "Performance"])
        sys.stdout = told
        summary = next(Path(folder).glob("*_summary_*.csv"))
        print(json.dumps(next(csv.DictReader(summary.open()))))


if __name__ == "__main__":
    main()
