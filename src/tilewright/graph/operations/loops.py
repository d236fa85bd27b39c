"""A loop: a body of operations that runs a known number of rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import ClassVar, cast

import numpy as np

from tilewright.graph.checks import check_alike, check_order
from tilewright.graph.dialect import KernelOp, YieldOp
from tilewright.graph.operation import Attributes, Operation, Type
from tilewright.ir import (
    Attribute,
    Block,
    PythonValue,
    Region,
    SSAValue,
    StringAttr,
    VerifyException,
    irdl_op_definition,
    opt_prop_def,
    region_def,
    to_attribute,
)
from tilewright.ir import Operation as AnyOperation
from tilewright.ir.types import Array, shape_of, tensor, tensor_type
from tilewright.planning.domain import Affine, Dim, Stage

MOST_ROUNDS = 2**24

Round = Callable[[list[Array]], list[Array]]
"""One round of a body: arrays of its arguments in, arrays of what it yields out."""


def loop_in(op: AnyOperation) -> LoopOp | None:
    """The loop that a kernel is; None for all others."""
    if not isinstance(op, KernelOp):
        return None
    first = op.body.block.first_op
    return first if isinstance(first, LoopOp) else None


def loop_operands(kernel: KernelOp, loop: LoopOp) -> list[SSAValue]:
    """The network's values that a loop reads as its operands, of which the kernel lists equal ones
    once."""
    outside = kernel.outside
    return [outside[value] for value in loop.inputs]


@irdl_op_definition
class LoopOp(Operation):
    """Rounds of a body, one after another::

        %y = graph.loop (%h, %xs, %k) : (tensor<1x4xf32>, tensor<9x1x4xf32>, tensor<4xf32>)
             -> tensor<40xf32> attributes {rounds = 9, carried = 1, axes = [0],
                                           backwards = [false],
                                           stacked_backwards = [false]} {
        ^bb1(%state: tensor<1x4xf32>, %x: tensor<1x4xf32>, %given: tensor<4xf32>):
          ...
          graph.yield %new, %row : tensor<1x4xf32>, tensor<1x4xf32>
        }

    The operands are, in this order, the first values of what is ``carried`` from round to round;
    sequences, of which each round reads one index along an axis of ``axes``, from the last to the
    first where ``backwards`` says so; and values that are the same in all rounds. The body's
    arguments are those of one round, without the sequences' axes. It yields what the next round
    carries, and then rows that are stacked along a new first axis, the first round's last where
    ``stacked_backwards`` says so.

    As every operation it has one result: the last carried values and then the stacks, each in
    row-major order, flat and one after another. ``parts`` says where each is; slices and reshapes
    take them out, which are addresses. Constants may be operands, or stand in the body.
    """

    name = "graph.loop"
    rounds = opt_prop_def()
    carried = opt_prop_def()
    axes = opt_prop_def()
    backwards = opt_prop_def()
    stacked_backwards = opt_prop_def()
    body = region_def("single_block")
    assembly_format: ClassVar[str | None] = (
        "`(` ($inputs^)? `)` `:` functional-type($inputs, $result) attr-dict-with-keyword $body"
    )
    DEFAULTS: ClassVar[Attributes] = {
        "rounds": None,
        "carried": 0,
        "axes": (),
        "backwards": (),
        "stacked_backwards": (),
    }
    ARITY: ClassVar[tuple[int, int]] = (0, 2**16)

    @classmethod
    def of(
        cls,
        inputs: Sequence[SSAValue],
        body: Block,
        *,
        rounds: int,
        carried: int,
        axes: Sequence[int] = (),
        backwards: Sequence[bool] = (),
        stacked_backwards: Sequence[bool] = (),
        node: str = "",
    ) -> LoopOp:
        """A loop over a block, which ends with ``graph.yield``; raises VerifyException."""
        stated: dict[str, PythonValue] = {
            "rounds": rounds, "carried": carried, "axes": tuple(axes),
            "backwards": tuple(backwards), "stacked_backwards": tuple(stacked_backwards),
        }  # fmt: skip
        properties = {key: to_attribute(value) for key, value in stated.items()}
        if node:
            properties["node"] = StringAttr(node)
        kinds = [tensor_type(value) for value in inputs]

        def build(kind: Attribute, block: Block) -> LoopOp:
            op = cls.create(
                operands=list(inputs),
                result_types=[kind],
                properties=dict(properties),
                regions=[Region(block)],
            )
            assert isinstance(op, LoopOp)
            return op

        first = build(tensor(()), body)
        inferred = first.inferred(kinds)
        block = first.body.detach_block(0)
        first.erase()
        return build(inferred, block)

    @property
    def count(self) -> int:
        """The number of rounds."""
        return self.integer("rounds", 1, MOST_ROUNDS)

    @property
    def states(self) -> int:
        """The number of values that are carried."""
        return self.integer("carried", 0, len(self.inputs))

    @property
    def sequences(self) -> list[tuple[int, bool]]:
        """The axis of each sequence, and whether it is read from its end."""
        axes = self.integers("axes", low=0)
        return list(zip(axes, self._flags("backwards", len(axes)), strict=True))

    @property
    def yielded(self) -> YieldOp:
        """The operation that ends the body."""
        last = self.body.block.last_op
        if not isinstance(last, YieldOp):
            raise self.wrong("its body must end with graph.yield")
        return last

    @property
    def stacks(self) -> tuple[bool, ...]:
        """For each row that a round yields, whether the first round's is the last of its stack."""
        return self._flags("stacked_backwards", len(self.yielded.values) - self.states)

    @property
    def parts(self) -> list[tuple[int, tuple[int, ...]]]:
        """The first element in the result, and the shape, of each carried value and stack."""
        places: list[tuple[int, tuple[int, ...]]] = []
        start = 0
        for number, value in enumerate(self.yielded.values):
            shape = shape_of(value)
            if number >= self.states:
                shape = (self.count, *shape)
            places.append((start, shape))
            start += prod(shape)
        return places

    def _flags(self, name: str, count: int) -> tuple[bool, ...]:
        value = self.get(name, ())
        good = isinstance(value, tuple) and all(
            type(v) is bool for v in cast("tuple[object]", value)
        )
        self.need(good and len(value) == count, f"{name} must be a list of {count} booleans")
        return cast("tuple[bool, ...]", value)

    def infer(self, types: Sequence[Type]) -> Type:
        """The type of the result, as many elements as its parts have together; checks the body."""
        block, states, rounds = self.body.block, self.states, self.count
        arguments, yielded = [tensor_type(v) for v in block.args], list(self.yielded.values)
        sequences = self.sequences
        self.need(
            states + len(sequences) <= len(types) == len(arguments),
            f"{len(types)} operands with {states} carried and {len(sequences)} sequences do not "
            f"fit a body of {len(arguments)} arguments",
        )
        self.need(len(yielded) >= max(1, states), "its body yields too little")
        for number, (kind, argument) in enumerate(zip(types, arguments, strict=True)):
            shape = kind.get_shape()
            if 0 <= number - states < len(sequences):
                axis = sequences[number - states][0]
                self.need(
                    axis < len(shape) and shape[axis] == rounds,
                    f"operand {number} of shape {list(shape)} has no {rounds} indices along axis "
                    f"{axis}",
                )
                shape = (*shape[:axis], *shape[axis + 1 :])
            self.need(
                shape == argument.get_shape() and kind.element_type == argument.element_type,
                f"argument {number} of its body is {argument}, a round has {list(shape)} of "
                f"{kind.element_type}",
            )
        check_alike(block.args[:states], yielded[:states], f"{self.name}: what is carried")
        check_order(block, self.name)
        elements = [tensor_type(value).element_type for value in yielded]
        self.need(
            all(element == elements[0] for element in elements),
            f"what it yields differs in element type: {', '.join(map(str, elements))}",
        )
        _ = self.stacks
        total = sum(prod(shape) for _, shape in self.parts)
        return self.result_of((total,), elements[0])

    def run(self, arrays: Sequence[Array], body: Round) -> Array:
        """The result for arrays of the operands, with ``body`` as the meaning of a round."""
        states, sequences, rounds = self.states, self.sequences, self.count
        carried = list(arrays[:states])
        given = list(arrays[states + len(sequences) :])
        stacks: list[list[Array]] = [[] for _ in self.stacks]
        for number in range(rounds):
            slices = [
                np.take(array, rounds - 1 - number if back else number, axis)
                for array, (axis, back) in zip(arrays[states:], sequences, strict=False)
            ]
            results = body([*carried, *slices, *given])
            carried = results[:states]
            for stack, row in zip(stacks, results[states:], strict=True):
                stack.append(row)
        whole = [
            np.stack(stack[::-1] if back else stack)
            for stack, back in zip(stacks, self.stacks, strict=True)
        ]
        return np.concatenate([array.reshape(-1) for array in (*carried, *whole)])

    def evaluate(self, *arrays: Array) -> Array:
        """Refuses: only who has the constants of the body runs it (graph/interpreter.py)."""
        raise VerifyException(f"{self.name}: its body is run by the interpreter")

    def stage(self, operands: Sequence[str], result: str) -> Stage | None:
        """Every element of the result may depend on every element of the operands."""
        dims = [Dim("d0", shape_of(self.result)[0])]
        accesses: list[list[Affine]] = []
        for number, value in enumerate(self.inputs):
            names = [f"x{number}_{axis}" for axis in range(len(shape_of(value)))]
            accesses.append([Affine.parse(name) for name in names])
            extents = zip(names, shape_of(value), strict=True)
            dims += [Dim(name, extent, "reduction") for name, extent in extents]
        return self.make_stage(dims, operands, accesses, result, [Affine.parse("d0")])
