"""Gradients on a machine that takes no computed weights and cannot clip."""

import numpy as np
import pytest

from tests.integrations.dlplib import oracle
from tests.integrations.dlplib.operators import test_normalisation as normalisation
from tests.integrations.dlplib.operators.test_convolution import CASES, check_layer
from tests.integrations.dlplib.operators.test_pooling import check_pool
from tests.slow import but_fast
from tilewright.integrations import dlplib
from tilewright.integrations.dlplib import Handle

TARGET = "cambricon"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pads beyond the kernel", "depthwise"])
def test_convolution(name: str) -> None:
    check_layer(TARGET, CASES[name], seed=len(name))


@pytest.mark.parametrize(
    "name",
    but_fast(
        ["largest of 2x2", "largest, overlapping and padded", "mean without pads"],
        ["largest of 2x2"],
    ),
)
def test_pool(name: str) -> None:
    check_pool(TARGET, name)


@pytest.mark.slow
def test_batch_norm() -> None:
    normalisation.test_batch_norm_and_its_gradients(TARGET, True)


@pytest.mark.parametrize("batch", [1, 2])
def test_filter_of_a_fully_connected_layer(batch: int) -> None:
    random = np.random.default_rng(batch)
    handle = Handle(TARGET, check=True)
    x = oracle.operand(handle, random.standard_normal((batch, 6, 3, 3)))
    dy = oracle.operand(handle, random.normal(0, 1, (batch, 10)))
    dw, db = oracle.result(handle, (10, 6, 3, 3), filter=True), oracle.result(handle, (1, 10), 10)
    rows, slope = handle.load(x).reshape(batch, -1), handle.load(dy).reshape(batch, 10)
    dlplib.fully_connected_backward_filter(handle, x, dy, dw)
    dlplib.bias_backward(handle, dy, db)
    oracle.near(handle, dw, slope.T @ rows)
    oracle.near(handle, db, slope.sum(0))
    assert all(run.host == () and run.cycles for run in handle.runs)


def test_times_are_told_without_values() -> None:
    found: list[int] = []
    for compute in (True, False):
        handle = Handle(TARGET, compute=compute)
        a, y = (oracle.operand(handle, np.full((1, 40, 3, 3), n)) for n in (1.5, 0.0))
        found.append(dlplib.vector(handle, "add", a, a, y).cycles or 0)
        assert np.all(handle.load(y) == (3.0 if compute else 0.0))
    assert found[0] == found[1] > 0
