"""Axes that blocks of a launch share: each kernel in blocks computes what one block does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.slow import but_fast
from tests.targets.ascend.ascend_arrays import built
from tests.targets.ascend.element_kernels import broadcast, elementwise, folded, normal, pooled

from tilewright.errors import TilewrightError
from tilewright.targets.ascend.emit import kernel_text
from tilewright.targets.ascend.flags import synchronised
from tilewright.targets.ascend.kernels.channels import to_blocks
from tilewright.targets.ascend.kernels.fractal import fractalise
from tilewright.targets.ascend.kernels.heads import split_heads
from tilewright.targets.ascend.kernels.look_up import look_up
from tilewright.targets.ascend.kernels.moves import Dim, move_elements, pad_axis
from tilewright.targets.ascend.kernels.normal import Norm
from tilewright.targets.ascend.kernels.portions import portions
from tilewright.targets.ascend.kernels.shares import (
    Extent,
    Share,
    divided,
    joined,
    share_of,
    spread,
)
from tilewright.targets.ascend.kernels.tiles import cut
from tilewright.targets.ascend.machine import ASCEND_910
from tilewright.targets.ascend.program import Program
from tilewright.targets.ascend.reader.kernels import read_kernels, verified

KINDS = {"half": "f2", "float": "f4", "uint8_t": "u1", "int64_t": "i8"}

SMALL = replace(ASCEND_910, ub=ASCEND_910.ub // 16)

Cut = Callable[[int, int, str], Extent]
"""Extent, part, name of a block's place."""


CASES: dict[str, tuple[Callable[[Cut], Program], int]] = {
    "short last": (lambda of: portions("copy", "half", of(1_001, 160, "e"), SMALL), 7),
    "transpose": (
        lambda of: move_elements(
            (Dim(of(3, 2, "a"), 1280), Dim(of(40, 16, "b"), 1), Dim(32, 40)),
            SMALL,
            "half",
            size=3840,
            name="turn",
        ),
        6,
    ),
    "copy": (
        lambda of: move_elements(
            (Dim(of(5, 2, "a"), 64), Dim(of(3, 1, "b"), 320), Dim(64, 1)),
            SMALL,
            "half",
            size=960,
            name="copy",
        ),
        9,
    ),
    "pad": (lambda of: pad_axis(of(7, 3, "n"), (16, 32), 48, SMALL, "0", "half"), 3),
    "cast": (lambda of: portions("cast", "half", of(5_000, 2_000, "e"), SMALL), 3),
    # The last block has fewer elements than 32 bytes of what is read, not of what is written.
    "short cast": (lambda of: portions("cast", "half", of(45, 16, "e"), SMALL), 3),
    "look-up": (
        lambda of: look_up(of(3, 1, "n"), 11, of(64, 32, "c"), of(40, 16, "i"), SMALL),
        18,
    ),
    "fractal": (
        lambda of: fractalise(of(96, 32, "m"), 128, "vor", SMALL, wide=of(8, 3, "c")),
        9,
    ),
    "rows of Nz": (
        lambda of: fractalise(40, 96, "improved", SMALL, back=True, wide=of(6, 2, "c")),
        3,
    ),
    "heads": (lambda of: split_heads(of(2, 1, "n"), of(20, 8, "m"), 3, 24, SMALL, "heads"), 6),
    "heads back": (
        lambda of: split_heads(of(2, 1, "n"), of(20, 8, "m"), 3, 32, SMALL, "heads", back=True),
        6,
    ),
    "channels": (
        lambda of: to_blocks(of(2, 1, "n"), 48, 35, SMALL, "channels", of(3, 2, "c")),
        4,
    ),
    "area": (lambda of: to_blocks(1, 3, of(700, 112, "p"), SMALL, "channels"), 7),
    "plain": (
        lambda of: to_blocks(of(2, 1, "n"), 32, 48, SMALL, "channels", of(2, 1, "c"), back=True),
        4,
    ),
}


@pytest.mark.few(3)
@pytest.mark.parametrize("name", but_fast(CASES, list(CASES)[::3]))
def test_blocks_compute_what_one_does(name: str) -> None:
    make, blocks = CASES[name]
    whole = make(lambda extent, part, place: extent)
    program = make(lambda extent, part, place: divided(f"{place}_block", extent, part))
    assert (whole.blocks, program.blocks) == (1, blocks)
    check_blocks(whole, program)


