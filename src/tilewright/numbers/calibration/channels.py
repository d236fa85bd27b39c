"""Magnitudes of single channels of a network's values on sample inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from tilewright.graph.interpreter import WeightSource, interpret
from tilewright.graph.passes.equalise_sites import Channels
from tilewright.graph.values import value_names
from tilewright.ir import Operation
from tilewright.ir.types import Array


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
