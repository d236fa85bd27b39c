"""Numbers that may be cut: beyond which bounds a value's numbers change nothing of the results.

Attention masks add -1e4, -3.4e38 or -infinity to scores, and softmax makes 0 of all of them alike.
A number format with a scale has to know that: a range with -1e9 in it leaves nothing of scores
about 1. So each operation says, from its result's bounds, which numbers of an operand it cannot
tell from one another, and that is followed back from the readers to whatever they read.

    softmax        what lies ``FAR`` below the least of the rows' maxima is 0
    sigmoid, tanh  flat beyond 16 and 8
    x + y          x below low - highest y, as the sum is then below low
    x * constant   x below low / constant
    min(x, y)      x above the highest y, as the result is then y; max(x, y) in the same way
    views, choices, maxima, casts        the result's own bounds
    maxima of windows and along axes     what lies far below every maximum: padding

A value's bounds hold for all that read it: the loosest count. What the host reads of its own values
is not cut: only what the machine reads of them is turned into the machine's numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

import numpy as np

from tilewright.graph.dialect import KernelOp, NetworkOp, WeightOp, YieldOp
from tilewright.graph.interpreter import WeightSource
from tilewright.graph.operation import Operation
from tilewright.ir import Operation as AnyOperation
from tilewright.ir import SSAValue
from tilewright.ir.types import Array, dtype_of, shape_of
from tilewright.numerics.operators import has, operators

Bounds = tuple[float, float]
"""A least and a greatest number: what lies beyond is as good as the bound itself."""

UNBOUNDED: Bounds = (-inf, inf)

FAR = 16.0
"""Distance below a row's maximum at which a softmax's result is 1e-7 at most: 0 in fixed point,
which gives it from 12 on. The rest is for rows whose maximum is lower than those that were seen."""

ALTOGETHER = 1024.0
"""A row whose maximum lies so far below the tensor's is masked altogether, and tells no range."""

FRACTIONS = 32.0
"""A mask times a large negative constant is cut so that 1/32 of it is below the bound, too; of the
largest float16, 1/32 lies below all scores (``ALTOGETHER``)."""

TWICE = 2.0
"""The allowance for values beyond those that were seen, as a factor."""

FLAT = {"sigmoid": (-16.0, 16.0), "tanh": (-8.0, 8.0)}
"""Functions that are flat beyond these numbers."""

PASSING = frozenset((*operators("selecting"), "convert_layout"))
"""Operations that give numbers of their operands, whichever are cut."""

CHOOSING = frozenset(
    ("sub", "equal", "less", "less_equal", "bit_not", "bit_and", "bit_or", "select")
)
"""Operations that compute, with constants, masks of the elements that are kept."""


Seen = Callable[[SSAValue], Bounds]
"""The numbers that a value takes, finite; of a softmax's operand those that ``as_seen`` leaves."""


def bounds_of(network: NetworkOp, seen: Seen) -> dict[SSAValue, Bounds]:
    """The bounds of all values of a network, those inside of its kernels too.

    A kernel's argument has those of this kernel's reading, its operand those of all readers'.
    """
    bounds, outer = dict[SSAValue, Bounds](), _operands(network)
    converted = _converted(network)

    def known(value: SSAValue) -> Bounds:
        return seen(outer.get(value, value))

    def read(value: SSAValue, within: Bounds) -> None:
        low, high = bounds.get(value, (inf, -inf))
        bounds[value] = min(low, within[0]), max(high, within[1])

    def visit(op: AnyOperation) -> None:
        within = UNBOUNDED
        if isinstance(op, KernelOp | Operation):
            within = bounds.get(op.result, UNBOUNDED)
        if isinstance(op, KernelOp):
            read(op.computed, within)
            for step in reversed(op.operations):
                visit(step)
            for argument, value in op.outside.items():
                if not (op.on_host and value in converted):
                    read(value, bounds.get(argument, UNBOUNDED))
        elif isinstance(op, Operation):
            constants = [isinstance(outer.get(v, v).owner, WeightOp) for v in op.inputs]
            for index, value in enumerate(op.inputs):
                read(value, _back(op, index, within, known, constants))
        else:
            for value in op.operands:
                read(value, UNBOUNDED)

    for op in reversed(list(network.block.ops)):
        visit(op)
    return bounds


