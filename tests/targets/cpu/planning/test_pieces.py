"""Blocks of points in pieces: taps of points lie where the geometry says, and schedules fit."""

from dataclasses import replace
from itertools import product
from math import ceil

import numpy as np
import pytest
from tests.graph.operations.test_pieces import convolution, matrix

from tilewright.numerics.pieces import THREE, TWO
from tilewright.planning.domain import Kernel
from tilewright.targets.cpu.machine import machine
from tilewright.targets.cpu.planning.capabilities import own_of
from tilewright.targets.cpu.planning.pieces import POINTS, Geometry, piece_schedules, scratch_words
from tilewright.targets.cpu.processors import PROCESSORS

MACHINE = machine(PROCESSORS["amx"])

SIZES = [(1, 1), (1, 9), (4, 5), (3, 16), (17, 2)]
WINDOWS = [(1, 1), (3, 3), (5, 2), (1, 4)]
STEPS = [(1, 1), (2, 2), (3, 1), (1, 3)]
SPREADS = [(1, 1), (2, 2), (3, 1), (2, 5)]


def label(group: int, piece: int, row: np.ndarray, column: np.ndarray) -> np.ndarray:
    """A number for each pixel of a block's padded image."""
    return ((group * THREE + piece) * 1000 + row) * 1000 + column


def laid_out(geometry: Geometry) -> np.ndarray:
    """Which pixel lies in each 16 words of scratch: group after group, in each phase after phase
    the first pieces, the second ones and so on, row by row."""
    pixels = np.full(geometry.words // POINTS, -1)
    (sh, sw), at = geometry.strides, 0
    y, z = np.ogrid[: geometry.height, : geometry.pitch]
    for group in range(ceil(geometry.channels / 32)):
        assert at == group * geometry.group
        for (down, across), piece in product(geometry.phases, range(geometry.pieces)):
            image = label(group, piece, down + sh * y, across + sw * z).ravel()
            pixels[at // POINTS : at // POINTS + image.size] = image
            at += geometry.plane
    return pixels


@pytest.mark.parametrize("pieces", [TWO, THREE])
@pytest.mark.parametrize("strides", STEPS)
@pytest.mark.parametrize("window", WINDOWS)
def test_each_tap_of_each_point_lies_where_it_is_read(
    window: tuple[int, int], strides: tuple[int, int], pieces: int
) -> None:
    for size, dilations in product(SIZES, SPREADS):
        geometry = Geometry(*size, 40, window, strides, dilations, pieces)
        pixels = laid_out(geometry)
        taps = list(product(range(window[0]), range(window[1])))
        assert len(geometry.taps) == len(taps)
        r, c = np.ogrid[: size[0], : size[1]]
        numbers = r * geometry.pitch + c
        assert numbers.max() < geometry.points <= geometry.tiles * POINTS
        for tap, (i, j) in enumerate(taps):
            row, column = r * strides[0] + i * dilations[0], c * strides[1] + j * dilations[1]
            for group, piece in product(range(2), range(pieces)):
                place = group * geometry.group + piece * geometry.plane + geometry.taps[tap]
                assert place % POINTS == 0
                found = pixels[place // POINTS + numbers]
                assert (found == label(group, piece, row, column)).all()


@pytest.mark.parametrize("strides", STEPS)
@pytest.mark.parametrize("window", WINDOWS)
def test_all_that_tiles_read_is_scratch(window: tuple[int, int], strides: tuple[int, int]) -> None:
    """Whole tiles of points are read, with those that belong to no window."""
    for size, dilations, channels in product(SIZES, SPREADS, (1, 32, 33, 128)):
        geometry = Geometry(*size, channels, window, strides, dilations)
        assert min(geometry.taps) == 0
        last = (ceil(channels / 32) - 1) * geometry.group + (geometry.pieces - 1) * geometry.plane
        last += max(geometry.taps) + geometry.tiles * POINTS * POINTS
        assert last <= geometry.point_words == geometry.words
        assert geometry.steps == ceil(channels / 32) * window[0] * window[1]
        assert geometry.points == (size[0] - 1) * geometry.pitch + size[1]


def test_weights_of_three_pieces_lie_behind_the_points() -> None:
    """Two vectors of output channels, the whole reduction."""
    for channels, window in product((5, 64, 70), WINDOWS):
        geometry = Geometry(4, 5, channels, window, pieces=THREE)
        words = ceil(channels / 32) * window[0] * window[1] * 32 * 2 * 16 * THREE // 2
        assert geometry.words - geometry.point_words == words
        last = (ceil(channels / 32) - 1) * geometry.group + 2 * geometry.plane
        last += max(geometry.taps) + geometry.tiles * POINTS * POINTS
        assert last <= geometry.point_words


def kernel(stage, room: int) -> Kernel:
    """A kernel of one stage with so many elements of scratch."""
    inputs = [replace(o, shape=(room,)) if o.role == "scratch" else o for o in stage.inputs]
    return Kernel("k", (replace(stage, inputs=tuple(inputs)),))


STAGES = {
    "image": convolution((2, 40, 24, 20), (112, 40, 3, 3), pads=(1, 1, 1, 1)),
    "strided": convolution((1, 40, 23, 20), (16, 40, 5, 3), strides=(2, 3), dilations=(1, 2)),
    "row": convolution((1, 64, 1, 50), (48, 64, 1, 1)),
    "rows": matrix((100, 70), 90),
    "batch": matrix((3, 64, 32), 16),
    "image, whole": convolution((2, 40, 24, 20), (112, 40, 3, 3), THREE, pads=(1, 1, 1, 1)),
    "rows, whole": matrix((100, 70), 90, THREE),
}


@pytest.mark.parametrize("name", STAGES)
def test_schedules_fit_scratch_and_leave_the_reduction_whole(name: str) -> None:
    stage = STAGES[name].stage(["x", "w", "s", "b"], "y")
    assert stage is not None
    extents = stage.extents
    primitive = next(
        p
        for p in MACHINE.primitives
        if p.serves(stage.operation, extents) and p.takes("weight", stage.inputs[1].element)
    )
    assert own_of(primitive).block_cycles == (96 if "whole" in name else 48)
    assert primitive.approximate == ("whole" not in name)
    most = scratch_words(kernel(stage, 1 << 30), extents)
    counts: list[int] = []
    for room in (1 << 30, most // 2, 0):
        found = list(piece_schedules(kernel(stage, room), primitive))
        counts.append(len(found))
        assert len(set(found)) == len(found)
        for schedule in found:
            (level,) = schedule.levels
            tile = dict(level.tile)
            assert set(level.order) == set(tile) == set(extents) - set(stage.reduction)
            assert level.order[-1] == "co"
            assert tile["co"] == extents["co"] or tile["co"] % POINTS == 0
            assert all(1 <= tile[dim] <= extents[dim] for dim in tile)
            assert scratch_words(kernel(stage, room), {**extents, **tile}) <= room
    assert counts[0] > counts[1] and counts[2] == 0


def test_few_points_are_no_tile() -> None:
    """Half a tile of points is worth its while, less is not."""
    for count, worth in ((7, False), (8, True)):
        stage = matrix((count, 64), 64).stage(["x", "w", "s", "b"], "y")
        assert stage is not None
        primitive = MACHINE.primitive("matmul_pieces")
        assert any(piece_schedules(kernel(stage, 1 << 30), primitive)) == worth
