"""Elementwise kernels as emitted C, at sizes around masks, repeats and portions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.slow import but_fast
from tests.targets.ascend.ascend_arrays import built, run
from tests.targets.ascend.element_kernels import broadcast, elementwise
from tests.targets.ascend.moved_kernels import requantised

from tilewright.targets.ascend.emit import kernel_text
from tilewright.targets.ascend.kernels.recipes import QUOTIENTS, RECIPES, recipe_of
from tilewright.targets.ascend.lowering.launches import SLACK
from tilewright.targets.ascend.machine import ASCEND_310, ASCEND_910, DaVinci
from tilewright.targets.ascend.vector_primitives import ROOM

SIZES = (1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 255 * 64 + 1, 255 * 128, 255 * 128 + 1)
LARGE = 1_000_003
TYPES = {"half": np.float16, "float": np.float32, "int32_t": np.int32, "int8_t": np.int8}
FORMS = [
    (name, kind)
    for name, recipe in RECIPES.items()
    for kind in recipe.types
    if not any(step.chooses for step in recipe.steps)
]
FAST = [(form, 129) for form in FORMS] + [
    (("add", "half"), 255 * 128 + 1),
    (("cast", "half"), 255 * 128 + 1),
    (("clamp", "int32_t"), 129),
    (("max", "float"), 1),
]

Array = NDArray[Any]


def drawn(seed: int, kind: str, size: int) -> Array:
    random = np.random.default_rng(seed)
    if kind == "int32_t":
        return random.integers(-(1 << 31), 1 << 31, size).astype(np.int32)
    if kind == "int8_t":
        return random.integers(-128, 128, size).astype(np.int8)
    return random.normal(0, 3, size).astype(TYPES[kind])


def erf(x: Array) -> Array:
    return np.array([math.erf(value) for value in x.ravel()]).reshape(x.shape)


Function = Callable[[Array, Array], Array]

EXACT: dict[str, Function] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "max": lambda x, y: np.maximum(x, y),
    "min": lambda x, y: np.minimum(x, y),
    "relu": lambda x, _: np.maximum(x, x.dtype.type(0)),
    "abs": lambda x, _: np.abs(x),
    "neg": lambda x, _: -x,
    "copy": lambda x, _: x,
    "sqrt": lambda x, _: np.sqrt(x),
    "root": lambda x, _: np.sqrt(x),
    "square": lambda x, _: x * x,
    "clamp": lambda x, _: np.clip(x, x.dtype.type(-1), x.dtype.type(2)),
    "quantise": lambda x, _: np.clip(np.rint(np.float32(x) / np.float32(0.06)) + 3, -128, 127),
    "quantise_power": lambda x, _: np.clip(np.rint(np.float32(x) * 16) - 3, -128, 127),
    "dequantise": lambda x, _: np.asarray((np.float32(x) - 7) * np.float32(0.06), np.float16),
}
"""What is rounded once, in the operands' type."""

FUNCTIONS: dict[str, tuple[Function, float]] = {
    "exp": (lambda x, _: np.exp(x), 0.6),
    "log": (lambda x, _: np.log(x), 0.6),
    "reciprocal": (lambda x, _: 1 / x, 0.6),
    "cube": (lambda x, _: x**3, 2),
    # Sums and products of two terms, each rounded.
    "prelu": (lambda x, y: np.maximum(x, 0) + np.minimum(x, 0) * y, 2),
    "leaky_relu": (lambda x, _: np.maximum(x, 0) - np.minimum(x, 0), 1),
    "hard_sigmoid": (lambda x, _: np.clip(2 - x, 0, 1), 4),
    "hard_swish": (lambda x, _: x * np.clip(x / 6 + 0.5, 0, 1), 4),
    # The exponential's argument is rounded, and so are a sum and a quotient.
    "sigmoid": (lambda x, _: 1 / (1 + np.exp(-x)), 8),
    "silu": (lambda x, _: x / (1 + np.exp(-x)), 8),
    "elu": (lambda x, _: np.where(x > 0, x, 1 - np.exp(x)), 4),
    "softplus": (lambda x, _: np.log1p(np.exp(x)), 4),
    # recipes.py: 5e-7.
    "tanh": (lambda x, _: np.tanh(x), 5),
    "erf": (lambda x, _: erf(x), 5),
    "gelu": (lambda x, _: x * (1 + erf(x * np.sqrt(0.5))) / 2, 24),
    "gelu_tanh": (
        lambda x, _: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
        24,
    ),
}
"""What float64 gives, and how many times a float's 2**-23 the result may be off: of itself or, next
to 0, of numbers near 1."""