def maskable(network: NetworkOp, weights: WeightSource | None = None) -> set[SSAValue]:
    """Values of which very low numbers, -infinity too, are as good as a bound.

    Without ``weights``, constants count as 1.
    """

    def seen(value: SSAValue) -> Bounds:
        owner = value.owner
        if not isinstance(owner, WeightOp):
            return 0.0, 0.0
        return (1.0, 1.0) if weights is None else finite_range(weights.get(owner.symbol.data))

    floors = bounds_of(network, seen)
    return {value for value, (low, _) in floors.items() if low > -inf}


def masks_given(network: NetworkOp) -> dict[SSAValue, bool]:
    """Inputs of the network that may be masks: they are added to what softmax reads, or masks are
    computed of them and added or subtracted.

    True for those of which the mask is computed, as ``(1 - input) * -1e4`` is of zeros and ones;
    False for those that are added as they are.
    """
    low, outer = maskable(network), _operands(network)
    left: list[tuple[SSAValue, str]] = [
        (value, "added")
        for op in network.walk()
        if isinstance(op, Operation) and op.operation == "add"
        for value in op.inputs
        if value in low
    ]
    left += [
        (op.inputs[1], "scaled")
        for op in network.walk()
        if isinstance(op, Operation) and op.operation == "sub" and op.result in low
        if not any(isinstance(outer.get(v, v).owner, WeightOp) for v in op.inputs)
    ]
    ways: dict[SSAValue, str] = {}
    while left:
        value, way = left.pop()
        if value in ways:
            continue
        ways[value] = way
        owner = value.owner
        if value in outer:
            left.append((outer[value], way))
        elif isinstance(owner, KernelOp):
            left.append((owner.computed, way))
        elif isinstance(owner, Operation):
            name = owner.operation
            others = [v for v in owner.inputs if not isinstance(outer.get(v, v).owner, WeightOp)]
            if name in CHOOSING and len(others) == 1:
                left.append((others[0], "chosen"))
            elif name in ("add", "mul", "div") and len(others) == 1:
                left.append((others[0], "scaled" if way == "added" else way))
            elif name in PASSING:
                real = is_real(owner.inputs[0])
                left += [(source, way if real else "chosen") for source in owner.inputs]
    inputs = {value: ways.get(value, "scaled") for _, value in network.inputs}
    return {value: way == "chosen" for value, way in inputs.items() if way != "scaled"}


def rows_read(network: NetworkOp) -> dict[SSAValue, int]:
    """The values that softmax alone reads, along one axis, and that axis."""
    outer, axes = _operands(network), dict[SSAValue, set[int | None]]()
    for op in network.walk():
        if isinstance(op, KernelOp | YieldOp):
            continue  # a kernel reads by its arguments, and what it yields has its result's readers
        axis = None
        if isinstance(op, Operation) and op.operation == "softmax":
            axis = int(op.get("axis", -1)) % len(shape_of(op.result))
        for value in op.operands:
            axes.setdefault(outer.get(value, value), set()).add(axis)
    for kernel in network.kernels:
        axes.setdefault(kernel.computed, set()).update(axes.get(kernel.result, {None}))
    only = {value: next(iter(read)) for value, read in axes.items() if len(read) == 1}
    return {value: axis for value, axis in only.items() if axis is not None}


def _operands(network: NetworkOp) -> dict[SSAValue, SSAValue]:
    """Map the arguments of all kernels to their operands."""
    return {
        argument: value for kernel in network.kernels for argument, value in kernel.outside.items()
    }


def _converted(network: NetworkOp) -> set[SSAValue]:
    """The host's values that kernels of the machine read, too: these read a conversion of them."""
    kernels = [kernel for kernel in network.kernels if not kernel.on_host]
    computed = {kernel.result for kernel in kernels}
    return {value for kernel in kernels for value in kernel.inputs} - computed


def as_seen(array: Array, axis: int) -> Array:
    """A softmax's operand with the values that do not affect the result replaced: those more than
    ``FAR`` below the maximum of their row are raised to that distance, and rows that are masked
    altogether become NaN."""
    if not array.size:
        return array
    most = array.max(axis=axis, keepdims=True)
    finite = most[np.isfinite(most)]
    masked = ~(most >= (finite.max() if finite.size else 0.0) - ALTOGETHER)
    with np.errstate(invalid="ignore"):
        return np.where(masked, np.nan, np.maximum(array, most - FAR))


