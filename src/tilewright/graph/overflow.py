"""Results of 16-bit floats that their numbers do not hold: found where the interpreter computes.

A machine of float16 computes the same infinities and zeros as the interpreter does on the machine's
graph, so comparing the two says nothing of them, while the model's float32 goes from 1e-45 to
3.4e38. Wherever a tensor is rounded to 16 bits, both are at hand: what was rounded, in float32, and
what it became.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from tilewright.graph.dialect import WeightOp, network_of
from tilewright.graph.interpreter import WeightSource, interpret
from tilewright.graph.operation import Operation
from tilewright.graph.saturation import maskable
from tilewright.graph.sensitivity import is_float
from tilewright.graph.values import value_names
from tilewright.ir import Operation as AnyOperation
from tilewright.ir import SSAValue
from tilewright.ir.types import Array, dtype_of, tensor_type

INFINITE = ("log", "div")
"""Operations that give infinities of finite operands in float32, too."""

ATTENDING = ("graph.softmax", "graph.attention")
"""Operations that take -infinity for a mask, and give no numbers where it masks all."""


@dataclass(frozen=True)
class Overflow:
    """Results of a node that are infinite, or no number, though all operands were finite."""

    node: str
    """The model's node, or the value where it has none."""
    element: str
    limit: float
    """The largest finite number of that element."""
    lost: int
    size: int
    constant: bool = False
    """True if they are numbers of a constant that the node reads: at the limit, to which larger
    ones were cut."""

    def __str__(self) -> str:
        """The node, the limit, and the edit that helps."""
        beyond = f"results are beyond {self.limit:,.0f}"
        if self.constant:
            beyond = f"numbers of its constant are cut to {self.limit:,.0f}, or are that"
        return (
            f"{self.node}: {self.lost:,} of {self.size:,} {beyond}, the largest {self.element}: "
            "scale its operands or weights down, or leave it to the host "
            f"(--keep-float {self.node})"
        )


@dataclass(frozen=True)
class Underflow:
    """A tensor whose numbers are so small that rounding it to 16 bits takes a part of it away."""

    node: str
    """The model's node, or the value where it has none."""
    element: str
    least: float
    """The least number that the element holds with all its digits."""
    largest: float
    """The largest magnitude of the tensor."""
    lost: float
    """The error's root mean square over the tensor's own: 1 where all has become 0."""

    def __str__(self) -> str:
        """The node, the limit, and the edit that helps."""
        return (
            f"{self.node}: its numbers, {self.largest:.2g} at most, lie below {self.least:.2g}, "
            f"the least {self.element} with all digits, and {self.lost:.0%} of them is lost: scale "
            f"its operands or weights up, or leave it to the host (--keep-float {self.node})"
        )


LOST = 1 / 64
"""Underflow is told where the error is more than this part of the tensor, in root mean square:
rounding alone gives 1/2048 (float16) or 1/256 (bfloat16) at most."""

SHORT = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))


