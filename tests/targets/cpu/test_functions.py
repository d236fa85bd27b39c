"""The vectors' functions against float64: errors in units in the last place, as vectors.h says."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from tests.targets.cpu.kernel_harness import Maker

from tilewright.graph.operations import BY_NAME
from tilewright.graph.operations.normalisation import LrnOp

GRID = np.concatenate(
    [
        sign * np.exp(np.linspace(math.log(1e-6), math.log(40.0), 20_000)).astype(np.float32)
        for sign in (-1, 1)
    ]
)
FUNCTIONS: dict[str, Callable[[float], float]] = {
    "erf": math.erf,
    "exp": math.exp,
    "gelu": lambda x: 0.5 * x * math.erfc(-x * math.sqrt(0.5)),
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "silu": lambda x: x / (1 + math.exp(-x)),
    "tanh": math.tanh,
}
ULP = {"erf": 3.0, "exp": 1.5, "sigmoid": 3.0, "silu": 4.0, "tanh": 2.0}
"""Largest error; of GELU it is 2e-7 |x|, for it is next to nothing below zero."""

_SPECIAL = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 88.8, -104], np.float32)


@pytest.fixture(scope="module")
def found() -> dict[str, np.ndarray]:
    """Each function on the grid and the special values, by one network."""
    m = Maker()
    x = m.input((len(GRID) + len(_SPECIAL),))
    m.inputs["in0"] = np.concatenate([GRID, _SPECIAL])
    m.finish(*(m.kernel([(BY_NAME[kind], [x], {})]) for kind in FUNCTIONS))
    return dict(zip(FUNCTIONS, m.run().values(), strict=True))


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_errors(kind: str, found: dict[str, np.ndarray]) -> None:
    exact = np.array([FUNCTIONS[kind](float(x)) for x in GRID])
    error = np.abs(found[kind][: len(GRID)] - exact)
    if kind == "gelu":
        assert (error <= 2e-7 * np.abs(GRID)).all()
    else:
        unit = np.spacing(np.maximum(np.abs(exact), np.finfo(np.float32).tiny).astype(np.float32))
        assert (error / unit).max() <= ULP[kind]


def test_special_values(found: dict[str, np.ndarray]) -> None:
    special = {kind: array[len(GRID) :].tolist() for kind, array in found.items()}
    for kind, limits in {"tanh": (1, -1), "erf": (1, -1), "sigmoid": (1, 0)}.items():
        assert special[kind][2:4] == list(limits)
    assert special["exp"][2:4] == [math.inf, 0] and special["gelu"][2] == math.inf
    assert special["exp"][7:] == [math.inf, 0]
    for kind in ("tanh", "erf"):
        assert np.signbit(special[kind][:2]).tolist() == [False, True]
        assert special[kind][5] > 0 > special[kind][6]
    assert all(math.isnan(values[4]) for values in special.values())


def test_the_power_of_local_response_normalisation() -> None:
    """Of sums from 1 to the greatest number, beside the error of the sum itself: 6 units."""
    m = Maker()
    x = m.input((1, 1, 1, len(GRID)))
    m.inputs["in0"] = np.sign(GRID)[None, None, None] * np.exp(
        np.linspace(math.log(1e-6), math.log(1e19), len(GRID)), dtype=np.float64
    ).astype(np.float32)
    attributes: dict[str, object] = {"size": 1, "alpha": 1.0, "beta": 0.75, "bias": 1.0}
    m.finish(m.kernel([(LrnOp, [x], attributes)], "NCHWLc"))  # type: ignore[list-item]
    values = m.inputs["in0"].astype(np.float64)
    exact = values * (1 + values**2) ** -0.75
    found = m.run()["out0"]
    assert (np.abs(found - exact) <= 6 * np.spacing(np.abs(exact).astype(np.float32))).all()


@pytest.mark.parametrize("exponent", [0.5, 1.5])
def test_powers_of_halves(exponent: float) -> None:
    """As the C library's: the power 1/2 of minus infinity is infinite, that of -0 is 0."""
    m = Maker()
    x = m.input((len(GRID) + len(_SPECIAL),))
    m.inputs["in0"] = np.concatenate([GRID, _SPECIAL])
    y = m.input(())
    m.inputs["in1"] = np.array(exponent, np.float32)
    m.finish(m.kernel([(BY_NAME["pow"], [x, y], {})]))
    found = m.run()["out0"]
    # Python's follows the C library's, but refuses what has no result.
    expected = np.array(
        [math.nan if -math.inf < v < 0 else math.pow(v, exponent) for v in m.inputs["in0"].tolist()]
    )
    np.testing.assert_allclose(found, expected, rtol=3e-7, atol=1e-45)
    assert not np.signbit(found[expected == 0]).any()
