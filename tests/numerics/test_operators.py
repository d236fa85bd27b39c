"""What operators say of themselves, against what they compute."""

import numpy as np
import pytest

from tilewright.graph.operations import BY_NAME
from tilewright.graph.operations.pointwise import PointwiseOperation
from tilewright.machine import Primitive
from tilewright.numerics import pointwise, tables
from tilewright.numerics.operators import OPERATORS, PARAMETERS, has, named, operators

STAGES = {"attention_weights", "depthwise_conv", "identity", "copy"}
"""Stages of kernels that are no operations of the graph."""

X = np.random.default_rng(3).normal(0, 4, 1000).astype(np.float32)


def evaluated(operation: str, *arrays: np.ndarray) -> np.ndarray:
    attributes = {k: v for k, v in PARAMETERS.get(operation, {}).items() if np.isfinite(v)}
    return pointwise.evaluate(operation, arrays, attributes=attributes)


def test_every_operation_says_what_it_is() -> None:
    assert set(OPERATORS) == set(BY_NAME) | STAGES
    assert {name for name in OPERATORS if has(name, "table")} == set(tables.FUNCTIONS)
    for name, kind in BY_NAME.items():
        assert issubclass(kind, PointwiseOperation) <= has(name, "map"), name
        assert not has(name, "function") or kind.ARITY == (1, 1), name
        assert not has(name, "arithmetic") or kind.ARITY == (2, 2), name
        for key in PARAMETERS.get(name, ()):
            assert key in kind.DEFAULTS, name


@pytest.mark.parametrize("name", sorted(operators("function", "arithmetic")))
def test_finite_functions_are_finite(name: str) -> None:
    arrays = (X,) if has(name, "function") else (X, X[::-1])
    if name == "sqrt":
        arrays = (np.abs(X),)  # Padding is 0 where a root is real.
    finite = np.isfinite(evaluated(name, *arrays)).all()
    assert finite or not has(name, "finite")


@pytest.mark.parametrize("name", [n for n in operators("homogeneous") if has(n, "function")])
def test_homogeneous_functions_pass_factors_through(name: str) -> None:
    assert np.array_equal(evaluated(name, X * 4), evaluated(name, X) * 4)
    assert not np.array_equal(evaluated("tanh", X * 4), evaluated("tanh", X) * 4)


def test_a_trait_stands_for_its_operations_in_a_machine() -> None:
    assert named(("add", "table", "tanh")) == ("add", *operators("table"))
    part = Primitive(
        name="vector", operations=("table",), engine="e", operands={}, cycles="1", peak="1",
        epilogue=(("add",), ("fold", "relu")),
    )  # fmt: skip
    assert part.operations == operators("table")
    assert part.epilogue == (("add",), (*operators("fold"), "relu"))


@pytest.mark.parametrize("name", operators("arithmetic"))
def test_the_order_of_commutative_maps_does_not_matter(name: str) -> None:
    arrays = np.abs(X) + 0.5, np.abs(X[::-1]) + 0.25
    same = np.array_equal(evaluated(name, *arrays), evaluated(name, *arrays[::-1]))
    assert same == has(name, "commutative")
