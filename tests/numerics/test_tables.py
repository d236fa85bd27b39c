"""Tables with linear interpolation: the documented rule, and close to the function."""

import numpy as np
import pytest

from tilewright.numerics import tables

ALL = np.arange(-32768, 32768).astype(np.int16)


def parameters_of(operation: str) -> tuple[float, ...]:
    return {"hard_sigmoid": (0.3, 0.4), "elu": (1.25,)}.get(operation, ())


@pytest.mark.parametrize("operation", tables.FUNCTIONS)
def test_interpolation_follows_its_rule(operation: str) -> None:
    entries = tables.table(operation, 9, 11, parameters_of(operation)).tolist()
    assert len(entries) == 257 and all(-32768 <= entry <= 32767 for entry in entries)
    result = tables.interpolate(np.array(entries, np.int16), ALL)
    assert result.dtype == np.int16
    for x, y in zip(ALL[::7].tolist(), result[::7].tolist(), strict=True):
        i, r = (x + 32768) // 256, x % 256
        assert y == entries[i] + ((entries[i + 1] - entries[i]) * r + 128) // 256


CURVATURE = {
    "sigmoid": 0.097,
    "tanh": 0.77,
    "hard_sigmoid": 0.0,
    "hard_swish": 1 / 3,
    "silu": 0.5,
    "gelu": 0.8,
    "exp": None,
    "log": None,
    "sqrt": None,
    "erf": 0.97,
    "elu": 1.25,
    "softplus": 0.25,
}
"""Largest second derivative; None where it has no bound."""


@pytest.mark.parametrize("operation", tables.FUNCTIONS)
@pytest.mark.parametrize(("f", "g"), [(12, 14), (9, 11), (13, 12)])
def test_tables_are_close_to_the_function(operation: str, f: int, g: int) -> None:
    """Entries are off by half a unit, interpolation rounds once more: one unit in all.

    Chords of a curve over segments of 256 units add curvature * segment**2 / 8; where the
    function has a kink inside a segment (clipped ones), half its change of slope * segment.
    """
    function = tables.FUNCTIONS[operation]
    parameters = parameters_of(operation)
    points = ALL * 2.0**-f
    exact = np.asarray(function(points, *parameters)) * 2.0**g
    result = tables.interpolate(tables.table(operation, f, g, parameters), ALL).astype(float)
    segment = 256 * 2.0**-f
    curvature = CURVATURE[operation]
    if curvature is None:
        near = (points > 0.5) & (points < 2)
        curvature = 8.0 if operation == "exp" else 4.0
    else:
        near = np.ones(len(ALL), bool)
    kink = {"hard_sigmoid": 0.3, "hard_swish": 0.5, "elu": 0.25}.get(operation, 0.0)
    bound = 1.0 + (curvature * segment**2 / 8 + kink * segment / 2) * 2.0**g
    unsaturated = near & (np.abs(exact) < 32767 - 2.0**g * segment)
    assert unsaturated.any()
    assert (np.abs(result - exact)[unsaturated] <= bound).all()


def test_tables_saturate_and_fill_what_has_no_number() -> None:
    exponential = tables.table("exp", 8, 8)
    assert exponential[0] == 0 and exponential[-1] == 32767
    root = tables.table("sqrt", 8, 8)
    assert root[:129].tolist() == [0] * 129 and root[129] == 256
    logarithm = tables.table("log", 8, 8)
    assert logarithm[:129].tolist() == [-32768] * 129 and logarithm[129] == 0


def test_tables_are_made_once_and_cannot_change() -> None:
    entries = tables.table("tanh", 12, 14)
    assert entries is tables.table("tanh", 12, 14)
    with pytest.raises(ValueError, match="read-only"):
        entries[0] = 1


def test_unknown_functions_and_parameters() -> None:
    with pytest.raises(KeyError):
        tables.table("no_such", 1, 1)
    with pytest.raises(KeyError):
        tables.table("tanh", 1, 1, (2.0,))
    steps = tables.table_of(np.floor, 8, 8)
    assert steps[126:131].tolist() == [-512, -256, 0, 256, 512]


def test_what_overflows_even_a_double_saturates() -> None:
    entries = tables.table("exp", 5, 13)
    assert entries[0] == 0 and entries[-1] == 32767


@pytest.mark.parametrize(("operation", "exact_from"), [("sigmoid", 12), ("tanh", 14)])
def test_stated_errors_hold_in_every_format(operation: str, exact_from: int) -> None:
    """docs/hlal.md: 2 units plus what a chord misses, over all operands of all formats."""
    curvature = CURVATURE[operation]
    assert curvature is not None
    for before in range(16):
        values = tables.FUNCTIONS[operation](ALL * 2.0**-before)
        for after in range(16):
            wanted = np.clip(values * 2.0**after, -32768, 32767)
            got = tables.interpolate(tables.table(operation, before, after), ALL)
            worst = np.abs(got - wanted).max()
            assert worst <= 1.5 + curvature * 2.0 ** (after + 13 - 2 * before), (before, after)
            if before >= exact_from and (after < 15 or before > exact_from):
                assert worst <= 2, (before, after)
