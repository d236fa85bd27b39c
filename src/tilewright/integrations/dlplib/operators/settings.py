"""Operators' descriptors: what a convolution, a pool or a normalisation is asked to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Literal

from tilewright.errors import refuse
from tilewright.integrations.dlplib.descriptors import Descriptor, setter

Activation = Literal["none", "relu", "sigmoid", "tanh"]
ACTIVATIONS = ("none", "relu", "sigmoid", "tanh")
"""Activation functions in the order of dlplib.h."""
LARGEST = 1 << 12
"""The limit of strides, pads, dilations and windows."""


def _need(condition: bool, reason: str) -> None:
    if not condition:
        raise refuse("dlp-parameter", reason)


def _settle(settings: object, name: str, low: int, *, pads: bool = False) -> None:
    """Check a setting, and make it a tuple: a number along rows and one along columns.

    Pads are top, left, bottom, right; two stand for rows and columns alike.
    """
    values: tuple[int, ...] = getattr(settings, name)
    two, count = len(values) == 2, "two or four" if pads else "two"
    _need(two or (pads and len(values) == 4), f"{name} {tuple(values)}: {count} numbers are needed")
    _need(
        all(type(value) is int and low <= value <= LARGEST for value in values),
        f"{name} {tuple(values)} must lie in [{low}, {LARGEST}]",
    )
    object.__setattr__(settings, name, (*values, *values)[:4] if pads else tuple(values))


@dataclass(frozen=True)
class Convolution:
    """A convolution; ``activation`` is applied to its results."""

    strides: tuple[int, ...] = (1, 1)
    pads: tuple[int, ...] = (0, 0)
    dilations: tuple[int, ...] = (1, 1)
    groups: int = 1
    activation: Activation = "none"

    def __post_init__(self) -> None:
        _settle(self, "strides", 1)
        _settle(self, "pads", 0, pads=True)
        _settle(self, "dilations", 1)
        _need(type(self.groups) is int and 1 <= self.groups <= 1 << 24, f"{self.groups} groups")
        _need(self.activation in ACTIVATIONS, f"no activation {self.activation!r}")


@dataclass(frozen=True)
class Pooling:
    """A pool; ``counted`` is the part of the pads that an average counts as zeros.

    ``ceil`` rounds the number of windows up, as Caffe does: a last window may reach beyond the
    pads, and counts what it meets there in no case.
    """

    mode: Literal["max", "average"]
    window: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...] = (0, 0)
    counted: tuple[int, ...] = (0, 0)
    ceil: bool = False

    def __post_init__(self) -> None:
        _need(self.mode in ("max", "average"), f"no mode {self.mode!r} of pooling")
        _settle(self, "window", 1)
        _settle(self, "strides", 1)
        _settle(self, "pads", 0, pads=True)
        _settle(self, "counted", 0, pads=True)

    def reach(self, extents: Sequence[int]) -> tuple[int, ...]:
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

    size: int
    alpha: float = 1e-4
    beta: float = 0.75
    k: float = 1.0

    def __post_init__(self) -> None:
        _need(type(self.size) is int and 1 <= self.size <= LARGEST, f"size {self.size} of LRN")
        numbers = [float(n) for n in (self.alpha, self.beta, self.k)]
        _need(all(isfinite(n) and n >= 0 for n in numbers) and self.k > 0, f"{numbers} of LRN")
        for name, value in zip(("alpha", "beta", "k"), numbers, strict=True):
            object.__setattr__(self, name, value)


def _activation(mode: Activation) -> Activation:
    """The function of an activation's descriptor."""
    _need(mode in ACTIVATIONS[1:], f"no activation {mode!r}")
    return mode


def _of_batch(of_batch: bool = True) -> bool:
    """True if statistics are those of the batch, whose gradient goes through them."""
    return bool(of_batch)


class ConvolutionDescriptor(Descriptor[Convolution]):
    """A descriptor of a convolution's settings."""

    label = "convolution descriptor"
    set = setter(Convolution)


class PoolingDescriptor(Descriptor[Pooling]):
    """A descriptor of a pool's settings."""

    label = "pooling descriptor"
    set = setter(Pooling)


class LrnDescriptor(Descriptor[Lrn]):
    """A descriptor of local response normalisation."""

    label = "LRN descriptor"
    set = setter(Lrn)


class ActivationDescriptor(Descriptor[Activation]):
    """A descriptor of the map that is applied."""

    label = "activation descriptor"
    set = setter(_activation)


class BatchNormDescriptor(Descriptor[bool]):
    """A descriptor of the source of a batch normalisation's statistics: the batch, or arguments."""

    label = "batch normalisation descriptor"
    set = setter(_of_batch)
