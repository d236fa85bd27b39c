"""What a pass sees beside the module: the machine it compiles for and the network's weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from numpy.typing import NDArray

from tilewright.errors import refuse
from tilewright.ir import Context
from tilewright.machine import Machine


class WeightStore(Protocol):
    """Where a network's constants lie, by content-addressed symbol."""

    def get(self, symbol: str) -> NDArray[Any]:
        """The array of a symbol; raises KeyError."""
        ...

    def add(self, array: NDArray[Any], hint: str = "") -> str:
        """Keep an array; returns its symbol, the same for the same content."""
        ...


class CompilerContext(Context):
    """xDSL's context, with what passes ask for."""

    def __init__(
        self,
        machine: Machine | None = None,
        weights: WeightStore | None = None,
        ranges: Mapping[str, tuple[float, float]] | None = None,
    ) -> None:
        super().__init__()
        self._machine = machine
        self._weights = weights
        self.ranges = dict(ranges or {})
        """Calibrated (minimum, maximum) of values, for fix-numbers."""

    @property
    def machine(self) -> Machine:
        """The machine compiled for; refuses when there is none."""
        if self._machine is None:
            raise refuse("pass-machine", "this pass needs a machine", help="name a --target")
        return self._machine

    @property
    def weights(self) -> WeightStore:
        """The network's weights; refuses when there are none."""
        if self._weights is None:
            raise refuse("pass-weights", "this pass needs the network's weights")
        return self._weights
