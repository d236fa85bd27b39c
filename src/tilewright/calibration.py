"""Sample inputs for machines that compute in fixed point: their values choose binary points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.errors import refuse
from tilewright.graph.dialect import NetworkOp
from tilewright.types import Array, element_dtype, tensor_type

Samples = Mapping[str, Array] | Sequence[Mapping[str, Array]]
"""Calibration inputs: by name with a leading axis of samples, or one mapping per sample."""

CALIBRATION_SAMPLES = 4
"""Random samples used when a fixed-point target gets no calibration data."""


def samples_of(network: NetworkOp, given: Samples | None) -> list[dict[str, Array]]:
    """Calibration data as one mapping per sample; random ones when none are given."""
    if given is None:
        random = np.random.default_rng(0)
        return [
            {
                name: random.standard_normal(tensor_type(value).get_shape()).astype(
                    element_dtype(tensor_type(value).element_type)
                )
                for name, value in network.inputs
            }
            for _ in range(CALIBRATION_SAMPLES)
        ]
    if isinstance(given, Mapping):
        return _split(network, given)
    return [dict(sample) for sample in given]


def _split(network: NetworkOp, given: Mapping[str, Array]) -> list[dict[str, Array]]:
    """Cut arrays with a leading axis of samples into one mapping per sample."""
    counts: set[int] = set()
    for name, value in network.inputs:
        shape = tensor_type(value).get_shape()
        if name not in given:
            raise refuse("calibration-input", f"no calibration data for input {name!r}")
        array = given[name]
        if array.shape[1:] not in (shape, shape[1:]) or (
            array.shape[1:] == shape[1:] and shape[:1] != (1,)
        ):
            raise refuse(
                "calibration-input",
                f"calibration data for {name!r} has shape {list(array.shape)}",
                help=f"give samples of {list(shape)} along a leading axis",
            )
        counts.add(len(array))
    if len(counts) != 1 or counts == {0}:
        raise refuse("calibration-input", "the inputs have different numbers of samples, or none")
    return [
        {
            name: given[name][index].reshape(tensor_type(value).get_shape()).astype(np.float32)
            for name, value in network.inputs
        }
        for index in range(counts.pop())
    ]


def sample_shapes(
    inputs: Mapping[str, Sequence[int | str]], given: Samples
) -> dict[str, tuple[int, ...]]:
    """The shapes of one sample by input name, for inputs whose dims may be free.

    Arrays with a leading axis of samples have one axis more than the input; or as many, where the
    input's first is the batch, which is then 1.
    """
    if not isinstance(given, Mapping):
        if not given:
            raise refuse("calibration-input", "there are no samples")
        return {name: np.asarray(array).shape for name, array in given[0].items()}
    shapes: dict[str, tuple[int, ...]] = {}
    for name, dims in inputs.items():
        if name not in given:
            raise refuse("calibration-input", f"no calibration data for input {name!r}")
        shape = np.asarray(given[name]).shape
        shapes[name] = shape[1:] if len(shape) == len(dims) + 1 else (1, *shape[1:])
    return shapes
