"""Magnitudes of single channels of a network's values on sample inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.graph.interpreter import WeightSource, interpret
from tilewright.graph.values import value_names
from tilewright.ir import Operation
from tilewright.ir.types import Array


@dataclass
class Channels:
    """Statistics of each channel of one value; numbers that are not finite count as 0."""

    largest: NDArray[np.float64]
    """Largest magnitude of each channel."""
    squares: NDArray[np.float64]
    """Sum of each channel's squares."""
    count: int = 0
    """Numbers seen in each channel."""

    @property
    def power(self) -> NDArray[np.float64]:
        """Mean of each channel's squares."""
        return self.squares / max(self.count, 1)

    def see(self, array: Array, axis: int) -> None:
        """Add an array whose channels lie along an axis."""
        rows = np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1).astype(np.float64)
        rows[~np.isfinite(rows)] = 0.0
        self.largest = np.maximum(self.largest, np.abs(rows).max(axis=1, initial=0.0))
        self.squares = self.squares + np.square(rows).sum(axis=1)
        self.count += rows.shape[1]


def observed_channels(
    module: Operation,
    weights: WeightSource,
    samples: Iterable[Mapping[str, Array]],
    axes: Mapping[str, int],
    progress: Callable[[int], None] | None = None,
) -> dict[str, Channels]:
    """Run the network on samples; ``axes`` names values and the axis of their channels.

    ``progress`` hears how many samples are done.
    """
    channels: dict[str, Channels] = {}

    def observe(name: str, array: Array) -> None:
        if name in axes:
            if name not in channels:
                zeros = np.zeros(array.shape[axes[name]])
                channels[name] = Channels(zeros, zeros)
            channels[name].see(array, axes[name])

    names = value_names(module)
    for done, sample in enumerate(samples):
        if progress is not None:
            progress(done)
        interpret(module, weights, sample, observe, names=names)
    return channels
