"""Layers of a network as calls of the library: setup, reshape, forward (thesis, section 3.6.2).

``setup`` makes descriptors and brings parameters to the device; ``reshape`` makes the memory of
the layer's results, whose sizes are then known; ``forward`` calls the operator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import numpy as np

from tilewright.errors import refuse
from tilewright.graph.dialect import WeightOp
from tilewright.graph.operations import Operation
from tilewright.graph.operations.matrix import MatMulOp
from tilewright.graph.weights import Weights
from tilewright.integrations.dlplib import operators
from tilewright.integrations.dlplib.blobs import Blob, Numbers
from tilewright.integrations.dlplib.descriptors import DataFormat
from tilewright.integrations.dlplib.handle import Handle, Operand
from tilewright.integrations.dlplib.numeric import NumericType
from tilewright.integrations.dlplib.operators.elementwise import VectorOperation
from tilewright.integrations.dlplib.operators.settings import (
    Activation,
    ActivationDescriptor,
    ConvolutionDescriptor,
    LrnDescriptor,
    PoolingDescriptor,
)
from tilewright.ir import SSAValue
from tilewright.ir.types import Array, shape_of

MODES: dict[str, Activation] = {"relu": "relu", "sigmoid": "sigmoid", "tanh": "tanh"}
VECTORS: dict[str, VectorOperation] = {"add": "add", "sub": "sub", "mul": "mul"}
"""The library's names for operations of the graph."""


@dataclass
class Device:
    """The handle and settings that the layers of one network share."""

    handle: Handle
    weights: Weights
    numbers: Numbers
    format: DataFormat
    blobs: dict[SSAValue, Blob] = field(default_factory=dict[SSAValue, Blob])
    owned: list[Operand] = field(default_factory=list[Operand])
    """Every operand, to be released in the end."""

    def store(self, array: Array, type: NumericType, *, filter: bool = False) -> Operand:
        """A constant on the device."""
        operand = self.handle.tensor(array, type, self.format, filter=filter)
        self.owned.append(operand)
        return operand

    def empty(self, blob: Blob) -> None:
        """Memory for a blob."""
        blob.operand = self.handle.empty(blob.dims, blob.type, self.format)
        self.owned.append(blob.operand)


class Step(ABC):
    """One operator of a layer: a graph operation, and perhaps the activation that it takes in."""

    def __init__(self, device: Device, op: Operation, activation: Operation | None) -> None:
        self.device, self.op = device, op
        self.activation = activation
        self.result = (activation or op).result

    def setup(self) -> None:
        """Make descriptors, and bring parameters to the device."""
        return

    def reshape(self) -> None:
        """Make the memory of the result."""
        blob = Blob(shape_of(self.result), self.device.numbers.of(self.result))
        self.device.empty(blob)
        self.device.blobs[self.result] = blob

    @abstractmethod
    def forward(self) -> None:
        """Call the operator on the operands' memory."""

    @property
    def handle(self) -> Handle:
        """The handle of the device."""
        return self.device.handle

    @property
    def y(self) -> Operand:
        """The memory of the result."""
        return self.device.blobs[self.result].memory

    def x(self, index: int = 0) -> Operand:
        """Return the memory of an operand."""
        return self.device.blobs[self.op.inputs[index]].memory

    def constant(self, index: int) -> Array | None:
        """An operand's array, where it is a weight."""
        if index >= len(self.op.inputs):
            return None
        owner = self.op.inputs[index].owner
        return self.device.weights.get(owner.symbol.data) if isinstance(owner, WeightOp) else None

    def parameter(self, index: int) -> Array:
        """An operand's array; refuses one that is computed."""
        array = self.constant(index)
        if array is None:
            raise refuse("dlp-layer", "its parameters are computed", self.op.node_name)
        return array


class Product(Step):
    """A layer with weights and perhaps a bias."""

    weights: Operand
    bias: Operand | None = None

    def bring(self, dims: tuple[int, ...]) -> None:
        """Store weights of these dims, and the bias; the input's numbers are known by now."""
        numbers, x = self.device.numbers, self.device.numbers.of(self.op.inputs[0])
        array = self.parameter(1).reshape(dims)
        type = numbers.of_weights(array, x, self.op.result)
        self.weights = self.device.store(array, type, filter=True)
        bias = self.constant(2)
        if len(self.op.inputs) > 2:
            bias = self.parameter(2)
        if bias is not None:
            kind = operators.bias_type(x, type)
            self.bias = self.device.store(bias.reshape(1, -1, 1, 1), kind)


class ConvolutionStep(Product):
    """conv, in groups or not."""

    def setup(self) -> None:
        """The descriptor and the parameters."""
        op = self.op
        self.descriptor = ConvolutionDescriptor()
        self.descriptor.set(
            op.integers("strides"), op.integers("pads"), op.integers("dilations"),
            op.integer("group", 1, 2**24), "none" if self.activation is None else "relu",
        )  # fmt: skip
        self.bring(shape_of(op.inputs[1]))

    def forward(self) -> None:
        """Call the operator for convolutions."""
        operators.convolution_forward(
            self.handle, self.descriptor, self.x(), self.weights, self.y, self.bias
        )


class FullyConnectedStep(Product):
    """A product with constant weights; images are flattened by the library."""

    def reshape(self) -> None:
        """The weights' dims follow the image that is flattened, which is known now."""
        blob = self.device.blobs[self.op.inputs[0]]
        if not isinstance(self.op, MatMulOp) or self.op.transposed != (False, True):
            raise refuse("dlp-layer", "its weights are turned", self.op.node_name)
        outputs = shape_of(self.op.inputs[1])[0]
        self.bring((outputs, *blob.dims[1:]))
        super().reshape()

    def forward(self) -> None:
        """Call the operator for fully connected layers."""
        activation = "none" if self.activation is None else "relu"
        operators.fully_connected_forward(
            self.handle, self.x(), self.weights, self.y, self.bias, activation
        )


