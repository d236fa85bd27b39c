"""The interface of a layer's importer: the layer, its operands, and ways to emit and refuse."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from tilewright.errors import Problem, TilewrightError
from tilewright.frontends.caffe.net import Layer
from tilewright.frontends.caffe.stored import Parameters
from tilewright.frontends.emitter import Emitter, NetworkBuilder
from tilewright.ir import SSAValue
from tilewright.ir.types import Array, shape_of


class Lowering(Emitter):
    """One layer on its way into the graph dialect."""

    FAMILY: ClassVar[str] = "caffe"
    SETTING: ClassVar[str] = "parameter"
    TYPED: ClassVar[bool] = False

    def __init__(
        self,
        layer: Layer,
        values: Sequence[SSAValue],
        network: NetworkBuilder,
        parameters: Parameters,
        problems: list[Problem],
    ) -> None:
        super().__init__(network, layer.name, layer.name, layer.where)
        self.layer = layer
        self.values = values
        """The values of the layer's bottoms, in order."""
        self.taken = 0
        """Parameters taken so far."""
        self._parameters = parameters
        self._problems = problems

    # The layer

    def settings(self, name: str) -> Any:
        """A message of settings such as ``pooling_param``; the defaults where there is none."""
        return getattr(self.layer.proto, name)

    def number(self, settings: Any, name: str) -> float:
        """A number in a message of settings, finite."""
        value = float(getattr(settings, name))
        if not math.isfinite(value):
            raise self.refuse(f"{name} is not a finite number")
        return value

    def check_number(self, value: float) -> None:
        """Refuses a number that float32 does not hold."""
        if not abs(value) <= float(np.finfo(np.float32).max):
            raise self.refuse(f"its settings lead to {value}, which float32 does not hold")

    def needs(self, bottoms: int, tops: int = 1) -> None:
        """Refuses another number of bottoms or tops."""
        for subject, names, count in (
            ("bottoms", self.layer.bottoms, bottoms),
            ("tops", self.layer.tops, tops),
        ):
            if len(names) != count:
                raise self.refuse(f"it has {len(names)} {subject}; it takes {count}")

    # Operands

    @property
    def x(self) -> SSAValue:
        """The value of the first bottom."""
        return self.values[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the first bottom."""
        return shape_of(self.x)

    def images(self) -> tuple[int, int, int, int]:
        """Shape of the first bottom, [n, c, h, w]; refuses other ranks."""
        if len(self.shape) != 4:
            raise self.misfit(
                f"its bottom has shape {list(self.shape)}; images [n, c, h, w] are computed"
            )
        n, c, h, w = self.shape
        return n, c, h, w

    # Parameters

    def parameter(
        self, shape: Sequence[int], kind: str, fan_in: int = 1, *, drawn: Sequence[int] = ()
    ) -> SSAValue:
        """The next parameter as a value of the network, of shape ``drawn`` if that is given.

        A placeholder replaces a parameter that is refused, so that the import goes on.
        """
        try:
            array = self._next(shape, kind, fan_in)
        except TilewrightError as error:
            self._problems.extend(error.problems)
            return self.network.placeholder(drawn or shape)
        return self.constant(array.reshape(drawn or shape), kind)

    def parameter_array(self, shape: Sequence[int], kind: str, fan_in: int = 1) -> Array | None:
        """The next parameter as an array; None if it is refused, which is noted."""
        try:
            return self._next(shape, kind, fan_in)
        except TilewrightError as error:
            self._problems.extend(error.problems)
            return None

    def _next(self, shape: Sequence[int], kind: str, fan_in: int) -> Array:
        self.taken += 1
        return self._parameters.take(self.layer, self.taken - 1, shape, kind, fan_in)

    # Emitting

    def constant(self, array: Array | float, hint: str = "constant") -> SSAValue:
        """An array or a number of the layer's as a value of the network."""
        if isinstance(array, float):
            self.check_number(array)
        values = np.asarray(array, np.float32)
        return self.network.weight(values, f"{self.layer.name}.{hint}")


Rule = Callable[[Lowering], Sequence[SSAValue]]
"""Imports one layer: emits what it means and returns one value per top.

Raises TilewrightError (a refusal).
"""


def of_one(rule: Callable[[Lowering], SSAValue]) -> Rule:
    """The rule of a layer that makes one top of one bottom."""

    def checked(at: Lowering) -> Sequence[SSAValue]:
        at.needs(1)
        return [rule(at)]

    return checked
