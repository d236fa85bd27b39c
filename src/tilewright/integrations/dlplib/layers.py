"""Layers of a network as calls of the library: setup, reshape, forward (thesis, section 3.6.2).

``setup`` makes descriptors and brings parameters to the device; ``reshape`` makes the memory of
the layer's results, whose sizes are then known; ``forward`` calls the operator.
A layer's values are blobs, whose numbers are chosen on samples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import ceil, log2

import numpy as np

from tilewright.errors import TilewrightError, refuse
from tilewright.frontends import Imported
from tilewright.graph.dialect import WeightOp, network_of
from tilewright.graph.operations import Operation
from tilewright.graph.operations.matrix import MatMulOp
from tilewright.graph.values import value_names
from tilewright.graph.weights import Weights
from tilewright.integrations.dlplib import operators
from tilewright.integrations.dlplib.descriptors import (
    FLOAT32,
    DataFormat,
    NumericType,
    finest,
    fixed16,
)
from tilewright.integrations.dlplib.handle import Handle, Operand, Ran
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
from tilewright.numbers.calibration import Samples, observed_ranges, samples_of

SHARING = frozenset(("concat", "reshape", "max_pool", "relu"))
"""Operations whose integers pass through: results and operands have one binary point."""

LRN_HIGHEST = 26
"""The finest binary point of what lrn reads."""

ROOM = 30
"""Bits of the magnitude of a sum of products: half of what 32 bits hold."""


@dataclass
class Blob:
    """A value of the network: its shape there, its numbers, and, once it is made, its memory.

    As a tensor it has the missing dims last: N x C becomes N x C x 1 x 1.
    """

    shape: tuple[int, ...]
    type: NumericType
    operand: Operand | None = None

    @property
    def dims(self) -> tuple[int, int, int, int]:
        """The shape as N, C, H, W."""
        n, c, h, w = (*self.shape, 1, 1, 1, 1)[:4]
        return n, c, h, w

    @property
    def memory(self) -> Operand:
        """The memory; it is there once the layer that writes it has been reshaped."""
        assert self.operand is not None
        return self.operand


@dataclass(frozen=True)
class Numbers:
    """Numeric types of a network's values, and the largest magnitudes that they took."""

    types: Mapping[SSAValue, NumericType]
    largest: Mapping[SSAValue, float]

    def of(self, value: SSAValue) -> NumericType:
        """The type of a value."""
        return self.types.get(value, FLOAT32)

    def of_constant(self, array: Array) -> NumericType:
        """The type of a constant that is stored by itself."""
        return finest(float(np.abs(array).max(initial=0.0))) if self.types else FLOAT32

    def of_weights(self, array: Array, x: NumericType, result: SSAValue) -> NumericType:
        """The type of weights, such that sums of products with ``x`` leave room in 32 bits."""
        type = self.of_constant(array)
        if not self.types:
            return type
        sums = max(self.largest[result], 2.0**-20)
        return fixed16(max(min(type.fraction, ROOM - ceil(log2(sums)) - x.fraction), -16))


def choose_numbers(imported: Imported, handle: Handle, samples: Samples | None) -> Numbers:
    """The finest types for what the values are on sample inputs (random ones if there are none).

    A machine of float32 needs none.
    """
    if not handle.is_fixed:
        return Numbers({}, {})
    network = network_of(imported.module)
    stream = samples_of(network, samples)
    ranges = observed_ranges(imported.module, imported.weights, stream)
    names = value_names(imported.module)
    largest = {
        value: max(abs(bound) for bound in ranges[name])
        for value, name in names.items()
        if name in ranges
    }
    fractions = {value: finest(size).fraction for value, size in largest.items()}
    operations = network.operations
    changed = True
    while changed:
        changed = False
        for op in operations:
            if op.operation in SHARING:
                group = [value for value in (*op.inputs, op.result) if value in fractions]
                least = min(fractions[value] for value in group)
            elif op.operation == "lrn":
                group = [op.inputs[0]]
                least = min(fractions[op.inputs[0]], LRN_HIGHEST)
            else:
                continue
            for value in group:
                if fractions[value] != least:
                    fractions[value], changed = least, True
    return Numbers({value: fixed16(point) for value, point in fractions.items()}, largest)


