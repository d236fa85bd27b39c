"""Elementwise kernels as emitted C, at sizes around masks, repeats and portions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.slow import but_fast
from tests.targets.ascend.ascend_arrays import built, run

from tilewright.errors import TilewrightError
from tilewright.targets.ascend.kernels.elementwise import RECIPES, SLACK, elementwise
from tilewright.targets.ascend.machine import ASCEND_310, ASCEND_910

SIZES = (1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 255 * 64 + 1, 255 * 128, 255 * 128 + 1)
LARGE = 1_000_003
TYPES = {"half": np.float16, "float": np.float32, "int32_t": np.int32}
FORMS = [(name, kind) for name, recipe in RECIPES.items() for kind in recipe.types]
FAST = [(form, 17) for form in FORMS] + [
    (("add", "half"), 255 * 128 + 1),
    (("cast", "half"), 255 * 128 + 1),
    (("clamp", "int32_t"), 129),
    (("max", "float"), 1),
]
IN_PLACE = [form for form in FORMS if form[0] != "cast"][::4]

Array = NDArray[Any]


def drawn(seed: int, kind: str, size: int) -> Array:
    random = np.random.default_rng(seed)
    if kind == "int32_t":
        return random.integers(-(1 << 31), 1 << 31, size).astype(np.int32)
    return random.normal(0, 3, size).astype(TYPES[kind])


def expected(name: str, x: Array, y: Array, result: str) -> Array:
    with np.errstate(all="ignore"):
        match name:
            case "add":
                return x + y
            case "sub":
                return x - y
            case "mul":
                return x * y
            case "div":
                return x / y
            case "max":
                return np.maximum(x, y)
            case "min":
                return np.minimum(x, y)
            case "relu":
                return np.maximum(x, x.dtype.type(0))
            case "exp":
                return np.exp(x.astype(np.float64)).astype(x.dtype)
            case "clamp":
                return np.clip(x, x.dtype.type(-1), x.dtype.type(2))
            case "cast":
                return x.astype(TYPES[result])
            case _:
                wide = x.astype(np.float64)
                u = np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3)
                return (0.5 * wide * (1 + np.tanh(u))).astype(x.dtype)


def check(name: str, kind: str, size: int, *, in_place: bool = False, ub: int | None = None) -> int:
    """Bytes that are stored twice."""
    recipe = RECIPES[name]
    scalars = ("-1", "2")[: recipe.scalars]
    program = elementwise(
        *(name, kind, size, ASCEND_910),
        in_place=in_place,
        scalars=scalars,
        name=f"{name}_kernel",
        ub=ub,
    )
    kernel = built(program)
    result = recipe.types[kind]
    width = np.dtype(TYPES[result]).itemsize
    for order in (0, 9, 12, 55):
        x, y = drawn(size, kind, size), drawn(size + 1, kind, size)
        wanted = expected(name, x, y, result)
        room = np.full(SLACK // x.itemsize, 1, x.dtype)
        arguments = {"x": np.concatenate([x, room]), "y": np.concatenate([y, room])}
        if recipe.operands == 1:
            del arguments["y"]
        if not in_place:
            arguments["out"] = np.zeros(size + SLACK // width, TYPES[result])
        outcome = run(kernel, arguments, order)
        found = arguments["x" if in_place else "out"][:size]
        if name == "gelu":
            near = 1e-3 if kind == "half" else 1e-6
            np.testing.assert_allclose(found, wanted, rtol=near, atol=near)
        elif name == "exp":
            np.testing.assert_array_max_ulp(found, wanted, 1)
        else:
            np.testing.assert_array_equal(found, wanted)
        if not in_place:
            np.testing.assert_array_equal(arguments["x"][:size], x)
    return outcome.counts["gm_writes"] - size * width


@pytest.mark.parametrize("case", but_fast([(form, size) for form in FORMS for size in SIZES], FAST))
def test_operations(case: tuple[tuple[str, str], int]) -> None:
    (name, kind), size = case
    # At most 15 elements more than are left.
    assert check(name, kind, size) < 64


@pytest.mark.parametrize(
    "case",
    but_fast(
        [(form, size) for form in IN_PLACE for size in SIZES],
        [(IN_PLACE[0], 129), (IN_PLACE[1], 255 * 128 + 1)],
    ),
)
def test_in_place(case: tuple[tuple[str, str], int]) -> None:
    (name, kind), size = case
    assert check(name, kind, size, in_place=True) < 32


@pytest.mark.parametrize("form", but_fast(FORMS, [("cast", "float")]))
def test_a_million_elements(form: tuple[str, str]) -> None:
    check(*form, LARGE)


def test_the_tail_of_1000_elements() -> None:
    """Portions of 256: 232 are left, 240 computed from 760 on, 8 of them a second time."""
    assert check("add", "half", 1000, ub=6 * 2 * 256) == 16


def test_what_the_core_has_no_instruction_for_is_refused() -> None:
    with pytest.raises(TilewrightError, match="lower-operation"):
        elementwise("div", "int32_t", 100, ASCEND_310)
    with pytest.raises(TilewrightError, match="lower-operation"):
        elementwise("sinh", "half", 100, ASCEND_310)