WALKED: dict[str, Callable[[int], Program]] = {
    "sum": lambda cores: broadcast(
        *("add", (20_000,), {"x": (20_000,), "y": (20_000,)}), element="half", cores=cores
    ),
    "odd cast": lambda cores: elementwise("cast", "half", 5_001, cores=cores),
    # Tiles of several rows, each of which is cut.
    "cut rows": lambda cores: broadcast(
        *("cast", (64, 28, 28), {"x": (64, 28, 28)}), element="half", cores=1 if cores == 1 else 32
    ),
    "function in Nz": lambda cores: broadcast(
        "gelu",
        (40, 64),
        {"x": (40, 64)},
        element="half",
        blocks=("x", "out"),
        cores=cores,
    ),
    "column": lambda cores: broadcast(
        "add", (4, 6, 48), {"x": (4, 6, 48), "y": (6, 1)}, element="half", cores=cores
    ),
    "row of Nz": lambda cores: broadcast(
        "mul",
        (40, 64),
        {"x": (40, 64), "y": (1, 64)},
        element="half",
        blocks=("x", "out"),
        cores=cores,
    ),
    "less": lambda cores: broadcast(
        "less", (3, 9, 64), {"x": (3, 9, 64), "y": (9, 64)}, element="half", cores=cores
    ),
    "choice": lambda cores: broadcast(
        *("select", (4000,), {"c": (4000,), "x": (4000,), "y": (4000,)}),
        element="half",
        cores=cores,
    ),
    "softmax": lambda cores: normal((3, 40, 64), element="half", blocks=True, cores=cores),
    "normal": lambda cores: normal(
        (3, 20, 96), norm=Norm(), lines=["scale", "shift"], element="half", cores=cores
    ),
    "columns": lambda cores: normal((2, 9, 80), axis=1, element="half", cores=cores),
    "sums": lambda cores: folded("reduce_sum", (112, 37), [1], element="half", cores=cores),
    "sums in parts": lambda cores: folded(
        "reduce_mean", (33, 17_000), [1], element="half", cores=cores
    ),
    "greatest": lambda cores: folded(
        "reduce_max", (3, 30, 48), [1], element="half", skips=True, cores=cores
    ),
    "pool": lambda cores: pooled("max_pool", (1, 48, 12, 9), (3, 3), strides=(2, 2), cores=cores),
    "padded pool": lambda cores: pooled(
        *("average_pool", (1, 48, 12, 9), (3, 3)),
        strides=(2, 2),
        pads=(1, 1, 1, 1),
        cores=cores,
    ),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", but_fast(WALKED, list(WALKED)[::3]))
def test_parts_of_a_tile_program_compute_what_the_whole_does(name: str) -> None:
    whole, program = WALKED[name](1), WALKED[name](8)
    assert whole.blocks == 1 < program.blocks
    check_blocks(whole, program)


def check_blocks(whole: Program, program: Program) -> None:
    """Bit for bit, in every order; what is read back is the same, and proven."""
    random = np.random.default_rng(4)
    given: dict[str, NDArray[Any]] = {}
    target = next(tensor.name for tensor in whole.tensors if tensor.written)
    for tensor in whole.tensors:
        kind = np.dtype(KINDS[tensor.element])
        size, poison = tensor.bytes // kind.itemsize, np.nan if kind.kind == "f" else 77
        if kind.kind == "f":
            data = random.normal(size=size).astype(kind)
        else:
            data = random.integers(0, 2 if tensor.element == "uint8_t" else 15, size).astype(kind)
        given[tensor.name] = np.full_like(data, poison) if tensor.name == target else data
    found: list[NDArray[np.uint16]] = []
    for one, order in ((whole, 0), (program, 0), (program, 2)):
        out = given[target].copy()
        outcome = built(one).run({**given, target: out}, order=order, blocks=one.blocks)
        assert outcome.problems == ()
        found.append(out.view(np.uint16)[: whole_bytes(whole, target) // 2])
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[2], found[0])
    text = kernel_text(synchronised(program))
    (again,) = read_kernels(text, ASCEND_910)
    assert (kernel_text(again), again.blocks) == (text, program.blocks)
    verified(again, ASCEND_910)


def whole_bytes(program: Program, name: str) -> int:
    """Of a tensor, without what kernels may write behind it."""
    size = next(tensor.bytes for tensor in program.tensors if tensor.name == name)
    return size // 64 * 64 - 32 if size % 64 else size - 32


def test_axes_are_joined_where_parts_stay_runs() -> None:
    """Outside single indices, inside whole axes; anything else is refused."""
    inner = divided("b", 10, 4)
    whole = joined((divided("a", 3, 1), inner, 8))
    assert isinstance(whole, Share)
    assert (whole.extent, whole.part, whole.shortest) == (240, 32, 16)
    assert whole.places == (("a", 3), ("b", 3))
    assert joined((5, 3)) == 15 and joined(()) == 1
    with pytest.raises(TilewrightError, match="runs"):
        joined((2, inner))
    with pytest.raises(TilewrightError, match="lower-grid"):
        joined((divided("a", 6, 2), inner))


@pytest.mark.parametrize(("extent", "part", "most"), [(100, 48, 20), (50, 16, 16), (7, 7, 3)])
def test_tiles_of_a_share_cover_it_and_nothing_else(extent: int, part: int, most: int) -> None:
    """Every index is in a tile of the block that has it."""
    share = divided("d", extent, part)
    tiles = cut(share, most, 1)
    for block in range(-(-extent // part)):
        scope = {"d_": block}

        def number(value: object, scope: dict[str, int] = scope) -> int:
            return value if isinstance(value, int) else eval(value.python, scope)  # type: ignore[attr-defined]

        covered: set[int] = set()
        for place in range(number(tiles.count)):
            first = number(tiles.start(place))
            covered |= set(range(first, first + tiles.size))
        assert covered == set(range(block * part, min((block + 1) * part, extent)))


@pytest.mark.parametrize("extents", [(4, 112), (1, 57), (64, 3), (31, 9), (5, 7)])
def test_axes_are_spread_over_cores(extents: tuple[int, int]) -> None:
    """Most cores have a part, the parts are runs of whole axes, and none is much shorter."""
    outer, inner = map(share_of, spread(dict(zip("ab", extents, strict=True)), 32))
    counts = [-(-share.extent // share.part) for share in (outer, inner)]
    assert 16 <= counts[0] * counts[1] <= 32
    assert counts[1] == 1 or outer.part == 1
    assert all(2 * share.shortest >= share.part for share in (outer, inner))