POSITIVE = ("log", "sqrt", "root", "reciprocal")
SCALARS = {
    "clamp": ("-1", "2"),
    "hard_sigmoid": ("-1.0f", "2.0f"),
}
QUANTISED = {"quantise": (0.06, 3), "quantise_power": (0.0625, -3), "dequantise": (0.06, 7)}
"""Scales and zero points."""


def compare(name: str, found: Array, x: Array, y: Array, result: str) -> None:
    """The result is as near to the true one as the recipe says."""
    with np.errstate(all="ignore"):
        if name == "cast":
            np.testing.assert_array_equal(found, x.astype(TYPES[result]))
        elif name in EXACT:
            np.testing.assert_array_equal(found, EXACT[name](x, y))
        else:
            function, units = FUNCTIONS[name]
            wanted = function(x.astype(np.float64), y.astype(np.float64))
            most = units * 2.0**-23 * np.maximum(np.abs(wanted), 1 if units > 1 else 0)
            if result == "half":
                # Rounded once more; numbers below 2**-14 are coarser.
                most = most + np.abs(wanted) * 2.0**-11 + 2.0**-25
            if name in ("exp", "log", "reciprocal"):
                most = most + np.abs(wanted) * 2.0**-24 + 2.0**-149
            # Half precision ends at 65,504: what rounds to more is infinite.
            beyond = (
                (np.abs(wanted) >= 65_520) if result == "half" else np.zeros(wanted.shape, bool)
            )
            np.testing.assert_array_equal(found[beyond], np.copysign(np.inf, wanted[beyond]))
            assert (np.abs(found - wanted) <= most)[~beyond].all()


