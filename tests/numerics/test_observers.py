"""Observers: ranges against a search over the values themselves, whatever their order."""

import numpy as np
import pytest

from tilewright.ir.types import Array
from tilewright.numerics.formats import OBSERVERS
from tilewright.numerics.observers import Histogram, Observer


def values(seed: int, size: int = 20_000) -> Array:
    """Mostly normal, with a few far outliers."""
    random = np.random.default_rng(seed)
    found = random.normal(size=size).astype(np.float32)
    found[: size // 2000] *= 12
    return found


def true_error(x: Array, limit: float, levels: int) -> float:
    scale = limit / levels
    kept = np.clip(np.rint(x / scale), -levels, levels) * scale
    return float(np.square(kept - x.astype(np.float64)).sum())


@pytest.mark.parametrize("name", OBSERVERS)
def test_ranges_do_not_depend_on_order(name: str) -> None:
    x = values(1)
    ranges: list[tuple[float, float]] = []
    for order in (x, x[::-1], np.sort(np.abs(x))[::-1] * np.sign(x[np.argsort(-np.abs(x))])):
        observer = Observer(name)
        for part in np.array_split(order, 7):
            observer.see(part)
        ranges.append(observer.range)
    assert ranges[0] == ranges[1] == ranges[2]
    assert ranges[0][0] < 0 < ranges[0][1]


def test_minimum_maximum_holds_everything_and_zero() -> None:
    observer = Observer()
    observer.see(np.array([2.0, 5.0, np.nan, np.inf], np.float32))
    observer.see(np.zeros(0, np.float32))
    assert observer.range == (0.0, 5.0)


@pytest.mark.parametrize("percent", [50.0, 90.0, 99.9])
def test_percentile(percent: float) -> None:
    x = values(2)
    observer = Observer("percentile", percentile=percent)
    observer.see(x)
    low, high = observer.range
    wanted = np.percentile(np.abs(x), percent)
    assert -low == high and high == pytest.approx(wanted, abs=2e-2)
    assert (np.abs(x) <= high).mean() >= percent / 100


@pytest.mark.parametrize("levels", [7, 127])
def test_least_error_is_near_the_least_there_is(levels: int) -> None:
    x = values(3)
    observer = Observer("mean-squared-error", levels)
    observer.see(x)
    limit = max(-observer.range[0], observer.range[1])
    best = min(true_error(x, c, levels) for c in np.linspace(0.2, float(np.abs(x).max()), 300))
    assert true_error(x, limit, levels) < 1.02 * best
    assert true_error(x, limit, levels) < 0.9 * true_error(x, float(np.abs(x).max()), levels)


def test_powers_of_two_only_where_asked() -> None:
    x = values(4)
    observer = Observer("mean-squared-error", 127, power_of_two=True)
    observer.see(x)
    scale = max(-observer.range[0], observer.range[1]) / 127
    top = float(np.abs(x).max()) / 127
    assert scale == top or float(np.log2(scale)).is_integer()


def test_sixteen_bits_are_not_cut() -> None:
    """With steps finer than the histogram's bins, cutting outliers never pays here."""
    x = values(5)
    observer = Observer("mean-squared-error", 32767)
    observer.see(x)
    assert observer.range[1] == pytest.approx(float(x.max()), rel=0.05)


def test_histogram_counts_all_but_zeros() -> None:
    histogram = Histogram()
    parts = [np.abs(values(6, 1000)) * 10.0**k for k in (-20, 0, 12, -3)]
    for part in parts:
        histogram.add(np.append(part, 0).astype(np.float32))
    assert histogram.counts.sum() == 4000
    assert histogram.width * len(histogram.counts) >= max(float(part.max()) for part in parts)
