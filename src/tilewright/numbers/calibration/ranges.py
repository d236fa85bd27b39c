"""Ranges of all values of a network on sample inputs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.errors import refuse
from tilewright.graph.dialect import network_of
from tilewright.graph.interpreter import WeightSource, interpret
from tilewright.graph.saturation import as_seen, maskable, rows_read
from tilewright.graph.values import value_names
from tilewright.ir import Operation
from tilewright.ir.types import Array
from tilewright.numbers.calibration.samples import SampleStream
from tilewright.numerics.observers import Observer

Ranges = dict[str, tuple[float, float]]
"""Name of a value (graph/values.py) -> the range that its numbers shall cover."""


def observed_ranges(
    module: Operation,
    weights: WeightSource,
    samples: SampleStream,
    observer: Callable[[], Observer] = Observer,
    progress: Callable[[str, int, int], None] | None = None,
    masks: bool = False,
) -> Ranges:
    """Run the network on every sample, and let an observer of each value name its range.

    With ``masks``, for formats that cut what changes nothing (graph/saturation.py), of what softmax
    alone reads the range is of what it takes notice of, and -infinity in a mask is the lowest
    number rather than none.
    ``progress`` hears ``calibrate`` and how many samples are done and (0 if that is not known)
    there are. Raises TilewrightError (``calibration-input``) if there is no sample at all.
    """
    observers, names = dict[str, Observer](), value_names(module)
    rows, lowest = dict[str, int](), set[str]()
    if masks:
        network = network_of(module)
        rows = {names[value]: axis for value, axis in rows_read(network).items()}
        lowest = {names[value] for value in maskable(network, weights)}

    def observe(name: str, array: Array) -> None:
        if array.dtype.kind != "f":
            return
        if name not in observers:
            observers[name] = observer()
        if name in rows:
            array = as_seen(array, rows[name])
        elif name in lowest and np.isneginf(array).any():
            array = np.maximum(array, np.finfo(np.float32).min)
        observers[name].see(array)

    done = 0
    for sample in samples:
        if progress is not None:
            progress("calibrate", done, samples.count or 0)
        interpret(module, weights, sample, observe, names=names)
        done += 1
    if not done:
        raise refuse("calibration-input", "there is no sample to calibrate with")
    return {name: observer_.range for name, observer_ in observers.items()}
