"""Floats with room behind, and running kernels of floats in several orders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.targets.ascend.ascend_arrays import Halves, built, pack, run, unpack

from tilewright.targets.ascend.host import Outcome
from tilewright.targets.ascend.machine import ASCEND_910, DaVinci
from tilewright.targets.ascend.program import Program

Floats = NDArray[np.float32]

ORDERS = (0, 9, 12, 55)
"""As issued, two adversarial, one at random."""

ROOM = 16
"""Elements behind a tensor."""


def with_room(array: NDArray[Any]) -> NDArray[Any]:
    """The elements row by row, with others behind that are no zeros."""
    return np.concatenate([array.ravel(), np.full(ROOM, 7, array.dtype)])


def floats(seed: int, *shape: int, scale: float = 3.0, mean: float = 0.0) -> Floats:
    """Normally distributed numbers."""
    random = np.random.default_rng(seed)
    return random.normal(mean, scale, shape).astype(np.float32)


def packed(x: Halves) -> Halves:
    """Matrices in Nz, their padding no numbers."""
    return np.stack([pack(matrix) for matrix in x.reshape(-1, *x.shape[-2:])])


def unpacked(data: NDArray[Any], shape: tuple[int, ...]) -> Halves:
    """The matrices of what lies in Nz."""
    count = int(np.prod(shape[:-2]))
    halves = data.view(np.float16).reshape(count, -1)
    return np.stack([unpack(one, (shape[-2], shape[-1])) for one in halves]).reshape(shape)


def results(
    program: Program,
    given: Mapping[str, NDArray[Any]],
    shape: tuple[int, ...],
    core: DaVinci = ASCEND_910,
    kind: type[np.generic] = np.float32,
    name: str = "out",
) -> Iterator[tuple[NDArray[Any], Outcome]]:
    """What a kernel gives in each order, ``name``; what it does not write is no number."""
    kernel = built(program, core)
    size = int(np.prod(shape))
    for order in ORDERS:
        out = np.full((size + ROOM) * np.dtype(kind).itemsize, 0xFF, np.uint8).view(kind)
        arguments = {key: with_room(array) for key, array in given.items()}
        outcome = run(kernel, {**arguments, name: out}, order)
        for key, array in given.items():
            np.testing.assert_array_equal(arguments[key][: array.size], array.ravel())
        yield out[:size].reshape(shape), outcome
