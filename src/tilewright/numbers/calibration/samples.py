"""Calibration data as a stream of samples: one mapping from input names to arrays each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import PurePath
from typing import Protocol, cast, runtime_checkable

import numpy as np

from tilewright.errors import refuse
from tilewright.graph.dialect import NetworkOp
from tilewright.graph.saturation import is_real, masks_given
from tilewright.ir.types import Array, element_dtype, tensor_type


@runtime_checkable
class SampleSource(Protocol):
    """Data that need to know the network's inputs before they can be read: a folder of images."""

    def stream(self, network: NetworkOp) -> SampleStream:
        """The samples for a network; raises TilewrightError if they do not fit."""
        ...


Samples = Mapping[str, Array] | Iterable[Mapping[str, Array]] | SampleSource
"""Calibration inputs: arrays by name with a leading axis of samples; or an iterable (a generator,
say) of one mapping per sample, which is read once; or a source such as a folder of images."""

RANDOM_SAMPLES = 4
"""Random samples used when a fixed-point target gets no calibration data."""

MASKED = -1.0
"""Random numbers below this are masked."""


@dataclass(frozen=True)
class SampleStream:
    """Samples to be read once, and how many there are, if that is known."""

    samples: Iterable[Mapping[str, Array]]
    count: int | None = None

    def __iter__(self) -> Iterator[Mapping[str, Array]]:
        return iter(self.samples)

    def first(self, count: int) -> list[Mapping[str, Array]]:
        """The first ``count`` samples, or all if there are fewer."""
        return list(islice(self.samples, count))


def samples_of(network: NetworkOp, given: Samples | None) -> SampleStream:
    """Calibration data as a stream of samples; random ones when none are given.

    Raises TilewrightError (``calibration-input``) for arrays that do not fit the network's inputs.
    """
    if given is None:
        random = np.random.default_rng(0)
        return SampleStream([_random(network, random, number) for number in range(RANDOM_SAMPLES)])
    if isinstance(given, SampleSource):
        return given.stream(network)
    _refuse_other(given)
    if isinstance(given, Mapping):
        return _split(network, cast("Mapping[str, Array]", given))
    return SampleStream(given, len(given) if isinstance(given, Sized) else None)


def _random(network: NetworkOp, random: np.random.Generator, number: int) -> dict[str, Array]:
    """Normally distributed numbers; masks, or what may be one, leave out about one in six.
    Integers of 8 or 16 bits are pixels, sound or quantised numbers, and take all values. Sizes of a
    run are the largest, then a quarter of it, and so on: few elements have other ranges."""
    sample, masks = dict[str, Array](), masks_given(network)
    for name, value in network.inputs:
        if name in network.sizes:
            sample[name] = np.array(max(1, network.sizes[name] >> 2 * number))
            continue
        numbers = random.standard_normal(tensor_type(value).get_shape())
        chosen = masks.get(value)
        if chosen:
            numbers = numbers > MASKED
        elif chosen is not None and is_real(value):
            numbers = np.where(numbers > MASKED, numbers, -np.inf)
        dtype = element_dtype(tensor_type(value).element_type)
        if dtype.itemsize <= 2 and dtype.kind in "iu":
            count = 1 << 8 * dtype.itemsize
            numbers = random.integers(0, count, numbers.shape) + np.iinfo(dtype).min
        sample[name] = numbers.astype(dtype)
    return sample


def _refuse_other(given: object) -> None:
    """Refuse what is no data: a file's name, one array, or what cannot be read one by one."""
    if isinstance(given, Mapping):
        return
    if isinstance(given, (str, bytes, PurePath)):
        raise refuse(
            "calibration-input", f"{str(given)[:200]!r} is a name, not the data",
            help="from tilewright.numbers.calibration import calibration_of; calibration_of(PATH)",
        )  # fmt: skip
    if isinstance(given, np.ndarray) or not isinstance(given, Iterable):
        raise refuse(
            "calibration-input", f"a {type(given).__name__} has no inputs' names",
            help="give arrays by input name, or an iterable of these",
        )  # fmt: skip


def _split(network: NetworkOp, given: Mapping[str, Array]) -> SampleStream:
    """Cut arrays with a leading axis of samples into one mapping per sample."""
    counts: set[int] = set()
    known = dict(network.inputs)
    for name in given:
        if name not in known:
            raise refuse(
                "calibration-input", f"the model has no input {name!r}", help=", ".join(known)
            )
    for name, value in known.items():
        kind = tensor_type(value)
        shape = kind.get_shape()
        if name not in given:
            raise refuse("calibration-input", f"no calibration data for input {name!r}")
        array = given[name]
        batch = shape[:1] == (1,) and array.shape[1:] == shape[1:]
        if array.ndim == 0 or not (batch or array.shape[1:] == shape):
            raise refuse(
                "calibration-input",
                f"calibration data for {name!r} has shape {list(array.shape)}",
                help=f"give samples of {list(shape)} along a leading axis",
            )
        if not np.can_cast(array.dtype, element_dtype(kind.element_type), "same_kind"):
            raise refuse(
                "calibration-input",
                f"calibration data for {name!r} are {array.dtype}",
                help=f"the input takes {element_dtype(kind.element_type)}",
            )
        counts.add(len(array))
    if len(counts) != 1 or counts == {0}:
        raise refuse("calibration-input", "the inputs have different numbers of samples, or none")
    count = counts.pop()

    def sample(index: int) -> dict[str, Array]:
        return {
            name: given[name][index]
            .reshape(tensor_type(value).get_shape())
            .astype(element_dtype(tensor_type(value).element_type))
            for name, value in known.items()
        }

    return SampleStream((sample(index) for index in range(count)), count)


def sample_shapes(
    inputs: Mapping[str, Sequence[int | str]], given: Samples
) -> tuple[dict[str, tuple[int, ...]], Samples]:
    """The shapes of one sample by input name, for inputs whose dims may be free; and the samples.

    Arrays with a leading axis of samples have one axis more than the input; or as many, where the
    input's first is the batch, which is then 1. Of an iterable, the first sample tells.
    """
    if isinstance(given, SampleSource):
        raise refuse(
            "calibration-input",
            "images are brought to the sizes of the network's input, and it has free ones",
            help="calibrate with an .npz, or give the input a shape",
        )
    _refuse_other(given)
    if not isinstance(given, Mapping):
        samples = iter(given)
        first = next(samples, None)
        if first is None:
            raise refuse("calibration-input", "there are no samples")
        return {n: np.asarray(array).shape for n, array in first.items()}, chain([first], samples)
    arrays = cast("Mapping[str, Array]", given)
    shapes: dict[str, tuple[int, ...]] = {}
    for name, dims in inputs.items():
        if name not in arrays:
            raise refuse("calibration-input", f"no calibration data for input {name!r}")
        shape = np.asarray(arrays[name]).shape
        shapes[name] = shape[1:] if len(shape) == len(dims) + 1 else (1, *shape[1:])
    return shapes, given
