"""Axes that blocks of a launch share: each kernel in blocks computes what one block does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from benchmarks.papers.ascend.handovers import synchronised
from benchmarks.papers.ascend.reader.kernels import read_kernels, verified
from numpy.typing import NDArray
from tests.slow import but_fast
from tests.targets.ascend.ascend_arrays import built
from tests.targets.ascend.element_kernels import broadcast, elementwise, folded, normal, pooled
from tests.targets.ascend.moved_kernels import (
    looked_up,
    move_program,
    relaid,
    surrounded,
    transposed,
)

from tilewright.targets.ascend.emit import kernel_text
from tilewright.targets.ascend.formats import heads, image, matrices
from tilewright.targets.ascend.kernels.normal import Norm
from tilewright.targets.ascend.machine import ASCEND_910
from tilewright.targets.ascend.program import Program

KINDS = {"half": "f2", "float": "f4", "uint8_t": "u1", "int64_t": "i8"}

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
    "transpose": lambda cores: move_program(transposed((3, 32, 40), (0, 2, 1)), cores=cores),
    "copy": lambda cores: move_program(transposed((3, 5, 64), (1, 0, 2)), cores=cores),
    "pad": lambda cores: move_program(surrounded((7, 48), (0, 16, 0, 32), 0.0), cores=cores),
    "look-up": lambda cores: move_program(looked_up(3, 11, 64, 40), cores=cores),
    "to Nz": lambda cores: move_program(relaid((96, 128), "", str(matrices(2))), cores=cores),
    "from Nz": lambda cores: move_program(relaid((40, 96), str(matrices(2)), ""), cores=cores),
    "heads": lambda cores: move_program(relaid((2, 20, 3, 32), "", heads()), cores=cores),
    "channels": lambda cores: move_program(relaid((2, 48, 5, 7), "", image()), cores=cores),
    "plain": lambda cores: move_program(relaid((2, 32, 6, 8), image(), ""), cores=cores),
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