def check(name: str, kind: str, size: int, core: DaVinci = ASCEND_910) -> int:
    """Bytes that are stored twice."""
    recipe = RECIPES[name]
    scalars = SCALARS.get(name, ("-1.0f",) * len(recipe.scalars))
    if name in ("quantise", "quantise_power", "dequantise"):
        scale, zero = QUANTISED[name]
        stage = f"{name.removesuffix('_power')}_linear"
        program = requantised(stage, (size,), scale, zero)
    else:
        program = elementwise(name, kind, size, core, scalars=scalars, name=f"{name}_kernel")
    kernel = built(program)
    result = recipe.types[kind]
    width = np.dtype(TYPES[result]).itemsize
    for order in (0, 9, 12, 55):
        x, y = drawn(size, kind, size), drawn(size + 1, kind, size)
        if name in POSITIVE:
            x = np.abs(x) + x.dtype.type(0.01)
        before = x.copy()
        room = np.full(SLACK // x.itemsize, 1, x.dtype)
        arguments = {"x": np.concatenate([x, room]), "y": np.concatenate([y, room])}
        if recipe.operands == 1:
            del arguments["y"]
        if name == "dequantise":
            arguments["y"] = np.full(8, 0.06, np.float32)
        arguments["out"] = np.zeros(size + SLACK // width, TYPES[result])
        outcome = run(kernel, arguments, order)
        compare(name, arguments["out"][:size], before, y, result)
        np.testing.assert_array_equal(arguments["x"][:size], before)
    return outcome.counts["gm_writes"] - size * width


ALL = [
    (form, size)
    for form in FORMS
    # Masks and portions are the same for all; functions are seen at some.
    for size in (SIZES if form[0] in ("add", "cast", "clamp") else SIZES[2::7])
]


@pytest.mark.few(8)
@pytest.mark.parametrize("case", but_fast(ALL, FAST))
def test_operations(case: tuple[tuple[str, str], int]) -> None:
    (name, kind), size = case
    # A single portion writes less than a block more; of several at most a repeat each.
    assert check(name, kind, size) < (32 if size <= 129 else 4 * 256)


@pytest.mark.parametrize("form", but_fast(FORMS[::7], [("cast", "float")]))
def test_a_million_elements(form: tuple[str, str]) -> None:
    check(*form, LARGE)


DIVIDED = [name for name, recipe in RECIPES.items() if "vdiv" in {s.name for s in recipe.steps}]


@pytest.mark.few(3)
@pytest.mark.parametrize("name", sorted({*DIVIDED} - {*QUOTIENTS}))
def test_functions_of_a_core_without_division(name: str) -> None:
    """Reciprocals instead, as precise as asked of quotients."""
    for kind in ("float", "half"):
        text = kernel_text(elementwise(name, kind, 129, ASCEND_310))
        assert "vdiv" not in text and "vrec" in text
        check(name, kind, 129, core=ASCEND_310)
        check(name, kind, 200, core=ASCEND_310)


def test_a_large_negative_number_has_a_gelu_of_0() -> None:
    """Its exponential would be infinite, and the reciprocal of that no number."""
    for core in (ASCEND_910, ASCEND_310):
        x = np.array([-1e4, -50, -12, 12, 50, 1e4, 0, 1], np.float32)
        given = {"x": np.concatenate([x, x]), "out": np.zeros(16, np.float32)}
        run(built(elementwise("gelu_tanh", "float", 8, core)), given)
        wanted = [0, 0, 0, 12, 50, 1e4, 0, 0.841192]
        np.testing.assert_allclose(given["out"][:8], wanted, rtol=1e-6, atol=1e-29)


@pytest.mark.parametrize("core", [ASCEND_910, ASCEND_310], ids=lambda core: core.name)
def test_functions_end_where_they_become_constant(core: DaVinci) -> None:
    """What is added to a 1 that is not quite 1 would be multiplied by the operand."""
    x = np.array([-6e4, -300, -40, -7, 7, 40, 300, 6e4], np.float32)
    units = 0.0 if core.divides else 2.0**-23  # A quotient's last place.
    for name, function, first in (
        ("gelu", lambda x: np.maximum(x, 0), 6),
        ("erf", np.sign, 4),
        ("tanh", np.sign, 10),
    ):
        given = {"x": np.concatenate([x, x]), "out": np.zeros(16, np.float32)}
        run(built(elementwise(name, "float", 8, core, name=f"{name}_kernel")), given)
        far, wanted = np.abs(x) >= first, function(x)
        most = units * np.maximum(np.abs(wanted), 6)
        assert (np.abs(given["out"][:8] - wanted) <= most)[far].all(), name


def test_the_tail_of_1000_elements() -> None:
    """Tiles of 128 or more, of which the last one is as long as what is left."""
    assert check("add", "half", 1000, replace(ASCEND_910, ub=ROOM + 6 * 2 * 256)) == 16


@pytest.mark.parametrize("kind", ["half", "float"])
def test_a_single_number_is_a_block_of_it(kind: str) -> None:
    x = drawn(1, kind, 1000)
    block = np.full(32 // x.itemsize, 3, x.dtype)
    program = broadcast("sub", (1000,), {"x": (1000,)}, element=kind, numbers=["y"])
    out = np.zeros(1016, x.dtype)
    run(built(program), {"x": np.concatenate([x, x[:16]]), "y": block, "out": out})
    np.testing.assert_array_equal(out[:1000], x - x.dtype.type(3))


def test_what_the_core_has_no_instruction_for_is_refused() -> None:
    assert recipe_of("div", ASCEND_310) is None
    assert recipe_of("sinh", ASCEND_310) is None
