import numba
import numpy as np

from tilewright.simulate.compiled import compiled


def total(values):
    result = 0
    for value in values:
        result += value
    return result


def test_without_a_place_for_the_cache(monkeypatch):
    real = numba.njit

    def njit(*arguments, **options):
        if options.get("cache"):
            raise RuntimeError("cannot cache function")
        return real(*arguments, **options)

    monkeypatch.setattr(numba, "njit", njit)
    assert compiled(total)(np.arange(5)) == 10
