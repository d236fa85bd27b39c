"""The kernels that the compiler can make of a group today, or why it can make none.

A form is tried as a kernel beside the network's own, which is described for planning and erased
again. The conditions are those of the passes that make such kernels: maps behind an anchor
(fuse-pointwise), pools within tiles (fuse-pools), pairs of convolutions (fuse-separable), rows
normalised behind a product (fuse-norms); and computes that read on the chip what others make
(planning/chains.py).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import pairwise

from tilewright.errors import Problem
from tilewright.graph.dialect import GraphOperation, KernelOp
from tilewright.graph.operations import Operation
from tilewright.graph.operations.convolution import ConvOp
from tilewright.graph.operations.pooling import PoolOperation
from tilewright.graph.passes.constraints import candidate, serving
from tilewright.graph.passes.editing import erase, only_user
from tilewright.graph.passes.enclosing import copied, enclose_with
from tilewright.graph.passes.fuse_norms import rows_primitive
from tilewright.graph.passes.fuse_pointwise import MAPS, joins
from tilewright.graph.passes.fuse_pools import pool_objection
from tilewright.graph.passes.fuse_separable import (
    OPERATION,
    forget_pair,
    pair_objection,
    trial_pair,
)
from tilewright.graph.passes.methods import methods_of, most_scratch
from tilewright.graph.passes.reanchoring import anchor_operands, plain_kernel, with_layouts
from tilewright.graph.passes.rewrite_method import forget, rewritten
from tilewright.ir import SSAValue, UnitAttr
from tilewright.machine import Machine, Primitive
from tilewright.numerics.element_types import ELEMENTS
from tilewright.planning.domain import Kernel, Operand

Trials = list[tuple[KernelOp, Primitive]]
"""Kernels that compute a group, each with the primitive that takes it."""


@contextmanager
def forms_of(kernels: Sequence[KernelOp], machine: Machine) -> Generator[Trials | Problem]:
    """Kernels that compute all of a group, each with the primitive that takes it.

    ``kernels`` are in the network's order; a chain is joined one kernel after the other. The trials
    stand in the network, unread, until the context ends.
    """
    reasons: list[str] = []
    with ExitStack() as undo:
        if problem := _no_chain(kernels):
            yield problem
            return
        first, *others = kernels
        trials = list(_extended(first, first.result, others, machine, undo, reasons))
        yield trials or _problem(kernels[-1], "; ".join(dict.fromkeys(reasons)))


def _no_chain(kernels: Sequence[KernelOp]) -> Problem | None:
    """Why kernels are no chain whose results nothing else reads."""
    for one, other in pairwise(kernels):
        if one.result not in other.inputs:
            return _problem(other, "a kernel is a chain: each operation reads the one before")
        if only_user(one.result) is not other:
            return _problem(one, "its result is read elsewhere, and a kernel gives one result")
    return None


def described(kernel: KernelOp, machine: Machine, primitive: Primitive | None = None) -> Kernel:
    """A kernel as planning sees it, with a primitive's layouts and the machine's elements.

    Refuses (``plan-primitive``) what no primitive computes.
    """
    plain = plain_kernel(kernel)
    if primitive is None:
        anchor = kernel.operations[0]
        assert isinstance(anchor, Operation)
        primitive = serving(candidate(anchor), machine)[0]
    return _numbered(with_layouts(plain, machine, primitive), machine)


def _numbered(kernel: Kernel, machine: Machine) -> Kernel:
    """The kernel with the machine's elements in place of float32."""
    if machine.computes_as_given:
        return kernel

    def numbered(operand: Operand) -> Operand:
        if not ELEMENTS[operand.element].is_plain:
            return operand
        element = machine.accumulator if operand.role == "bias" else machine.element
        return replace(operand, element=element)

    stages = tuple(
        replace(
            stage,
            inputs=tuple(numbered(one) for one in stage.inputs),
            output=numbered(stage.output),
        )
        for stage in kernel.stages
    )
    producers = tuple(_numbered(one, machine) for one in kernel.producers)
    return replace(kernel, stages=stages, producers=producers)


def _problem(kernel: KernelOp, reason: str) -> Problem:
    return Problem("fusion-form", reason, kernel.symbol.data)


def _extended(
    first: KernelOp,
    value: SSAValue,
    others: Sequence[KernelOp],
    machine: Machine,
    undo: ExitStack,
    reasons: list[str],
) -> Iterator[tuple[KernelOp, Primitive]]:
    """What becomes of a kernel, which computes ``value``, with the others joined to it."""
    second, *rest = others
    for trial, primitive in _joined(first, value, second, machine, undo, reasons):
        if rest:
            yield from _extended(trial, second.result, rest, machine, undo, reasons)
        else:
            yield trial, primitive


def _joined(
    first: KernelOp,
    value: SSAValue,
    second: KernelOp,
    machine: Machine,
    undo: ExitStack,
    reasons: list[str],
) -> Iterator[tuple[KernelOp, Primitive]]:
    """The forms of two kernels as one, which ``undo`` erases; adds why there are none."""
    anchor = second.operations[0]
    if not isinstance(anchor, MAPS) and value not in anchor_operands(second):
        reasons.append(f"{_name(second)} reads it not itself, but by a map behind its results")
        return
    found = False
    for trial in _chained(first, value, second, machine, undo):
        found = True
        yield trial
    if found:
        return
    if isinstance(anchor, MAPS):
        yield from _with_maps(first, value, second, machine, undo, reasons)
    elif isinstance(anchor, PoolOperation):
        yield from _with_pool(first, value, second, machine, undo, reasons)
    elif (
        isinstance(anchor, ConvOp)
        and isinstance(first.operations[0], ConvOp)
        and machine.primitives_for(OPERATION)
        and first.result is value
    ):
        yield from _pair(first, second, machine, undo, reasons)
    elif any(_name(second) in primitive.rows for primitive in machine.primitives):
        yield from _with_rows(first, value, second, machine, undo, reasons)
    else:
        reasons.append(
            f"no kernel has {_name(second)} behind {_name(first)}: tiles of the second one's "
            "results need more than those of the first one's"
        )