class OverflowObserver:
    """Watches a run of the interpreter (an ``Observer``); ``overflows`` and ``underflows`` say what
    it saw."""

    def __init__(self, module: AnyOperation, weights: WeightSource) -> None:
        self.network = network_of(module)
        self.weights = weights
        self.names = value_names(self.network)
        self.lost: dict[str, int] = {}
        self.small: dict[str, tuple[float, float]] = {}
        """By the names of rounded values: what is lost of them, and the largest magnitude."""
        self._constants: dict[str, WeightOp] = {
            self.names[op.result]: op for op in self.network.walk() if isinstance(op, WeightOp)
        }
        self._rounded = {
            self.names[op.result]: self.names[op.inputs[0]]
            for op in self.network.walk()
            if isinstance(op, Operation) and _rounds(op)
        }
        self._operands: dict[str, Array] = {}
        self._wanted = set(self._rounded.values())
        self._masks = {self.names[value] for value in maskable(self.network, weights)}
        self._hidden: dict[str, int] = {}
        """Masks of which numbers have become -infinity: lost only if a whole row has."""

    @property
    def watches(self) -> bool:
        """True if anything is rounded to 16 bits at all."""
        return bool(self._rounded)

    def __call__(self, name: str, array: Array) -> None:
        """A value of the run."""
        if not is_float(array):
            return
        if name in self._wanted and array.dtype not in SHORT:
            self._operands[name] = array
        if not np.isfinite(array).all():
            count = int(np.count_nonzero(~np.isfinite(array)))
            lost = self.lost
            if name in self._masks and np.all(np.isfinite(array) | np.isneginf(array)):
                lost = self._hidden
            lost[name] = max(count, lost.get(name, 0))
        before = self._operands.get(self._rounded.get(name, ""))
        if before is not None and before.shape == array.shape:
            self._compare(name, before, array)

    def _compare(self, name: str, before: Array, after: Array) -> None:
        """Note what rounding a tensor to 16 bits loses."""
        limit = float(ml_dtypes.finfo(after.dtype).max)
        beyond = limit * (1 + float(ml_dtypes.finfo(after.dtype).eps) / 4)
        magnitudes = np.abs(before.astype(np.float64))
        finite = np.isfinite(magnitudes) & (magnitudes < beyond)
        count = int(np.count_nonzero(np.isfinite(magnitudes) & (magnitudes >= beyond)))
        if count and name not in self._hidden and name not in self._masks:
            self.lost[name] = max(count, self.lost.get(name, 0))
        largest = float(magnitudes.max(initial=0.0, where=finite))
        if not 0 < largest < float(ml_dtypes.finfo(after.dtype).smallest_normal):
            return
        error = np.where(finite, after.astype(np.float64) - before, 0.0)
        size = float(np.sqrt(np.mean(np.square(np.where(finite, magnitudes, 0.0) / largest))))
        share = float(np.sqrt(np.mean(np.square(error / largest)))) / size
        if share > max(LOST, self.small.get(name, (0.0, 0.0))[0]):
            self.small[name] = share, largest

    def underflows(self) -> list[Underflow]:
        """The tensors of which a part is lost, in order, each by the node that it is for."""
        told: dict[str, Underflow] = {}
        for op in self.network.walk():
            if isinstance(op, Operation) and self.names.get(op.result) in self.small:
                name, dtype = self.names[op.result], dtype_of(op.result)
                (share, largest), node = self.small[name], self._node(op)
                if self.names[op.inputs[0]] in self.small:
                    continue  # told where it was first rounded
                least = float(ml_dtypes.finfo(dtype).smallest_normal)
                told.setdefault(node, Underflow(node, str(dtype), least, largest, share))
        return list(told.values())

    def overflows(self) -> list[Overflow]:
        """The nodes whose constants are not held, then those whose results are not though their
        operands are, in order."""
        return [*self._cut_constants(), *self._overflows()]

    def _cut_constants(self) -> Iterator[Overflow]:
        """Constants with numbers at the limit of their format, to which larger ones were cut; masks
        are left out, which may have such numbers."""
        for name, op in self._constants.items():
            array = self.weights.get(op.symbol.data)
            if array.dtype not in SHORT or name in self._masks:
                continue
            limit = float(ml_dtypes.finfo(array.dtype).max)
            if count := int(np.count_nonzero(np.abs(array.astype(np.float32)) == limit)):
                node = self._reader(name) or name
                yield Overflow(node, str(array.dtype), limit, count, array.size, constant=True)

    def _overflows(self) -> Iterator[Overflow]:
        told: set[str] = set()
        attending = [op for op in self.network.walk() if op.name in ATTENDING]
        if any(self.names.get(op.results[0]) in self.lost for op in attending):
            self.lost |= self._hidden  # a row is masked altogether, which only infinities do
        for op in self.network.walk():
            if not isinstance(op, Operation):
                continue
            name, kind = self.names[op.result], tensor_type(op.result)
            dtype = dtype_of(op.result)
            if name not in self.lost or dtype not in SHORT or op.operation in INFINITE:
                continue
            if not all(self._finite(value) for value in op.inputs):
                continue
            node = self._node(op)
            if node not in told:
                told.add(node)
                limit = float(ml_dtypes.finfo(dtype).max)
                size = int(np.prod(kind.get_shape(), dtype=np.int64))
                yield Overflow(node, str(dtype), limit, self.lost[name], size)

    def _node(self, op: Operation) -> str:
        """The model's node; a conversion of none of them is for the node that reads it."""
        name = self.names[op.result]
        return op.node_name or self._reader(name) or name

    def _reader(self, name: str) -> str:
        """The first node that reads a value, perhaps converted once more, or ""."""
        values = {name}
        for op in self.network.walk():
            if not isinstance(op, Operation):
                continue
            if values.isdisjoint(self.names[value] for value in op.inputs):
                continue
            if op.node_name:
                return op.node_name
            values.add(self.names[op.result])
        return ""

    def _finite(self, value: SSAValue) -> bool:
        name = self.names[value]
        constant = self._constants.get(name)
        if constant is None:
            return name not in self.lost and name not in self._hidden
        array = self.weights.get(constant.symbol.data)
        return not is_float(array) or bool(np.isfinite(array).all())


def _rounds(op: Operation) -> bool:
    """Return True if an operation rounds a tensor to floats of 16 bits."""
    return op.operation == "cast" and dtype_of(op.result) in SHORT


def losses_on(
    module: AnyOperation, weights: WeightSource, samples: Iterable[Mapping[str, Array]]
) -> list[Overflow | Underflow]:
    """List the values that a network's 16-bit floats do not hold on several inputs; for each node
    the largest loss on one of them. Raises what ``interpret`` raises."""
    observer = OverflowObserver(module, weights)
    for inputs in samples if observer.watches else ():
        with np.errstate(all="ignore"):
            interpret(module, weights, inputs, observer)
    return [*observer.overflows(), *observer.underflows()]
