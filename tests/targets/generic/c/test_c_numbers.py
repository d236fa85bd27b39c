"""Kernels in C on other numbers than fixed point: integers with scales, floats, and both.

Integers, and what goes between them and floats, are bit for bit what the graph means. Floats keep
the bound of the simulator's tests (test_short_floats.py), in which any order of sums is right.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.slow import crossed
from tests.targets.generic import test_fills as fills
from tests.targets.generic import test_mixed_numbers as mixed
from tests.targets.generic import test_real_scales as scales
from tests.targets.generic import test_short_floats as floats
from tests.targets.generic.c.c_kernels import emitted, with_c
from tests.targets.generic.kernel_cases import CASES, Case

from tilewright.machine import Machine
from tilewright.numerics.element_types import ELEMENTS
from tilewright.targets.cambricon_x.machine import MACHINE as CAMBRICON_X

INTEGERS = with_c(scales.MACHINE)
MIXED = with_c(mixed.MACHINE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("numbers")


def results(case: Case, machine: Machine, folder: Path) -> list[np.ndarray]:
    """The kernel's results in C, in every order that its waits allow."""
    kernel = emitted(case, machine)
    library = kernel.build(folder / f"{machine.name}-{machine.element}-{len([*folder.iterdir()])}")
    return [kernel.run(library, order) for order in kernel.orders]


INTEGER_KINDS = (
    *(scales.convolution, scales.depthwise, scales.product, scales.sums, scales.pair),
    *(scales.function, scales.pool),
)


@pytest.mark.few(14)
@pytest.mark.parametrize("kind", INTEGER_KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_integers_with_scales(kind: Callable[[int], Case], seed: int, folder: Path) -> None:
    case = kind(seed)
    for result in results(case, INTEGERS, folder):
        np.testing.assert_array_equal(result, case.expected)


@pytest.mark.few(4)
@pytest.mark.parametrize("name", fills.FILLING)
@pytest.mark.parametrize("seed", range(4))
def test_padding_holds_a_zero_point(name: str, seed: int, folder: Path) -> None:
    """In a primitive's window, or where a move gathers windows."""
    case, machine = fills.case_of(name, seed), with_c(fills.FILLING[name])
    for result in results(case, machine, folder):
        np.testing.assert_array_equal(result, case.expected)


ROUNDED = (mixed.quantised_softmax, mixed.quantised_norm)
"""Kernels whose floats differ by the order of sums before they are rounded to integers."""


@pytest.mark.few(10)
@pytest.mark.parametrize("kind", mixed.KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_between_integers_and_floats(kind: Callable[[int], Case], seed: int, folder: Path) -> None:
    case = kind(seed)
    for result in results(case, MIXED, folder):
        assert result.dtype == case.expected.dtype
        if kind in ROUNDED:
            off = np.abs(result.astype(np.int64) - case.expected.astype(np.int64))
            assert off.max() <= 1 and off.mean() < 0.01
        else:
            np.testing.assert_array_equal(result, case.expected)


SHORT = {
    (name, file.stem): with_c(floats.machine_of(file, name))
    for name in floats.ELEMENT
    for file in (floats.FIVE, floats.ONE)
}


@pytest.mark.parametrize(("kind", "place"), crossed(floats.KINDS, SHORT))
def test_floats_of_16_bits(
    kind: Callable[[int, str], Case], place: tuple[str, str], folder: Path
) -> None:
    """Moves that convert, and primitives that round by themselves."""
    element = place[0]
    case = kind(floats.KINDS.index(kind), element)
    wanted, error = floats.exact(case)
    unit, least = floats.UNIT[element], floats.LEAST[element]
    bound = error * (1 + unit) + unit * np.abs(wanted) + least
    for result in results(case, SHORT[place], folder):
        assert result.dtype == ELEMENTS[element].dtype
        assert (np.abs(result.astype(np.float64) - wanted) <= bound).all()


def plain() -> Machine:
    """Cambricon-X on float32, without the products of 16-bit streams."""
    machine = CAMBRICON_X.with_values({"element": "float32", "accumulator": "float32"})
    primitives = [
        one.model_copy(
            update={"operations": tuple(o for o in one.operations if o != "sparse_product")}
        )
        for one in machine.primitives
    ]
    kept = tuple(one for one in primitives if one.operations)
    return machine.model_copy(update={"primitives": kept, "name": "plain"})


PLAIN = with_c(plain())


@pytest.mark.parametrize("kind", CASES)
def test_floats_of_32_bits(kind: Callable[[int, bool], Case], folder: Path) -> None:
    """Every kind of kernel, functions and normalisations too, against the graph's meaning."""
    case = kind(3, False)
    for result in results(case, PLAIN, folder):
        assert result.dtype == np.float32
        scale = float(np.abs(case.expected).max())
        np.testing.assert_allclose(result, case.expected, rtol=2e-5, atol=2e-6 * scale)
