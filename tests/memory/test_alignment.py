"""Rounding and overlap, against their definitions."""

from tilewright.memory import align_up, ceil_div, shared


def test_rounding() -> None:
    for value in range(40):
        for unit in range(1, 9):
            assert ceil_div(value, unit) == len(range(0, value, unit))
            rounded = next(n for n in range(value, value + unit) if n % unit == 0)
            assert align_up(value, unit) == rounded
    assert align_up(65) == 128


def test_shared_bytes() -> None:
    ranges = [(a, b) for a in range(5) for b in range(a, 5)]
    for start, end in ranges:
        for low, high in ranges:
            common = set(range(start, end)) & set(range(low, high))
            assert shared(start, end, low, high) == len(common)
