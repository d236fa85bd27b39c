"""Appending to a network, checking and refusing, for importers of single nodes and layers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from tilewright.errors import TilewrightError, refuse
from tilewright.frontends.limits import MAX_ELEMENTS, too_large
from tilewright.graph.dialect import NetworkOp, OutputOp, WeightOp
from tilewright.graph.operations import BY_NAME
from tilewright.graph.weights import Weights
from tilewright.ir import Block, ModuleOp, PythonValue, SSAValue, TensorType, VerifyException
from tilewright.ir.types import Array, dtype_of, element_of, shape_of, tensor

_ABOUT_TYPES = ("element type", "is not defined on", "takes floats", "takes integers", "boolean")
"""Words of the graph's messages that are about element types."""


class Emitter:
    """One node of a model on its way into the graph dialect."""

    FAMILY: ClassVar[str]
    """First word of the codes with which this front-end refuses."""
    SETTING: ClassVar[str] = "attribute"
    """Last word of the code for what a node asks for."""
    TYPED: ClassVar[bool] = True
    """True if the front-end has a code of its own for element types."""

    def __init__(self, network: NetworkBuilder, origin: str, name: str, where: str) -> None:
        self.network = network
        self.origin = origin
        """The node's name as operations keep it."""
        self.title = name
        """The prefix of the names of constants made for the node."""
        self.where = where
        """The node in messages."""

    def refuse(self, reason: str, *, code: str = "", help: str = "") -> TilewrightError:
        """The refusal of this node; ``raise at.refuse(...)``."""
        return refuse(code or f"{self.FAMILY}-{self.SETTING}", reason, self.where, help)

    def misfit(self, reason: str) -> TilewrightError:
        """The refusal of shapes that the node cannot have."""
        return self.refuse(reason, code=f"{self.FAMILY}-shape")

    def axis(self, axis: int, rank: int, subject: str = "axis") -> int:
        """An axis counted from the front; refuses one outside ``[-rank, rank)``."""
        if not -rank <= axis < rank:
            raise self.refuse(f"{subject} {axis} is outside a tensor of rank {rank}")
        return axis % rank

    def weight(self, array: Array, name: str) -> SSAValue:
        """A constant as a value of the network; refuses empty ones."""
        if array.size == 0:
            raise self.misfit(f"the constant {name[:120]!r} is empty")
        return self.network.weight(array, name)

    def made(self, values: Array | float, like: SSAValue, name: str = "number") -> SSAValue:
        """A constant made at import, of the elements of ``like``."""
        return self.weight(np.array(values, dtype_of(like)), f"{self.title}.{name}")

    def emit(self, operation: str, *inputs: SSAValue, **attributes: PythonValue) -> SSAValue:
        """Append an operation for this node; refuses results that are empty or too large."""
        try:
            value = self.network.emit(operation, inputs, attributes, self.origin)
        except VerifyException as error:
            # The graph's message names the node, as the refusal does.
            reason = str(error).replace(f" (node {self.origin!r})", "", 1)
            typed = self.TYPED and any(words in reason for words in _ABOUT_TYPES)
            code = f"{self.FAMILY}-dtype" if typed else f"{self.FAMILY}-shape"
            raise self.refuse(" ".join(reason.split()), code=code) from error
        self.check_size(shape_of(value))
        return value

    def check_size(self, shape: Sequence[int]) -> None:
        """Refuses the shape of a result that is empty or too large."""
        if any(extent < 1 for extent in shape):
            raise self.misfit(f"its result of shape {list(shape)} is empty")
        if too_large(shape):
            raise self.refuse(
                f"its result of shape {list(shape)} takes {math.prod(shape)} elements; "
                f"the limit is {MAX_ELEMENTS}",
                code=f"{self.FAMILY}-too-large",
            )

    def apply(
        self, operation: str, *inputs: SSAValue | float, **attributes: PythonValue
    ) -> SSAValue:
        """Append an operation; numbers among its inputs have the elements of the first tensor."""
        like = next(value for value in inputs if isinstance(value, SSAValue))
        values = [x if isinstance(x, SSAValue) else self.made(x, like) for x in inputs]
        return self.emit(operation, *values, **attributes)

    def cast(self, value: SSAValue, dtype: np.dtype[Any] | type[np.generic]) -> SSAValue:
        """``value`` as elements of another type; itself if it has them."""
        wanted = np.dtype(dtype)
        return value if dtype_of(value) == wanted else self.emit("cast", value, to=wanted.name)

    def transpose(self, value: SSAValue, order: Sequence[int]) -> SSAValue:
        """``value`` with its axes in another order; itself if that is the order."""
        if list(order) == list(range(len(order))):
            return value
        return self.emit("transpose", value, permutation=list(order))

    def reshape(self, value: SSAValue, shape: Sequence[int]) -> SSAValue:
        """``value`` in another shape; itself if the shape is the same."""
        if shape_of(value) == tuple(shape):
            return value
        if math.prod(shape) != math.prod(shape_of(value)):
            raise self.misfit(f"{list(shape_of(value))} cannot be reshaped to {list(shape)}")
        return self.emit("reshape", value, shape=list(shape))


class NetworkBuilder:
    """Appends operations to a network's block and constants to its weights."""

    def __init__(self, block: Block, weights: Weights) -> None:
        self.block = block
        self.weights = weights
        self._weights: dict[tuple[str, tuple[int, ...]], SSAValue] = {}
        self.shares = True
        """True if equal constants are one value of the network."""
        self.decided: object = None
        """The sizes that data decide, as the front-end keeps them; None where none may be."""

    def emit(
        self,
        operation: str,
        inputs: Sequence[SSAValue],
        attributes: Mapping[str, PythonValue],
        node: str,
    ) -> SSAValue:
        """Append an operation of the graph dialect; raises VerifyException."""
        op = BY_NAME[operation].build_from(inputs, dict(attributes), node=node)
        self.block.add_op(op)
        return op.result

    def weight(self, array: Array, hint: str) -> SSAValue:
        """The value of a constant; equal constants share one, unless ``shares`` is false."""
        symbol = self.weights.add(array, hint)
        key = (symbol, array.shape)
        if key not in self._weights or not self.shares:
            op = WeightOp.of(symbol, tensor(array.shape, element_of(array.dtype)))
            self.block.add_op(op)
            self._weights[key] = op.result
        return self._weights[key]

    def placeholder(
        self, shape: Sequence[int], dtype: np.dtype[Any] | type[np.generic] = np.float32
    ) -> SSAValue:
        """A tensor that stands in for the result of a refused node."""
        op = WeightOp.of("refused", tensor(shape, element_of(np.dtype(dtype))))
        self.block.add_op(op)
        return op.result


class NewNetwork(NetworkBuilder):
    """A network under construction, with weights of its own."""

    def __init__(
        self, name: str, inputs: Sequence[tuple[str, TensorType[Any]]], outputs: Sequence[str]
    ) -> None:
        self.operator = NetworkOp.of(name, inputs, outputs)
        super().__init__(self.operator.block, Weights())

    def finish(self, outputs: Sequence[SSAValue]) -> ModuleOp:
        """The network, whose outputs are these values, in a module."""
        self.block.add_op(OutputOp.build(operands=[outputs]))
        module = ModuleOp([self.operator])
        module.verify()
        return module