MODES: dict[str, Activation] = {"relu": "relu", "sigmoid": "sigmoid", "tanh": "tanh"}
VECTORS: dict[str, VectorOperation] = {"add": "add", "sub": "sub", "mul": "mul"}
"""The library's names for operations of the graph."""

Forward = Callable[[], Ran | None]
"""Calls an operator on the memory of its operands; None where nothing is to be computed."""


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


class Step:
    """One operator of a layer: a graph operation, and perhaps the activation that it takes in."""

    forward: Forward

    def __init__(self, device: Device, op: Operation, activation: Operation | None) -> None:
        self.device, self.op = device, op
        self.handle = device.handle
        self.activation: Activation = "none" if activation is None else "relu"
        self.result = (activation or op).result

    def setup(self) -> None:
        """Make descriptors, and bring parameters to the device."""
        self.forward = STEPS[self.op.operation](self)

    def reshape(self) -> None:
        """Make the memory of the result; an image that products flatten stays where it is."""
        blobs = self.device.blobs
        if self.op.operation == "reshape" and _flattens(self.op):
            blobs[self.result] = blobs[self.op.inputs[0]]
            return
        blobs[self.result] = Blob(shape_of(self.result), self.device.numbers.of(self.result))
        self.device.empty(blobs[self.result])

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
            raise self.refuse("its parameters are computed")
        return array

    def refuse(self, reason: str) -> TilewrightError:
        """The refusal of the layer."""
        return refuse("dlp-layer", reason, self.op.node_name)

    def weights(self, dims: tuple[int, ...]) -> tuple[Operand, Operand | None]:
        """Store the weights of a product in these dims, and its bias."""
        numbers, x = self.device.numbers, self.device.numbers.of(self.op.inputs[0])
        array = self.parameter(1).reshape(dims)
        type = numbers.of_weights(array, x, self.op.result)
        stored = self.device.store(array, type, filter=True)
        if len(self.op.inputs) == 2:
            return stored, None
        bias = self.parameter(2).reshape(1, -1, 1, 1)
        return stored, self.device.store(bias, operators.bias_type(x, type))


def _convolution(step: Step) -> Forward:
    """conv, in groups or not."""
    op, descriptor = step.op, ConvolutionDescriptor()
    strides, pads, dilations = (op.integers(name) for name in ("strides", "pads", "dilations"))
    descriptor.set(strides, pads, dilations, op.integer("group", 1, 2**24), step.activation)
    weights, bias = step.weights(shape_of(op.inputs[1]))
    return lambda: operators.convolution_forward(
        step.handle, descriptor, step.x(), weights, step.y, bias
    )


def _fully_connected(step: Step) -> Forward:
    """A product with constant weights; images are flattened by the library."""
    if not isinstance(step.op, MatMulOp) or step.op.transposed != (False, True):
        raise step.refuse("its weights are turned")
    image = step.op.inputs[0]
    source = image.owner
    if isinstance(source, Operation) and source.operation == "reshape" and _flattens(source):
        image = source.inputs[0]
    _, c, h, w = (*shape_of(image), 1, 1, 1)[:4]
    weights, bias = step.weights((shape_of(step.op.inputs[1])[0], c, h, w))
    return lambda: operators.fully_connected_forward(
        step.handle, step.x(), weights, step.y, bias, step.activation
    )


