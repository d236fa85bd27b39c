"""Relations and choices: emitted, read again, proven, and run on the host core against NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest
from benchmarks.papers.ascend.handovers import synchronised
from benchmarks.papers.ascend.reader.kernels import read_kernels, verified
from numpy.typing import NDArray
from tests.slow import but_fast
from tests.targets.ascend.element_kernels import broadcast

from tilewright.targets.ascend.emit import kernel_text
from tilewright.targets.ascend.host import build
from tilewright.targets.ascend.machine import ASCEND_910
from tilewright.targets.ascend.program import Barrier, Loop, Program, Statement
from tilewright.targets.ascend.proof import prove

Shape = tuple[int, ...]
Case = tuple[str, Shape, dict[str, Shape], dict[str, float], int]

CASES: list[Case] = [
    # operation, result, operands, constants, bytes of ub
    ("less", (37,), {"x": (37,), "y": (37,)}, {}, 0),
    ("select", (3, 17), {"c": (3, 17), "x": (3, 17), "y": (17,)}, {}, 0),
    ("select", (2, 3, 5, 9), {"c": (2, 1, 1, 9), "x": (2, 3, 5, 9)}, {"y": -5.0}, 0),
    ("select", (2, 16, 16), {"c": (1, 16, 16), "x": (2, 16, 16)}, {"y": -np.inf}, 0),
    ("less_equal", (5, 300), {"x": (5, 300)}, {"y": 1.0}, 0),
    ("equal", (1,), {"x": (1,), "y": (1,)}, {}, 0),
    ("select", (4, 2000), {"c": (4, 2000), "x": (4, 2000), "y": (4, 2000)}, {}, 50_000),
    ("less", (3, 40_000), {"x": (3, 40_000), "y": (1, 40_000)}, {}, 0),
]

RELATIONS = {"less": np.less, "less_equal": np.less_equal, "equal": np.equal}


def operand(shape: Shape, kind: type[np.generic], seed: int) -> NDArray[Any]:
    """Numbers of which many are equal, infinities, NaN and negative zeros among them; room
    behind."""
    random, count = np.random.default_rng(seed), prod(shape)
    values = np.zeros(count + 32, kind)
    if kind is np.uint8:
        values[:count] = random.integers(0, 2, count)
        return values
    some = random.integers(-2, 3, count).astype(np.float16)
    for chance, number in ((0.1, np.nan), (0.1, np.inf), (0.05, -0.0)):
        some[random.random(count) < chance] = number
    values[:count] = some
    return values


def expected(
    operation: str, result: Shape, operands: Mapping[str, Any]
) -> NDArray[np.unsignedinteger[Any]]:
    with np.errstate(all="ignore"):
        if operation == "select":
            chosen = np.where(operands["c"] != 0, operands["x"], operands["y"])
            bits = chosen.astype(np.float16).view(np.uint16)
        else:
            bits = RELATIONS[operation](operands["x"], operands["y"]).astype(np.uint8)
    return np.broadcast_to(bits, result)


@pytest.mark.parametrize("case", but_fast(CASES, CASES[:5]), ids=str)
def test_choices(case: Case) -> None:
    operation, result, shapes, constants, ub = case
    core = replace(ASCEND_910, ub=ub) if ub else ASCEND_910
    program = broadcast(operation, result, shapes, core, numbers=list(constants), element="half")
    program = synchronised(program, events=core.events)
    text = kernel_text(program)
    (again,) = read_kernels(text, core)
    assert kernel_text(again) == text
    verified(again, core)
    kernel = build(text, "kernel", core)
    given = {
        name: operand(shape, np.uint8 if name == "c" else np.float16, number)
        for number, (name, shape) in enumerate(shapes.items())
    }
    operands: dict[str, Any] = {
        name: given[name][: prod(shape)].reshape(shape) for name, shape in shapes.items()
    }
    for name, constant in constants.items():
        operands[name] = np.float16(constant)
        given[name] = np.full(16, constant, np.float16)
    wanted = expected(operation, result, operands)
    for order in (0, 1, 2, 77):
        out = np.full(prod(result) + 32, 0xEE, wanted.dtype)
        view = out.view(np.float16) if operation == "select" else out
        outcome = kernel.run({**given, "out": view}, order=order, blocks=program.blocks)
        assert not outcome.problems
        np.testing.assert_array_equal(out[:-32].reshape(result), wanted)


def test_every_barrier_is_needed() -> None:
    """The mask of vsel is a register that the vector unit's own commands write: without any one of
    the barriers the proof and the host core report it."""
    shapes = {"c": (300,), "x": (300,), "y": (300,)}

    def made() -> Program:
        return synchronised(broadcast("select", (300,), shapes, element="half"))

    def barriers(body: list[Statement]) -> list[tuple[list[Statement], int]]:
        places: list[tuple[list[Statement], int]] = []
        for number, statement in enumerate(body):
            if isinstance(statement, Barrier):
                places.append((body, number))
            elif isinstance(statement, Loop):
                places += barriers(statement.body)
        return places

    count = len(barriers(made().body))
    assert count >= 3
    for number in range(count):
        program = made()
        body, at = barriers(program.body)[number]
        del body[at]
        assert prove(program)
        kernel = build(kernel_text(program), "kernel")
        given = {name: operand((300,), np.float16, 1) for name in ("x", "y", "out")}
        given = {"c": operand((300,), np.uint8, 0), **given}
        assert kernel.run(given).problems
