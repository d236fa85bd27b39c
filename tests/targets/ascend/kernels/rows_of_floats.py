"""Floats with room behind, and running kernels of floats in several orders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray
from tests.targets.ascend.ascend_arrays import built, run

from tilewright.targets.ascend.host import Outcome
from tilewright.targets.ascend.machine import ASCEND_910, DaVinci
from tilewright.targets.ascend.program import Program

Floats = NDArray[np.float32]

ORDERS = (0, 9, 12, 55)
"""As issued, two adversarial, one at random."""

ROOM = 16
"""Elements behind a tensor."""


def with_room(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """The elements row by row, with others behind that are no zeros."""
    return np.concatenate([array.ravel(), np.full(ROOM, 7, array.dtype)])


def floats(seed: int, *shape: int, scale: float = 3.0, mean: float = 0.0) -> Floats:
    """Normally distributed numbers."""
    random = np.random.default_rng(seed)
    return random.normal(mean, scale, shape).astype(np.float32)


def results(
    program: Program,
    given: Mapping[str, NDArray[np.generic]],
    shape: tuple[int, ...],
    core: DaVinci = ASCEND_910,
    kind: type[np.generic] = np.float32,
) -> Iterator[tuple[NDArray[np.generic], Outcome]]:
    """What a kernel gives in each order; what it does not write is no number."""
    kernel = built(program, core)
    size = int(np.prod(shape))
    for order in ORDERS:
        out = np.full((size + ROOM) * np.dtype(kind).itemsize, 0xFF, np.uint8).view(kind)
        arguments = {name: with_room(array) for name, array in given.items()}
        outcome = run(kernel, {**arguments, "out": out}, order)
        for name, array in given.items():
            np.testing.assert_array_equal(arguments[name][: array.size], array.ravel())
        yield out[:size].reshape(shape), outcome