def finite_range(array: Array) -> Bounds:
    """Least and greatest of the finite numbers; 0 where there are none."""
    low, high = (float(array.min()), float(array.max())) if array.size else (0.0, 0.0)
    if np.isfinite(low) and np.isfinite(high):
        return low, high
    numbers = array[np.isfinite(array)]
    return (float(numbers.min()), float(numbers.max())) if numbers.size else (0.0, 0.0)


def _back(
    op: Operation, index: int, within: Bounds, seen: Seen, constants: Sequence[bool]
) -> Bounds:
    """The bounds of an operand, from those of the result; ``constants`` marks constant operands."""
    name, (low, high) = op.operation, within
    if name == "softmax":
        return seen(op.inputs[0])[0], inf
    if name == "attention" and index == 3:
        return -ALTOGETHER, inf
    if name in FLAT:
        return FLAT[name]
    if name in ("max_pool", "reduce_max", "reduce_min"):
        return _before_extreme(op, within, seen)
    if within == UNBOUNDED:
        return UNBOUNDED
    if name in ("max", "min") and is_real(op.result):
        # What loses against all that was seen of the other one; twice, as it may go beyond that.
        least, most = seen(op.inputs[1 - index])
        if name == "max":
            return max(low, min(2 * min(least, 0.0), high)), high
        return low, min(high, max(2 * max(most, 0.0), low))
    if name in PASSING or (name == "select" and index):
        return within if is_real(op.inputs[index]) and is_real(op.result) else UNBOUNDED
    if name == "neg":
        return -high, -low
    if name in ("mul", "div"):
        return _before_factor(op, index, within, seen, constants)
    joins = has(name, "product") and index == 2  # a bias, beside the product
    if not joins and name not in ("add", "sub"):
        return UNBOUNDED
    least, most = seen(op.result if joins else op.inputs[1 - index])
    if name == "sub" and index:
        return 2 * min(least, 0.0) - high, 2 * max(most, 0.0) - low
    if name == "sub":
        least, most = -most, -least
    # Twice, as the other one may go beyond what was seen of it.
    return low - 2 * max(most, 0.0), high - 2 * min(least, 0.0)


def _before_extreme(op: Operation, within: Bounds, seen: Seen) -> Bounds:
    """The bounds of what maxima, or minima, are taken of.

    What lies below every maximum changes nothing. It is cut only where it is far below, as a
    padding of -1e9 is: elements of the image itself are left as they are.
    """
    (low, high), far = within, TWICE * max(map(abs, seen(op.result)))
    least, most = seen(op.inputs[0])
    if op.operation == "reduce_min":
        return low, min(high, far) if most > FAR * far else high
    return max(low, -far) if least < -FAR * far else low, high


def _before_factor(
    op: Operation, index: int, within: Bounds, seen: Seen, constants: Sequence[bool]
) -> Bounds:
    """The bounds of an operand of a product or quotient with a constant.

    One of the two is cut, as cuts of both would add up: a constant that is large beside the bounds,
    times what is never negative (zeros and ones of a mask, say); or else what it multiplies.
    """
    low, high = within
    divides = op.operation == "div"
    if constants.count(True) != 1 or (divides and constants[0]):
        return UNBOUNDED
    place = constants.index(True)
    (least, most), computed = seen(op.inputs[place]), seen(op.inputs[1 - place])
    widest = min(low, 0.0) * FRACTIONS, max(high, 0.0) * FRACTIONS
    if not divides and computed[0] >= 0 and (least < widest[0] or most > widest[1]):
        return widest if index == place else UNBOUNDED
    if index == place or least <= 0 <= most:
        return UNBOUNDED
    if divides:
        least, most = 1 / most, 1 / least
    if most < 0:
        low, high = -high, -low
    small, large = sorted((abs(least), abs(most)))
    return low / (small if low < 0 else large), high / (large if high < 0 else small)


def is_real(value: SSAValue) -> bool:
    """Return True if a value's elements are floats."""
    return dtype_of(value).kind in "fV"
