"""ONNX's own backend suite: its node tests through the interpreter and the cpu target.

The suite's expected outputs are the oracle. What is not passed is refused with a code, or stands
in ROUNDED with its reason; counts may only grow. ``make suite`` prints the table by operator.
"""

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright.onnx_backend as backend
from tests.suites.onnx_cases import (
    PASSED,
    REFUSED,
    Outcome,
    Trial,
    cases,
    interpreted,
    on_cpu,
    trials_of,
)
from tilewright.errors import TilewrightError
from tilewright.frontends.onnx import import_onnx
from tilewright.graph.dialect import network_of
from tilewright.graph.interpreter import interpret
from tilewright.types import shape_of

ROUNDED = ("bf16", "fp16")
"""Attention of half precision: ONNX's reference rounds after every sum, which moves the last bit.

Such results may differ by one unit in the last place.
"""

LEAST = 1480
"""Node tests that pass, of 1,884."""

SAMPLE = 25
"""Every so many tests are run in the part that is always run."""


def rounded(trial: Trial, outcome: Outcome) -> bool:
    """Whether a difference is one of half precision's last place."""
    return any(mark in trial.case.name for mark in ROUNDED) and outcome.reason in (
        "differs by 0.00390625",
        "differs by 0.00048828125",
    )


def held(chosen):
    """Run tests on both engines; returns the outcome of each, and holds that none is wrong."""
    outcomes, trials, wrong = {}, [], []
    for case in chosen:
        found = trials_of(case)
        if isinstance(found, Outcome):
            outcomes[case.name] = found
            continue
        outcomes[case.name] = interpreted(found)
        trials += found
    for start in range(0, len(trials), 200):
        part = trials[start : start + 200]
        for trial, outcome in zip(part, on_cpu(part), strict=True):
            if rounded(trial, outcome) and outcomes[trial.case.name].result != REFUSED:
                outcomes[trial.case.name] = Outcome(PASSED)
            elif outcome.result != PASSED:
                outcomes[trial.case.name] = outcome
    for name, outcome in outcomes.items():
        if outcome.result not in (PASSED, REFUSED):
            wrong.append((name, outcome.reason))
    assert not wrong
    for outcome in outcomes.values():
        assert outcome.result == PASSED or ": " in outcome.reason, "a refusal has a code"
    return outcomes


@pytest.mark.slow
def test_some_node_tests():
    outcomes = held(cases()[::SAMPLE])
    assert Counter(o.result for o in outcomes.values())[PASSED] >= LEAST // SAMPLE - 5


@pytest.mark.slow
def test_all_node_tests():
    outcomes = held(cases())
    counts = Counter(outcome.result for outcome in outcomes.values())
    print(counts)
    assert counts[PASSED] >= LEAST


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
    bad = helper.make_node("Det", ["x"], ["y"])
    graph = helper.make_graph([bad], "bad", values[:1], [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    assert not backend.is_compatible(model)
    with pytest.raises(TilewrightError, match="Det"):
        backend.prepare(model)


LIGHT = ("inception_v1", "resnet50", "shufflenet", "squeezenet")
HEAVY = ("bvlc_alexnet", "densenet121", "inception_v2", "vgg19", "zfnet512")


@pytest.mark.parametrize(
    "name", [*LIGHT, *(pytest.param(name, marks=pytest.mark.slow) for name in HEAVY)]
)
def test_light_models(name):
    """The bundled networks with constant weights, on the suite's input and output."""
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    imported = import_onnx(folder / f"light_{name}.onnx")
    ((key, value),) = network_of(imported.module).inputs
    shape = shape_of(value)
    # As the suite makes it: 0, 1, 2, ... scaled to [0, 1).
    image = (np.arange(np.prod(shape)) / np.prod(shape)).astype(np.float32).reshape(shape)
    (got,) = interpret(imported.module, imported.weights, {key: image}).values()
    want = numpy_helper.to_array(onnx.load_tensor(folder / f"light_{name}_output_0.pb"))
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-7)
