"""The graph interpreter: the meaning of a network, and the oracle for everything below it.

Float32 operations compute in float32; fixed-point operations are exact, so what a simulated
machine computes must agree bit for bit. Layouts change nothing: arrays are in logical axis order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from tilewright.errors import Problem, TilewrightError, refuse
from tilewright.graph.dialect import (
    KernelOp,
    NetworkOp,
    OutputOp,
    ScratchOp,
    WeightOp,
    YieldOp,
    network_of,
)
from tilewright.graph.operation import Operation
from tilewright.graph.operations.loops import LoopOp, Round
from tilewright.graph.values import value_names
from tilewright.ir import Block, SSAValue, VerifyException
from tilewright.ir import Operation as AnyOperation
from tilewright.ir.types import Array, dtype_of, element_dtype, shape_of, tensor_type

Observer = Callable[[str, Array], None]
"""Function that is called with the name (graph/values.py) and the array of every input and every
computed value."""


Rounding = Callable[[Array], Array]
"""Takes each operand of an operation, and gives what the operation is to see of it."""


class WeightSource(Protocol):
    """A source of constants by symbol, as the interpreter reads them."""

    def get(self, symbol: str) -> Array:
        """The array of a symbol; raises KeyError."""
        ...


def interpret(
    module: AnyOperation,
    weights: WeightSource,
    inputs: Mapping[str, Array],
    observe: Observer | None = None,
    rounding: Rounding | None = None,
    names: Mapping[SSAValue, str] | None = None,
) -> dict[str, Array]:
    """Run the network in ``module``: arrays by input name in, arrays by output name out.

    ``rounding`` disturbs the operands of every operation (graph/sensitivity.py). Who observes many
    runs may give the ``names`` of the network's values (``value_names``).

    Raises TilewrightError if an input is missing, unknown, or of another shape or dtype
    (``input-mismatch``), or if a weight is (``weights-mismatch``).
    """
    network = module if isinstance(module, NetworkOp) else network_of(module)
    arrays = _bind(network, inputs)
    if names is None:
        names = value_names(network) if observe is not None else {}
    if observe is not None:
        for value, array in arrays.items():
            observe(names[value], array)
    results = _Run(weights, names, observe, rounding).block(network.block, arrays)
    return {name: array for (name, _), array in zip(network.outputs, results, strict=True)}


def _bind(network: NetworkOp, inputs: Mapping[str, Array]) -> dict[SSAValue, Array]:
    """Check the inputs against the network's; empty ones that it is without are passed over."""
    problems: list[Problem] = []
    arrays: dict[SSAValue, Array] = {}
    wanted = dict(network.inputs)
    for name, content in inputs.items():
        if name not in wanted and content.size:
            known = ", ".join(repr(known) for known in wanted)
            problems.append(
                Problem("input-mismatch", "the network has no such input", repr(name), known)
            )
    for name, value in wanted.items():
        shape, dtype = shape_of(value), dtype_of(value)
        array = inputs.get(name)
        if array is None:
            problems.append(
                Problem("input-mismatch", f"missing; give {dtype} {list(shape)}", repr(name))
            )
        elif array.shape != shape or array.dtype != dtype:
            reason = f"is {array.dtype} {list(array.shape)}, needs {dtype} {list(shape)}"
            problems.append(Problem("input-mismatch", reason, repr(name)))
        else:
            arrays[value] = array
    if problems:
        raise TilewrightError(problems)
    return arrays


class _Run:
    """One run: walks blocks, and drops each array after its last use."""

    def __init__(
        self,
        weights: WeightSource,
        names: Mapping[SSAValue, str],
        observe: Observer | None,
        rounding: Rounding | None,
    ) -> None:
        self.weights = weights
        self.names = names
        self.observe = observe
        self.rounding = rounding

    def block(self, block: Block, arrays: dict[SSAValue, Array]) -> list[Array]:
        """Run a block; ``arrays`` holds its arguments. Returns what its last operation names."""
        dying = last_uses(block)
        for op in block.ops:
            if isinstance(op, OutputOp | YieldOp):
                return [arrays[value] for value in op.values]
            if isinstance(op, WeightOp):
                arrays[op.result] = self.weight(op)
                continue
            if isinstance(op, ScratchOp):
                # Whoever should read it would spread what it holds.
                content = np.nan if op.lasting is None else 0.0
                arrays[op.result] = np.full(shape_of(op.result), content, np.float32)
                continue
            if isinstance(op, KernelOp):
                inner = {argument: arrays[value] for argument, value in op.outside.items()}
                arrays[op.result] = self.block(op.body.block, inner)[0]
            elif isinstance(op, Operation):
                operands = [arrays[value] for value in op.inputs]
                if self.rounding is not None:
                    operands = [self.rounding(array) for array in operands]
                result = (
                    self.loop(op, operands) if isinstance(op, LoopOp) else op.evaluate(*operands)
                )
                arrays[op.result] = result
                if self.observe is not None:
                    self.observe(self.names[op.result], result)
            else:
                raise VerifyException(f"{op.name} has no meaning in a network")
            for value in dying.get(op, ()):
                arrays.pop(value, None)
        raise VerifyException("a block must end with graph.output or graph.yield")

    def loop(self, op: LoopOp, operands: list[Array]) -> Array:
        """The result of a loop; nobody observes the values of its rounds."""
        return op.run(operands, round_of(op, self.weights, self.rounding))

    def weight(self, op: WeightOp) -> Array:
        """A constant, checked against its type."""
        symbol, kind = op.symbol.data, tensor_type(op.result)
        try:
            array = self.weights.get(symbol)
        except KeyError:
            raise refuse("weights-mismatch", "the store has no such weight", symbol) from None
        dtype = element_dtype(kind.element_type)
        if array.shape != kind.get_shape() or array.dtype != dtype:
            raise refuse(
                "weights-mismatch",
                f"is {array.dtype} {list(array.shape)}, needs {dtype} {list(kind.get_shape())}",
                symbol,
            )
        return array


def round_of(op: LoopOp, weights: WeightSource, rounding: Rounding | None = None) -> Round:
    """The meaning of one round of a loop's body."""
    run, block = _Run(weights, {}, None, rounding), op.body.block
    return lambda arrays: run.block(block, dict(zip(block.args, arrays, strict=True)))


def last_uses(block: Block) -> dict[AnyOperation, list[SSAValue]]:
    """For each operation, the values of the block that nothing uses after it.

    A value that nothing uses at all dies where it is made.
    """
    seen: set[SSAValue] = set()
    dying: dict[AnyOperation, list[SSAValue]] = {}
    for op in reversed(list(block.ops)):
        for value in (*op.operands, *op.results):
            if value not in seen:
                seen.add(value)
                dying.setdefault(op, []).append(value)
    return dying
