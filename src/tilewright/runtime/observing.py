"""The values between kernels, as a run makes them: what layer-by-layer comparisons see."""

from __future__ import annotations

from tilewright.errors import refuse
from tilewright.graph.arenas import Arenas, read_value
from tilewright.graph.dialect import KernelOp, NetworkOp
from tilewright.graph.interpreter import Observer
from tilewright.graph.operation import Operation
from tilewright.graph.passes.editing import VIEWS
from tilewright.graph.values import value_names
from tilewright.ir import Operation as AnyOperation
from tilewright.ir import VerifyException


class Observing:
    """Shows an observer every value outside kernels, once it is whole, in program order.

    Names are those of the graph (graph/values.py), as the interpreter uses them. The network's
    inputs are not shown. Pass ``step`` to a runner as its ``watch``.
    """

    def __init__(self, network: NetworkOp, observe: Observer) -> None:
        self.names = value_names(network)
        self.observe = observe
        self.left = [op for op in network.block.ops if isinstance(op, KernelOp | Operation)]
        self.left.reverse()

    def step(self, symbol: str, arenas: Arenas) -> None:
        """A step has run: show its result, and the views that it completes."""
        while self.left:
            op = self.left[-1]
            if _is_view(op):
                self._show(arenas)
                continue
            if symbol == "" and isinstance(op, KernelOp):
                return  # a copy whose result is no value of the graph
            if isinstance(op, KernelOp) and op.symbol.data != symbol:
                reason = f"runs {symbol!r} where the graph has {op.symbol.data!r}"
                raise refuse("package-invalid", reason)
            self._show(arenas)
            break
        while self.left and _is_view(self.left[-1]):
            self._show(arenas)

    def _show(self, arenas: Arenas) -> None:
        op = self.left.pop()
        assert isinstance(op, KernelOp | Operation)
        try:
            array = read_value(op.result, arenas)
        except VerifyException as error:
            raise refuse("package-invalid", str(error)) from error
        self.observe(self.names[op.result], array.copy())


def _is_view(op: AnyOperation) -> bool:
    return isinstance(op, Operation) and op.operation in VIEWS