class PoolingStep(Step):
    """A step for max_pool and average_pool."""

    def setup(self) -> None:
        """The descriptor; sizes that Caffe rounds up are pads by now."""
        op, mode = self.op, "max" if self.op.operation == "max_pool" else "average"
        counted = op.integers("counted") if mode == "average" else (0, 0)
        self.descriptor = PoolingDescriptor()
        self.descriptor.set(
            mode, op.integers("kernel"), op.integers("strides"), op.integers("pads"), counted
        )

    def forward(self) -> None:
        """Call the operator for pools."""
        operators.pooling_forward(self.handle, self.descriptor, self.x(), self.y)


class ActivationStep(Step):
    """A step for relu, sigmoid and tanh."""

    def setup(self) -> None:
        """Set the descriptor of the activation."""
        self.descriptor = ActivationDescriptor()
        self.descriptor.set(MODES[self.op.operation])

    def forward(self) -> None:
        """Call the operator for activations."""
        operators.activation_forward(self.handle, self.descriptor, self.x(), self.y)


class LrnStep(Step):
    """A step for local response normalisation."""

    def setup(self) -> None:
        """Set the descriptor of the normalisation."""
        self.descriptor = LrnDescriptor()
        numbers = (self.op.number(name) for name in ("alpha", "beta", "bias"))
        self.descriptor.set(self.op.integer("size", 1, 2**12), *numbers)

    def forward(self) -> None:
        """Call the operator for local response normalisation."""
        operators.lrn_forward(self.handle, self.descriptor, self.x(), self.y)


class SoftmaxStep(Step):
    """A step for softmax along the channels."""

    def forward(self) -> None:
        """Call the operator for softmax, over channels alone."""
        rank = len(shape_of(self.result))
        if self.op.integer("axis", -rank, rank - 1) % rank != 1:
            raise refuse("dlp-layer", "its axis is not the channels", self.op.node_name)
        operators.softmax_forward(self.handle, self.x(), self.y)


class ConcatStep(Step):
    """A step for concatenations along an axis."""

    def forward(self) -> None:
        """Call the operator for concatenations."""
        rank = len(shape_of(self.result))
        axis = self.op.integer("axis", -rank, rank - 1) % rank
        parts = [self.x(index) for index in range(len(self.op.inputs))]
        operators.concat(self.handle, axis, parts, self.y)


class ReshapeStep(Step):
    """reshape; an image that only products read is flattened by them."""

    @property
    def flattens(self) -> bool:
        """True if the products after it take the image as it is."""
        source, target = shape_of(self.op.inputs[0]), shape_of(self.op.result)
        users = [use.operation for use in self.op.result.uses]
        return (
            len(target) == 2
            and source[0] == target[0]
            and all(isinstance(user, Operation) and user.operation == "matmul" for user in users)
        )

    def reshape(self) -> None:
        """Memory of its own, if it is not flattened by others."""
        if self.flattens:
            self.device.blobs[self.result] = self.device.blobs[self.op.inputs[0]]
        else:
            super().reshape()

    def forward(self) -> None:
        """Copy the operand, unless a view serves."""
        if not self.flattens:
            operators.reshape(self.handle, self.x(), self.y)


class VectorStep(Step):
    """add, sub and mul of blobs, or of a blob and a parameter."""

    def setup(self) -> None:
        """A parameter, with the axes before its own."""
        self.stored: dict[int, Operand] = {}
        rank = len(shape_of(self.result))
        for index in range(2):
            array = self.constant(index)
            if array is not None:
                dims = (1,) * (rank - array.ndim) + array.shape + (1,) * (4 - rank)
                type = self.device.numbers.of_constant(array)
                self.stored[index] = self.device.store(np.asarray(array).reshape(dims), type)

    def forward(self) -> None:
        """Call the operator for sums and products of elements."""
        a, b = (self.stored.get(index) or self.x(index) for index in range(2))
        operators.vector(self.handle, VECTORS[self.op.operation], a, b, self.y)


class BatchNormStep(Step):
    """batch_norm with stored statistics; 1 / sqrt(variance + epsilon) is taken by the host."""

    def setup(self) -> None:
        """Store the four parameters on the device."""
        scale, shift, mean, variance = (self.parameter(index) for index in range(1, 5))
        deviation = 1 / np.sqrt(variance.astype(np.float64) + self.op.number("epsilon"))
        self.mean, self.deviation, self.scale, self.shift = (
            self.device.store(array.reshape(1, -1, 1, 1), self.device.numbers.of_constant(array))
            for array in (mean, deviation, scale, shift)
        )

    def forward(self) -> None:
        """Call the operator for batch normalisation."""
        operators.batch_norm_forward(
            self.handle, self.x(), self.mean, self.deviation, self.scale, self.shift, self.y
        )


STEPS: dict[str, type[Step]] = {
    "conv": ConvolutionStep,
    "matmul": FullyConnectedStep,
    "max_pool": PoolingStep,
    "average_pool": PoolingStep,
    "relu": ActivationStep,
    "sigmoid": ActivationStep,
    "tanh": ActivationStep,
    "lrn": LrnStep,
    "softmax": SoftmaxStep,
    "concat": ConcatStep,
    "reshape": ReshapeStep,
    "add": VectorStep,
    "sub": VectorStep,
    "mul": VectorStep,
    "batch_norm": BatchNormStep,
}
"""The library's step for an operation of the graph."""
