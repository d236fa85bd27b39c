"""Operators of a model as it wrote them, each with the steps that compute it.

A front-end that takes an operator apart keeps it, and what it makes of it as the operator's steps.
What the model means is then in the network that it imports, and does not follow from the steps:
they may multiply by zeros where the operator has no term, for example, so that infinities spread.
The pass ``take-steps`` puts the steps in the operator's place before anything is compiled.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, TypeVar

import numpy as np

from tilewright.errors import refuse
from tilewright.graph.checks import check_alike, check_order
from tilewright.graph.dialect import YieldOp
from tilewright.graph.operation import Attributes, Operation, Type
from tilewright.ir import (
    Attribute,
    Block,
    Region,
    SSAValue,
    irdl_op_definition,
    opt_prop_def,
    region_def,
)
from tilewright.ir.types import Array, shape_of, tensor_type
from tilewright.numerics import pointwise, reference

Kind = TypeVar("Kind", bound="WrittenOp")


class WrittenOp(Operation):
    """An operator and its steps::

        %y = graph.resample (%x, %m, %row) : (...) -> tensor<1x8x6xf32>
             attributes {written = 2, axis = 1} {
        ^bb1(%0: tensor<1x4x6xf32>, %1: tensor<8x4xf32>, %2: tensor<1x8x4xf32>):
          %3 = graph.matmul %2, %0 : ...
          graph.yield %3 : tensor<1x8x6xf32>
        }

    The first ``written`` operands are the operator's; the steps read any of them, as the arguments
    of their block.
    """

    written = opt_prop_def()
    steps = region_def("single_block")
    assembly_format: ClassVar[str | None] = (
        "`(` ($inputs^)? `)` `:` functional-type($inputs, $result) attr-dict-with-keyword $steps"
    )
    ARITY: ClassVar[tuple[int, int]] = (1, 2**16)

    @classmethod
    def around(
        cls: type[Kind],
        inputs: Sequence[SSAValue],
        body: Block,
        properties: dict[str, Attribute],
    ) -> Kind:
        """The operator over a block of steps, which ends with ``graph.yield``."""
        last = body.last_op
        assert isinstance(last, YieldOp)
        op = cls.create(
            operands=list(inputs),
            result_types=[last.values[0].type],
            properties=properties,
            regions=[Region(body)],
        )
        assert isinstance(op, cls)
        return op

    @property
    def yielded(self) -> SSAValue:
        """What the steps compute."""
        last = self.steps.block.last_op
        if not isinstance(last, YieldOp) or len(last.values) != 1:
            raise self.wrong("its steps must end with graph.yield of one value")
        return last.values[0]

    def infer(self, types: Sequence[Type]) -> Type:
        """The type of what the steps compute; checks the steps."""
        block = self.steps.block
        check_alike(self.inputs, block.args, f"{self.name}: its steps")
        check_order(block, self.name)
        self.integer("written", 1, len(types))
        kind = tensor_type(self.yielded)
        return self.result_of(kind.get_shape(), kind.element_type)

    def evaluate(self, *arrays: Array) -> Array:
        """As the operator, without its steps."""
        return self.meaning(*arrays[: self.integer("written", 1, len(arrays))])

    @abstractmethod
    def meaning(self, *arrays: Array) -> Array:
        """The result for arrays of the operator's operands."""


@irdl_op_definition
class ConvTransposeOp(WrittenOp):
    """The transpose of a convolution: images [n, ci, places...], weights [ci, co / group, taps...]
    and perhaps a bias [co].

    Each element of an image adds, times the taps, to the places that its window covers. ``pads``
    are cut off before and after each axis; those of the end are negative where the result has
    more.
    """

    name = "graph.conv_transpose"
    strides = opt_prop_def()
    pads = opt_prop_def()
    dilations = opt_prop_def()
    group = opt_prop_def()
    DEFAULTS: ClassVar[Attributes] = {
        "strides": (),
        "pads": (),
        "dilations": (),
        "group": 1,
    }

    def meaning(self, *arrays: Array) -> Array:
        """Tap by tap."""
        x, w = arrays[:2]
        rank = x.ndim - 2
        y = reference.conv_transpose(
            x,
            w,
            self.integers("strides", rank, low=1),
            self.integers("pads", 2 * rank),
            self.integers("dilations", rank, low=1),
            self.integer("group", 1, x.shape[1]),
        )
        for bias in arrays[2:]:
            y = y + bias.reshape(-1, *(1,) * rank)
        return y.astype(x.dtype, copy=False)


@irdl_op_definition
class ResampleOp(WrittenOp):
    """The elements along ``axis`` by others: operands x and coefficients [results, elements].

    Coefficients that are zero belong to no term: an element spreads no farther than its window.
    """

    name = "graph.resample"
    axis = opt_prop_def()
    DEFAULTS: ClassVar[Attributes] = {"axis": 0}

    def meaning(self, *arrays: Array) -> Array:
        """Term by term; integers are rounded to the nearest, halves to the even one."""
        x, coefficients = arrays
        axis = self.integer("axis", 0, x.ndim - 1)
        moved = np.moveaxis(x, axis, -1)
        places = np.argsort(coefficients == 0, axis=1, kind="stable")
        terms = int(np.count_nonzero(coefficients, axis=1).max())
        total = np.zeros((*moved.shape[:-1], len(coefficients)), np.float64)
        for place in places[:, :terms].T:
            factor = coefficients[np.arange(len(place)), place].astype(np.float64)
            with np.errstate(invalid="ignore"):
                total += np.where(factor == 0, 0.0, factor * moved[..., place])
        result = np.ascontiguousarray(np.moveaxis(total, -1, axis))
        if x.dtype.kind == "f":
            return result.astype(x.dtype)
        whole = np.rint(result.astype(np.float32))
        return pointwise.evaluate(
            "cast", [whole], fractions=(0,), result_fraction=0,
            attributes={"to": x.dtype.name}, fixed=False,
        )  # fmt: skip


@irdl_op_definition
class PartOp(WrittenOp):
    """The part of x along ``axis`` from a start, a second operand of one element, to ``span``
    after it, by ``step``.

    As a slice has it: bounds count from the end where they are negative, and are cut to the axis. A
    part that then has not the elements of the result is refused (``input-part``).
    """

    name = "graph.part"
    axis = opt_prop_def()
    span = opt_prop_def()
    step = opt_prop_def()
    DEFAULTS: ClassVar[Attributes] = {"axis": 0, "span": 1, "step": 1}

    def meaning(self, *arrays: Array) -> Array:
        """The slice; raises TilewrightError where it is smaller than the result."""
        x, start = arrays[0], int(arrays[1].reshape(-1)[0])
        axis = self.integer("axis", 0, x.ndim - 1)
        end, extent = start + int(self.get("span")), x.shape[axis]
        part = slice(start, end, int(self.get("step")))
        result = np.take(x, range(*part.indices(extent)), axis)
        if result.shape != shape_of(self.result):
            raise refuse(
                "input-part",
                f"the part from {start} to {end} does not lie within {extent} elements",
                repr(self.node_name),
            )
        return result


WRITTEN: tuple[type[WrittenOp], ...] = (ConvTransposeOp, PartOp, ResampleOp)
"""The operators that keep their steps."""
