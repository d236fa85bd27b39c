"""Kernels whose length comes with the launch: one text, right for every length.

What lies behind the length, in operands and results, is no number here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from benchmarks.papers.ascend.reader.kernels import read_kernels, verified
from numpy.typing import NDArray
from tests.slow import but_fast
from tests.targets.ascend.ascend_arrays import Halves
from tests.targets.ascend.attention_kernels import Heads
from tests.targets.ascend.cube_kernels import Product, levels, pack, planned, unpack
from tests.targets.ascend.element_kernels import broadcast, normal
from tests.targets.ascend.kernels.rows_of_floats import packed, unpacked, with_room
from tests.targets.ascend.moved_kernels import move_program, relaid

from tilewright.planning.schedule import Schedule
from tilewright.targets.ascend.emit import kernel_text
from tilewright.targets.ascend.flags import proven_lengths, synchronised
from tilewright.targets.ascend.formats import matrices
from tilewright.targets.ascend.host import build
from tilewright.targets.ascend.kernels.normal import Norm
from tilewright.targets.ascend.lowering.cube import cube_kernel
from tilewright.targets.ascend.machine import ASCEND_910, CUBE
from tilewright.targets.ascend.network import network_machine
from tilewright.targets.ascend.program import (
    Barrier,
    Flag,
    Loop,
    Program,
    Statement,
    scalar,
)
from tilewright.targets.ascend.proof import prove
from tilewright.targets.ascend.target import AscendTarget
from tilewright.tile.lower import tile

LENGTHS = (1, 2, 15, 16, 17, 47, 63, 64, 65, 100, 127, 128)
ORDERS = (0, 5, 12, 77)
"""As issued, two adversarial, one at random."""


def behind(array: Halves, axes: tuple[int, ...], length: int) -> Halves:
    """The array with no numbers behind the length of some axes."""
    whole = array.copy()
    for axis in axes:
        np.moveaxis(whole, axis, 0)[length:] = np.nan
    return whole


def cut(array: Halves, axes: tuple[int, ...], length: int) -> Halves:
    """The first indices of some axes."""
    for axis in axes:
        array = np.moveaxis(np.moveaxis(array, axis, 0)[:length], 0, axis)
    return array


def proven(program: Program, step: int = 13) -> Program:
    """The program with flags, proven at lengths so far apart, and read back from its text."""
    whole = synchronised(program)
    for length in (*range(1, whole.longest, step), whole.longest):
        assert prove(whole, length=length) == []
    text = kernel_text(whole)
    (again,) = read_kernels(text, ASCEND_910)
    verified(again, ASCEND_910)
    assert kernel_text(again) == text
    return whole


PRODUCTS: dict[str, tuple[Product, frozenset[str], Schedule | None]] = {
    "rows": (
        Product(128, 96, 80, bias=True, residual=True, relu=True),
        frozenset({"m"}),
        levels(
            {"m": 64, "co": 48, "ci": 96},
            {"m": 32, "co": 48, "ci": 32},
            ("co", "m"),
            ("m", "ci"),
            2,
        ),
    ),
    "columns and rows": (
        Product(128, 64, 128, batch=2, right_transposed=True),
        frozenset({"m", "co"}),
        None,
    ),
    "what is summed": (Product(128, 128, 64, batch=2), frozenset({"m", "ci"}), None),
    "rows, planned": (Product(128, 256, 512, bias=True), frozenset({"m"}), None),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", but_fast(PRODUCTS, ["what is summed"]))
def test_products(name: str) -> None:
    of, free, schedule = PRODUCTS[name]
    kernel = of.kernel()
    lowered = tile(
        kernel,
        schedule or planned(kernel),
        network_machine(ASCEND_910),
        honours=AscendTarget.honours,
    )
    program = proven(cube_kernel(lowered, ASCEND_910, "kernel", free=free))
    built = build(kernel_text(program), "kernel")
    operands = {operand.name: operand for operand in (*kernel.inputs, kernel.output)}
    cycles: list[int] = []
    counted = 0
    for number, length in enumerate(LENGTHS):
        given, _ = of.arguments(number)
        plain: dict[str, np.ndarray] = {}
        for key, operand in operands.items():
            if operand.role == "bias":
                plain[key] = given[key][: of.k].astype(np.float64)
                continue
            axes = tuple(n for n, axis in enumerate(operand.access) if str(axis) in free)
            value = behind(unpack(given[key], operand.shape), axes, length)
            given[key] = pack(value)
            plain[key] = cut(value, axes, length).astype(np.float64)
        a, b = plain["a"], plain["b"]
        wanted = a @ (b.swapaxes(-1, -2) if of.right_transposed else b)
        wanted = wanted + plain.get("bias", 0) + plain.get("d", 0)
        wanted = np.maximum(wanted, 0) if of.relu else wanted
        for order in ORDERS:
            arguments = {tensor.name: given[tensor.name] for tensor in program.tensors}
            outcome = built.run(arguments, order=order, length=length)
            assert not outcome.problems, (length, outcome.problems[0])
            counted = outcome.counts["cube_cycles"]
        axes = tuple(n for n, axis in enumerate(kernel.output.access) if str(axis) in free)
        result = cut(unpack(given["c"], kernel.output.shape), axes, length)
        np.testing.assert_array_equal(result, wanted.astype(np.float16))
        cycles.append(counted)
    blocks = -(-LENGTHS[0] // CUBE), -(-LENGTHS[-1] // CUBE)
    # Work goes with the length, in blocks.
    assert cycles[0] * blocks[1] <= cycles[-1] * blocks[0] * (1 if len(free) == 1 else 8)


BOTH = frozenset("mt")

HEADS: dict[str, tuple[Heads, tuple[int, ...]]] = {
    "all lengths": (Heads(1, 2, 64, 64, 24, 40, 0.2, (), BOTH), tuple(range(1, 65))),
    "a mask of keys": (
        Heads(1, 2, 272, 272, 64, 64, 0.125, (1, 1, 1, 272), BOTH),
        (1, 16, 129, 272),
    ),
    "a mask of scores": (
        Heads(1, 1, 144, 144, 32, 32, 0.2, (1, 1, 144, 144), BOTH),
        (1, 15, 128, 129, 143),
    ),
    "keys alone": (Heads(1, 1, 20, 300, 32, 32, 0.2, (), frozenset("t")), (1, 17, 256, 299)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", but_fast(HEADS, ["all lengths"]))
def test_attention(name: str) -> None:
    of, lengths = HEADS[name]
    whole = synchronised(of.program())
    built = build(kernel_text(whole), "kernel")
    random = np.random.default_rng(5)
    for length in lengths:
        rows, keys = (
            length if dim in of.free else most for dim, most in (("m", of.rows), ("t", of.keys))
        )
        shapes = ((of.rows, of.depth), (of.keys, of.depth), (of.keys, of.width))
        q, k, v = (random.normal(0, 1, (of.heads, *s)).astype(np.float16) for s in shapes)
        q[:, rows:], k[:, keys:], v[:, keys:] = np.nan, np.nan, np.nan
        masks: dict[str, Halves] = {}
        added = np.zeros((of.rows, of.keys))
        if of.mask:
            lines = of.mask[2]
            mask = np.where(random.random((lines, of.keys)) < 0.2, -1e4, 0).astype(np.float16)
            mask[:, keys:] = np.nan
            masks["bias"] = np.concatenate([mask.ravel(), np.zeros(16, np.float16)])
            added = added + mask
        given = {"a": packed(q), "b": packed(k), **masks, "b2": packed(v)}
        a, b, c = (x.astype(np.float64) for x in (q[:, :rows], k[:, :keys], v[:, :keys]))
        scores = a @ b.swapaxes(1, 2) * of.scale + added[:rows, :keys]
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        wanted = weights @ c
        most = 2.0**-11 * (weights @ np.abs(c) + np.abs(wanted)) * 1.1 + 1e-4
        shape = (of.heads, of.rows, of.width)
        for order in ORDERS:
            out = packed(np.full(shape, np.nan, np.float16))
            outcome = built.run({**given, "c": out}, order=order, length=length)
            assert not outcome.problems, (length, outcome.problems[0])
            assert (np.abs(unpacked(out, shape)[:, :rows] - wanted) <= most).all(), length


@pytest.mark.slow
@pytest.mark.parametrize("name", but_fast(HEADS, ["keys alone"]))
def test_flags_of_attention(name: str) -> None:
    proven(HEADS[name][0].program(), 5)


Doubles = NDArray[np.float64]


def same(x: Doubles) -> Doubles:
    return x


def points(x: Doubles) -> Doubles:
    return np.maximum(x, 0)


def norm(x: Doubles) -> Doubles:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


def soft(x: Doubles) -> Doubles:
    weights = np.exp(x - x.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


ROWS: dict[str, tuple[Program, Callable[[Doubles], Doubles], tuple[int, int, int], bool, bool]] = {
    # Program, meaning, [matrices, rows, columns], whether x and out are in Nz.
    "relu row by row": (
        broadcast("relu", (300, 40), {"x": (300, 40)}, element="half", free=0),
        points, (1, 300, 40), False, False,
    ),
    "relu in Nz": (
        broadcast(
            *("relu", (2, 300, 48), {"x": (2, 300, 48)}),
            element="half",
            blocks=("x", "out"),
            free=1,
        ),
        points, (2, 300, 48), True, True,
    ),
    "normalisation row by row": (
        normal((300, 50), norm=Norm(), element="half", free=0),
        norm, (1, 300, 50), False, False,
    ),
    "normalisation in Nz": (
        normal((2, 300, 50), norm=Norm(), element="half", blocks=True, free=1),
        norm, (2, 300, 50), True, True,
    ),
    "softmax in Nz": (
        normal((2, 300, 50), element="half", blocks=True, free=1),
        soft, (2, 300, 50), True, True,
    ),
    "to Nz": (
        move_program(relaid((1, 300, 48), "", str(matrices(3))), free=frozenset({"d1"})),
        same, (1, 300, 48), False, True,
    ),
    "from Nz": (
        move_program(relaid((1, 300, 48), str(matrices(3)), ""), free=frozenset({"d1"})),
        same, (1, 300, 48), True, False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", but_fast(ROWS, ["relu in Nz", "from Nz"]))
def test_rows(name: str) -> None:
    program, meaning, shape, blocked, result_blocked = ROWS[name]
    whole = proven(program, 37)
    built = build(kernel_text(whole), whole.name)
    given, out = (tensor.name for tensor in whole.tensors)
    copied: list[int] = []
    for length in (1, 16, 17, 127, 129, 256, 300):
        x = np.random.default_rng(length).normal(0, 2, shape).astype(np.float16)
        wanted = meaning(x[:, :length].astype(np.float64))
        x[:, length:] = np.nan
        for order in ORDERS:
            data = packed(x) if blocked else with_room(x)
            result = np.full(shape, np.nan, np.float16)
            place = packed(result) if result_blocked else with_room(result)
            outcome = built.run({given: data, out: place}, order=order, length=length)
            assert not outcome.problems, (length, outcome.problems[0])
            plain = unpacked(place, shape) if result_blocked else place[: x.size].reshape(shape)
            np.testing.assert_allclose(plain[:, :length], wanted, rtol=2e-3, atol=1e-3)
            if order == ORDERS[-1]:
                copied.append(outcome.counts["gm_reads"])
    assert copied[0] * 2 <= copied[-1]


def parts(body: list[Statement]) -> Iterator[tuple[list[Statement], int]]:
    """Where flags and barriers stand, those under a condition included."""
    for number, statement in enumerate(body):
        if isinstance(statement, Flag | Barrier):
            yield body, number
        elif isinstance(statement, Loop):
            yield from parts(statement.body)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["attention", "rows in Nz", "a product"])
def test_each_flag_and_barrier_is_needed_at_some_length(name: str) -> None:
    if name == "attention":
        program = HEADS["all lengths"][0].program()
    elif name == "rows in Nz":
        program = ROWS["normalisation in Nz"][0]
    else:
        of, free, schedule = PRODUCTS["rows"]
        assert schedule is not None
        lowered = tile(
            of.kernel(), schedule, network_machine(ASCEND_910), honours=AscendTarget.honours
        )
        program = cube_kernel(lowered, ASCEND_910, "kernel", free=free)
    whole = synchronised(program)
    lengths = (whole.longest, *proven_lengths(whole.longest))
    for body, number in list(parts(whole.body)):
        statement = body[number]
        body[number] = scalar("left_out", 0)
        assert any(prove(whole, length=length, most=1) for length in lengths), statement
        body[number] = statement
