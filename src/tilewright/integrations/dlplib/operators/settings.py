"""Operators' descriptors: what a convolution, a pool or a normalisation is asked to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Literal

from tilewright.errors import refuse
from tilewright.integrations.dlplib.descriptors import Descriptor

Pair = tuple[int, int]
Activation = Literal["none", "relu", "sigmoid", "tanh"]
ACTIVATIONS = ("none", "relu", "sigmoid", "tanh")
LARGEST = 1 << 12
"""The limit of strides, pads, dilations and windows."""


def _need(condition: bool, reason: str) -> None:
    if not condition:
        raise refuse("dlp-parameter", reason)


def _integers(name: str, values: Sequence[int], low: int) -> None:
    _need(
        all(type(value) is int and low <= value <= LARGEST for value in values),
        f"{name} {tuple(values)} must lie in [{low}, {LARGEST}]",
    )


def pair(name: str, values: Sequence[int]) -> Pair:
    """A number along rows and one along columns."""
    _need(len(values) == 2, f"{name} {tuple(values)}: two numbers are needed")
    return values[0], values[1]


def four(pads: Sequence[int]) -> tuple[int, int, int, int]:
    """Pads as top, left, bottom, right; two stand for rows and columns alike."""
    _need(len(pads) in (2, 4), f"pads {tuple(pads)}: two or four numbers are needed")
    top, left, bottom, right = (*pads, *pads)[:4]
    return top, left, bottom, right


@dataclass(frozen=True)
class Convolution:
    """A convolution; ``activation`` is applied to its results."""

    strides: Pair = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilations: Pair = (1, 1)
    groups: int = 1
    activation: Activation = "none"

    def __post_init__(self) -> None:
        _integers("strides", self.strides, 1)
        _integers("pads", self.pads, 0)
        _integers("dilations", self.dilations, 1)
        _need(type(self.groups) is int and 1 <= self.groups <= 1 << 24, f"{self.groups} groups")
        _need(self.activation in ACTIVATIONS, f"no activation {self.activation!r}")


@dataclass(frozen=True)
class Pooling:
    """A pool; ``counted`` is the part of the pads that an average counts as zeros.

    ``ceil`` rounds the number of windows up, as Caffe does: a last window may reach beyond the
    pads, and counts what it meets there in no case.
    """

    mode: Literal["max", "average"] = "max"
    window: Pair = (2, 2)
    strides: Pair = (2, 2)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    counted: tuple[int, int, int, int] = (0, 0, 0, 0)
    ceil: bool = False

    def __post_init__(self) -> None:
        _need(self.mode in ("max", "average"), f"no mode {self.mode!r} of pooling")
        _integers("window", self.window, 1)
        _integers("strides", self.strides, 1)
        _integers("pads", (*self.pads, *self.counted), 0)

    def reach(self, extents: Pair) -> tuple[int, int, int, int]:
        """The pads for an image of these extents, so that the last windows are whole."""
        if not self.ceil:
            return self.pads
        ends: list[int] = []
        for axis in range(2):
            before, after = self.pads[axis], self.pads[axis + 2]
            span, stride = self.window[axis], self.strides[axis]
            count = -(-(extents[axis] + before + after - span) // stride) + 1
            if (before or after) and (count - 1) * stride >= extents[axis] + before:
                count -= 1
            ends.append(max((count - 1) * stride + span - before - extents[axis], 0))
        return self.pads[0], self.pads[1], ends[0], ends[1]


@dataclass(frozen=True)
class Lrn:
    """x / (k + alpha/size * sum of squares over ``size`` channels)**beta."""

    size: int = 5
    alpha: float = 1e-4
    beta: float = 0.75
    k: float = 1.0

    def __post_init__(self) -> None:
        _integers("size", (self.size,), 1)
        numbers = (self.alpha, self.beta, self.k)
        _need(all(isfinite(n) and n >= 0 for n in numbers) and self.k > 0, f"{numbers} of LRN")


@dataclass(frozen=True)
class ActivationSettings:
    """The settings of a map over elements."""

    mode: Activation = "relu"

    def __post_init__(self) -> None:
        _need(self.mode in ACTIVATIONS[1:], f"no activation {self.mode!r}")


@dataclass(frozen=True)
class BatchNorm:
    """The source of the statistics: the batch, whose gradient goes through them, or arguments."""

    of_batch: bool = True


class ConvolutionDescriptor(Descriptor[Convolution]):
    """A descriptor of a convolution's settings."""

    label = "convolution descriptor"

    def set(
        self,
        strides: Sequence[int] = (1, 1),
        pads: Sequence[int] = (0, 0),
        dilations: Sequence[int] = (1, 1),
        groups: int = 1,
        activation: Activation = "none",
    ) -> None:
        """Set all attributes of the convolution."""
        self._put(
            Convolution(
                pair("strides", strides),
                four(pads),
                pair("dilations", dilations),
                groups,
                activation,
            )
        )


class PoolingDescriptor(Descriptor[Pooling]):
    """A descriptor of a pool's settings."""

    label = "pooling descriptor"

    def set(
        self,
        mode: Literal["max", "average"],
        window: Sequence[int],
        strides: Sequence[int],
        pads: Sequence[int] = (0, 0),
        counted: Sequence[int] = (0, 0),
        ceil: bool = False,
    ) -> None:
        """Set all attributes of the pool."""
        self._put(
            Pooling(
                mode,
                pair("window", window),
                pair("strides", strides),
                four(pads),
                four(counted),
                bool(ceil),
            )
        )


class LrnDescriptor(Descriptor[Lrn]):
    """A descriptor of local response normalisation."""

    label = "LRN descriptor"

    def set(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        """Set all attributes of the normalisation."""
        self._put(Lrn(size, float(alpha), float(beta), float(k)))


class ActivationDescriptor(Descriptor[ActivationSettings]):
    """A descriptor of the map that is applied."""

    label = "activation descriptor"

    def set(self, mode: Activation) -> None:
        """Set the function of the activation."""
        self._put(ActivationSettings(mode))


class BatchNormDescriptor(Descriptor[BatchNorm]):
    """A descriptor of the source of a batch normalisation's statistics."""

    label = "batch normalisation descriptor"

    def set(self, of_batch: bool = True) -> None:
        """Set whether the statistics are those of the batch at hand."""
        self._put(BatchNorm(bool(of_batch)))