def _pooling(step: Step) -> Forward:
    """max_pool and average_pool; sizes that Caffe rounds up are pads by now."""
    op, descriptor = step.op, PoolingDescriptor()
    kernel, strides, pads = (op.integers(name) for name in ("kernel", "strides", "pads"))
    if op.operation == "max_pool":
        descriptor.set("max", kernel, strides, pads)
    else:
        descriptor.set("average", kernel, strides, pads, op.integers("counted"))
    return lambda: operators.pooling_forward(step.handle, descriptor, step.x(), step.y)


def _activation(step: Step) -> Forward:
    descriptor = ActivationDescriptor()
    descriptor.set(MODES[step.op.operation])
    return lambda: operators.activation_forward(step.handle, descriptor, step.x(), step.y)


def _lrn(step: Step) -> Forward:
    descriptor = LrnDescriptor()
    numbers = (step.op.number(name) for name in ("alpha", "beta", "bias"))
    descriptor.set(step.op.integer("size", 1, 2**12), *numbers)
    return lambda: operators.lrn_forward(step.handle, descriptor, step.x(), step.y)


def _softmax(step: Step) -> Forward:
    """Softmax, over channels alone."""
    if step.op.counted_axis != 1:
        raise step.refuse("its axis is not the channels")
    return lambda: operators.softmax_forward(step.handle, step.x(), step.y)


def _concat(step: Step) -> Forward:
    count = len(step.op.inputs)
    return lambda: operators.concat(
        step.handle, step.op.counted_axis, [*map(step.x, range(count))], step.y
    )


def _reshape(step: Step) -> Forward:
    """reshape; an image that only products read is flattened by them."""
    if _flattens(step.op):
        return lambda: None
    return lambda: operators.reshape(step.handle, step.x(), step.y)


def _flattens(op: Operation) -> bool:
    """Return True if the products after a reshape take the image as it is."""
    source, target = shape_of(op.inputs[0]), shape_of(op.result)
    users = [use.operation for use in op.result.uses]
    return (
        len(target) == 2
        and source[0] == target[0]
        and all(isinstance(user, Operation) and user.operation == "matmul" for user in users)
    )


def _vector(step: Step) -> Forward:
    """add, sub and mul of blobs, or of a blob and a parameter, with the axes before its own."""
    stored: dict[int, Operand] = {}
    rank = len(shape_of(step.result))
    for index in range(2):
        array = step.constant(index)
        if array is not None:
            dims = (1,) * (rank - array.ndim) + array.shape + (1,) * (4 - rank)
            type = step.device.numbers.of_constant(array)
            stored[index] = step.device.store(np.asarray(array).reshape(dims), type)

    def forward() -> Ran:
        a, b = (stored.get(index) or step.x(index) for index in range(2))
        return operators.vector(step.handle, VECTORS[step.op.operation], a, b, step.y)

    return forward


def _batch_norm(step: Step) -> Forward:
    """batch_norm with stored statistics; 1 / sqrt(variance + epsilon) is taken by the host."""
    scale, shift, mean, variance = (step.parameter(index) for index in range(1, 5))
    deviation = 1 / np.sqrt(variance.astype(np.float64) + step.op.number("epsilon"))
    mean_, deviation_, scale_, shift_ = (
        step.device.store(array.reshape(1, -1, 1, 1), step.device.numbers.of_constant(array))
        for array in (mean, deviation, scale, shift)
    )
    return lambda: operators.batch_norm_forward(
        step.handle, step.x(), mean_, deviation_, scale_, shift_, step.y
    )


STEPS: Mapping[str, Callable[[Step], Forward]] = {
    "conv": _convolution,
    "matmul": _fully_connected,
    "max_pool": _pooling,
    "average_pool": _pooling,
    **dict.fromkeys(MODES, _activation),
    "lrn": _lrn,
    "softmax": _softmax,
    "concat": _concat,
    "reshape": _reshape,
    **dict.fromkeys(VECTORS, _vector),
    "batch_norm": _batch_norm,
}
"""By operation of the graph, the function that sets a step up and gives the call of the library."""