def _chained(
    first: KernelOp, value: SSAValue, second: KernelOp, machine: Machine, undo: ExitStack
) -> Iterator[tuple[KernelOp, Primitive]]:
    """The second kernel as a compute that reads on the chip what the first one makes, where both
    work in one memory that software manages."""
    one, other = first.computes[-1][0], second.operations[0]
    if isinstance(other, MAPS) or not isinstance(one, Operation):
        return
    assert isinstance(other, Operation)
    makes, reads = serving(candidate(one), machine)[:1], serving(candidate(other), machine)[:1]
    if not makes or not reads or not in_one_memory(makes[0], reads[0], machine):
        return
    yield _enclosed(_copies(first, value, second, begins=True), first, undo), reads[0]


def in_one_memory(makes: Primitive, reads: Primitive, machine: Machine) -> bool:
    """Whether a primitive leaves its results where another one reads, in a memory on the chip."""
    memory = makes.operands["output"].memory
    inputs = [storage.memory for role, storage in reads.operands.items() if role == "input"]
    return memory != machine.main and memory in inputs


def _with_maps(
    first: KernelOp,
    value: SSAValue,
    second: KernelOp,
    machine: Machine,
    undo: ExitStack,
    reasons: list[str],
) -> Iterator[tuple[KernelOp, Primitive]]:
    """Maps behind the first kernel's own."""
    if _name(first) == OPERATION and anchor_operands(first)[0] in second.inputs:
        reasons.append("a map behind a pair of convolutions does not read the pair's own image")
        return
    chain = _copies(first, value, second)
    anchor, *maps = [op for op in chain if isinstance(op, Operation)]
    steps = list(zip(chain, maps, strict=False))[len(first.operations) - 1 :]
    names = [op.operation for op in maps]
    for primitive in serving(candidate(anchor), machine):
        if primitive.accepts(names) and all(
            before.result in step.inputs and joins(step, before.result, primitive, machine)
            for before, step in steps
        ):
            yield _enclosed(chain, first, undo), primitive
            return
        reasons.append(f"{primitive.name} of {machine.name} does not apply {', '.join(names)}")
    for op in reversed(chain):
        erase(op)


def _with_pool(
    first: KernelOp,
    value: SSAValue,
    second: KernelOp,
    machine: Machine,
    undo: ExitStack,
    reasons: list[str],
) -> Iterator[tuple[KernelOp, Primitive]]:
    """A pool within the tiles of each method that has some."""
    tiled: list[KernelOp] = [first]
    if isinstance(first.operations[0], ConvOp) and any(p.pools for p in machine.primitives):
        for method in list(methods_of(first, machine)):
            if method.form.tile and method.primitive.pools:
                trial = rewritten(first, method.form, most_scratch(machine), None)
                undo.callback(forget, trial)
                tiled.append(trial)
    for trial in tiled:
        objection = pool_objection(trial, second, machine)
        if objection:
            reasons.append(f"{_name(trial)} and {_name(second)}: {objection}")
            continue
        anchor = trial.operations[0]
        assert isinstance(anchor, Operation)
        for primitive in serving(candidate(anchor), machine)[:1]:
            yield _enclosed(_copies(trial, value, second), trial, undo), primitive


def _pair(
    first: KernelOp, second: KernelOp, machine: Machine, undo: ExitStack, reasons: list[str]
) -> Iterator[tuple[KernelOp, Primitive]]:
    """A depthwise convolution and one of single points."""
    objection = pair_objection(first, second)
    if anchor_operands(second)[0] is not first.result:
        objection = "the second one does not read the first one's result as its image"
    if objection:
        reasons.append(f"{_name(first)} and {_name(second)}: {objection}")
        return
    trial = trial_pair(first, second, machine)
    undo.callback(forget_pair, trial)
    anchor = trial.operations[0]
    assert isinstance(anchor, Operation)
    for primitive in serving(candidate(anchor), machine)[:1]:
        yield trial, primitive


def _with_rows(
    first: KernelOp,
    value: SSAValue,
    second: KernelOp,
    machine: Machine,
    undo: ExitStack,
    reasons: list[str],
) -> Iterator[tuple[KernelOp, Primitive]]:
    """A normalisation of rows behind a product's tiles."""
    primitive = rows_primitive(first, second, machine)
    if isinstance(primitive, str) or anchor_operands(second)[0] is not value:
        reasons.append(f"{_name(first)} and {_name(second)}: {primitive}")
        return
    yield _enclosed(_copies(first, value, second), first, undo), primitive


def _copies(
    first: KernelOp, value: SSAValue, second: KernelOp, *, begins: bool = False
) -> list[GraphOperation]:
    """Both kernels' operations, one after the other, in front of the second kernel; with
    ``begins`` those of the second are a compute of their own."""
    chain = copied(first.operations, first, {}, second)
    behind = copied(second.operations, second, {value: chain[-1].result}, second)
    if begins:
        behind[0].begins = UnitAttr()
    return chain + behind


def _enclosed(chain: Sequence[GraphOperation], like: KernelOp, undo: ExitStack) -> KernelOp:
    trial = enclose_with(chain, like.properties)
    undo.callback(erase, trial)
    return trial


def _name(kernel: KernelOp) -> str:
    anchor = kernel.operations[0]
    return candidate(anchor).operation if isinstance(anchor, Operation) else anchor.name
