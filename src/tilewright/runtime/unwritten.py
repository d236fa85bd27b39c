"""Reads of bytes that were never written: two runs whose memories begin with other contents differ.

A machine may read such bytes, in lanes beyond an edge, as long as they reach no result; so results
are what is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from tilewright.codegen.program.interface import Runner
from tilewright.errors import TilewrightError, refuse
from tilewright.graph.dialect import KernelOp, NetworkOp, network_of
from tilewright.graph.operation import Operation
from tilewright.graph.values import value_names
from tilewright.ir import ModuleOp
from tilewright.ir.types import Array
from tilewright.runtime.observing import Observing


def refuse_unwritten(
    runner: Runner,
    graph: Callable[[], ModuleOp],
    inputs: Mapping[str, Array],
    outputs: Mapping[str, Array],
    *,
    profile: bool = False,
) -> None:
    """Refuse (``program-unwritten``) a program whose ``outputs`` depend on bytes that it reads and
    were never written; names the first kernel whose result does.

    Runs once more, with a ``profile`` as the first run had, since that may be another program;
    where results differ, twice more, to compare the values of the ``graph`` between kernels.
    """
    first = runner.seed
    try:
        runner.seed = first + 1
        again = _run(runner, inputs, profile)
        if all(_same(outputs[name], array) for name, array in again.items()):
            return
        network = network_of(graph())
        other = _seen(runner, network, inputs)
        runner.seed = first
        seen = _seen(runner, network, inputs)
    finally:
        runner.seed = first
    names = value_names(network)
    for op in network.block.ops:
        if not isinstance(op, KernelOp | Operation):
            continue
        name = names[op.result]
        if name not in seen or name not in other or _same(seen[name], other[name]):
            continue
        different = int(np.count_nonzero(_bits(seen[name]) != _bits(other[name])))
        nodes = _nodes(op)
        raise refuse(
            "program-unwritten",
            f"{different:,} bytes of its result depend on bytes that were never written",
            f"{op.symbol.data if isinstance(op, KernelOp) else name}"
            + (f" ({', '.join(nodes)})" if nodes else ""),
        )
    raise refuse(
        "program-unwritten",
        "an output depends on bytes that were never written",
        next(name for name, array in again.items() if not _same(outputs[name], array)),
    )


def _run(runner: Runner, inputs: Mapping[str, Array], profile: bool) -> Mapping[str, Array]:
    """The outputs of another run; what it refuses is due to its memories, since one has passed."""
    try:
        return runner.run(inputs, profile=profile).outputs
    except TilewrightError as error:
        problem = error.problems[0]
        reason = f"on memories that begin with other contents: {problem.reason}"
        raise refuse("program-unwritten", reason, problem.where) from error


def _seen(runner: Runner, network: NetworkOp, inputs: Mapping[str, Array]) -> dict[str, Array]:
    seen: dict[str, Array] = {}
    runner.run(inputs, watch=Observing(network, seen.__setitem__).step)
    return seen


def _bits(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _same(left: Array, right: Array) -> bool:
    return left.shape == right.shape and bool(np.array_equal(_bits(left), _bits(right)))


def _nodes(op: KernelOp | Operation) -> list[str]:
    if isinstance(op, Operation):
        return [op.node_name] if op.node_name else []
    return list(dict.fromkeys(inner.node_name for inner in op.operations if inner.node_name))
