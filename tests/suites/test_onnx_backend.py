"""ONNX's own backend suite, whole, through the interpreter and the cpu target.

The suite's expected outputs are the oracle. What is not passed is refused with the code that
onnx_refused.txt has; ``make suite`` writes that list and the table in docs/onnx-suite.md.
"""

import unittest

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.backend.test import BackendTest

import tilewright.integrations.onnx_backend as backend
from tests.suites.onnx_cases import KINDS, NEAR, NOISE, PASSED, REFUSED, cases
from tests.suites.outcomes import known_refusals, outcomes_of
from tests.suites.single_operator import is_single_operator
from tilewright.errors import TilewrightError

LEAST = 2002
"""Tests that pass, of 2,033."""

PARTS = 12
"""In so many parts the node tests are run, so that workers share them.

Tests that stand together are often of equal networks, which are then compiled once.
"""


def check(chosen):
    """Hold that every test does what is known of it; a refused one may also pass by now."""
    known, wrong = known_refusals(), []
    for name, outcomes in outcomes_of(chosen).items():
        for engine, outcome in zip(("interpreter", "cpu"), outcomes, strict=True):
            refused = outcome.result == REFUSED and outcome.reason.startswith(f"{known.get(name)}:")
            if outcome.result not in (PASSED, NEAR) and not refused:
                wrong.append(f"{name} on {engine}: {outcome.result}: {outcome.reason}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_node_tests(part):
    chosen = cases("node")
    check(chosen[len(chosen) * part // PARTS : len(chosen) * (part + 1) // PARTS])


@pytest.mark.parametrize("kind", ["simple", "pytorch-converted", "pytorch-operator"])
@pytest.mark.slow
def test_other_groups(kind):
    check(cases(kind))


@pytest.mark.parametrize("case", cases("real"), ids=lambda case: case.name)
@pytest.mark.slow
def test_networks(case):
    check([case])


@pytest.mark.slow
def test_enough_pass_and_all_that_networks_are_made_of():
    known = known_refusals()
    names = {kind: [case.name for case in cases(kind)] for kind in KINDS}
    assert sum(map(len, names.values())) == 2033
    assert sum(name not in {*known, *NOISE} for of in names.values() for name in of) >= LEAST
    single = [case.name for case in cases("node") if is_single_operator(case)]
    assert len(single) >= 604
    assert not set(single) & {*known, *NOISE}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of its casts that overflow on purpose
def test_the_suite_runs_as_its_authors_describe():
    tests = BackendTest(backend, __name__)
    tests.include("^test_(relu|and2d|matmul_2d|reshape_reordered_all_dims|Linear)_cpu$")
    result = unittest.TextTestRunner(verbosity=0).run(tests.test_suite)
    assert result.wasSuccessful()
    assert result.testsRun - len(result.skipped) == 5


def test_the_backend_runs_models_nodes_and_shapes_that_come_as_inputs():
    node = helper.make_node("Reshape", ["x", "sizes"], ["y"])
    values = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 6]),
        helper.make_tensor_value_info("sizes", TensorProto.INT64, [2]),
    ]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "reshape", values, [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    assert backend.is_compatible(model) and backend.supports_device("CPU:0")
    prepared = backend.prepare(model)
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    for shape in ((3, 4), (4, 3), (3, 4)):
        (y,) = prepared.run([x, np.array(shape)])
        np.testing.assert_array_equal(y, x.reshape(shape))
    bad = helper.make_node("Bernoulli", ["x"], ["y"])
    graph = helper.make_graph([bad], "bad", values[:1], [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    assert not backend.is_compatible(model)
    with pytest.raises(TilewrightError, match="Bernoulli"):
        backend.prepare(model)
