"""Operations that passes make know whose results they give: the model's own, value by value."""

from math import prod

import numpy as np
import pytest

from tests.graph.passes.pass_networks import accelerator, context, inputs_of, random_network
from tests.graph.passes.pipelines import prepare_pipeline
from tests.slow import but_fast
from tilewright.graph.dialect import network_of
from tilewright.graph.interpreter import interpret
from tilewright.graph.operation import Operation
from tilewright.graph.values import value_names
from tilewright.graph.weights import Weights
from tilewright.ir import ModuleOp, SSAValue
from tilewright.ir.passes import PassRunner
from tilewright.ir.types import Array, shape_of
from tilewright.targets.cpu.machine import machine as cpu

MACHINES = {"small": accelerator(), "cpu": cpu()}


def results(module: ModuleOp, store: Weights, seed: int) -> dict[str, tuple[SSAValue, Array]]:
    names = value_names(module)
    seen: dict[str, Array] = {}
    interpret(module, store, inputs_of(module, seed), seen.__setitem__)
    ops = [op for op in network_of(module).walk() if isinstance(op, Operation)]
    # Of several operations of a node, the last gives its result.
    return {op.result_node: (op.result, seen[names[op.result]]) for op in ops if op.result_node}


@pytest.mark.parametrize("seed", but_fast(range(24), range(8)))
def test_results_are_those_of_their_nodes(seed: int) -> None:
    module, store = random_network(seed)
    before = {
        node: (shape_of(value), array)
        for node, (value, array) in results(module, store, seed).items()
    }
    machine = MACHINES["small" if seed % 2 else "cpu"]
    PassRunner(context(machine, store)).run(module, prepare_pipeline(machine))
    compared = 0
    for node, (value, array) in results(module, store, seed).items():
        shape, expected = before[node]
        if prod(shape) == prod(shape_of(value)):
            allowed = 1e-4 * float(np.abs(expected).max(initial=0)) + 1e-5
            error = np.abs(array.reshape(-1) - expected.reshape(-1)).max(initial=0)
            assert error <= allowed, node
            compared += 1
    assert compared >= len(before) / 4
