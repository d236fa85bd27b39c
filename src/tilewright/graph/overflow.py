"""Results of 16-bit floats that their numbers do not hold: found where the interpreter computes.

A machine of float16 computes the same infinities as the interpreter does on the machine's graph, so
comparing the two says nothing of them, while the model's float32 goes on to 3.4e38. Machines that
saturate (``Machine.overflow``) have no infinities, and nothing is found on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from tilewright.graph.dialect import GraphOperation, KernelOp, WeightOp, network_of
from tilewright.graph.interpreter import WeightSource, interpret
from tilewright.graph.sensitivity import is_float
from tilewright.graph.values import value_names
from tilewright.ir import Operation, SSAValue
from tilewright.ir.types import Array, element_dtype, tensor_type

INFINITE = ("graph.log", "graph.div")
"""Operations that give infinities of finite operands in float32, too."""


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

    def __str__(self) -> str:
        """The node, the limit, and the edit that helps."""
        return (
            f"{self.node}: {self.lost:,} of {self.size:,} results are beyond {self.limit:,.0f}, "
            f"the largest {self.element}: scale its operands or weights down, or leave it to the "
            f"host (--keep-float {self.node})"
        )


class OverflowObserver:
    """Watches a run of the interpreter (an ``Observer``); ``overflows`` says what it saw."""

    def __init__(self, module: Operation, weights: WeightSource) -> None:
        self.network = network_of(module)
        self.weights = weights
        self.names = value_names(self.network)
        self.lost: dict[str, int] = {}
        self._constants: dict[str, WeightOp] = {
            self.names[op.result]: op for op in self.network.walk() if isinstance(op, WeightOp)
        }

    def __call__(self, name: str, array: Array) -> None:
        """A value of the run."""
        if is_float(array) and not np.isfinite(array).all():
            count = int(np.count_nonzero(~np.isfinite(array)))
            self.lost[name] = max(count, self.lost.get(name, 0))

    def overflows(self) -> list[Overflow]:
        """The nodes whose results are not finite though their operands are, in order."""
        return list(self._overflows())

    def _overflows(self) -> Iterator[Overflow]:
        told: set[str] = set()
        for op in self.network.walk():
            if not isinstance(op, GraphOperation) or isinstance(op, KernelOp):
                continue
            name, kind = self.names[op.result], tensor_type(op.result)
            dtype = element_dtype(kind.element_type)
            short = dtype in (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))
            if name not in self.lost or not short or op.name in INFINITE:
                continue
            if not all(self._finite(value) for value in op.inputs):
                continue
            # A conversion of none of the model's nodes is for the node that reads it.
            node = op.node_name or self._reader(name) or name
            if node not in told:
                told.add(node)
                limit = float(ml_dtypes.finfo(dtype).max)
                size = int(np.prod(kind.get_shape(), dtype=np.int64))
                yield Overflow(node, str(dtype), limit, self.lost[name], size)

    def _reader(self, name: str) -> str:
        """The first node that reads a value, perhaps converted once more, or ""."""
        values = {name}
        for op in self.network.walk():
            if not isinstance(op, GraphOperation) or isinstance(op, KernelOp):
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
            return name not in self.lost
        array = self.weights.get(constant.symbol.data)
        return not is_float(array) or bool(np.isfinite(array).all())


def overflows_on(
    module: Operation, weights: WeightSource, samples: Iterable[Mapping[str, Array]]
) -> list[Overflow]:
    """The overflows of a network on any of several inputs; of each node the most that were lost in
    one of them. Raises what ``interpret`` raises."""
    observer = OverflowObserver(module, weights)
    for inputs in samples:
        with np.errstate(all="ignore"):
            interpret(module, weights, inputs, observer)
    return observer.overflows()
