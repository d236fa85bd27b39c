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
from dataclasses import dataclass, replace
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
from tilewright.graph.passes.points import ALIGNING
from tilewright.graph.passes.reanchoring import anchor_operands, plain_kernel, with_layouts
from tilewright.graph.passes.rewrite_method import forget, rewritten
from tilewright.ir import SSAValue, UnitAttr
from tilewright.machine import Machine, Primitive
from tilewright.machine.fusions import hands_on
from tilewright.numerics.element_types import ELEMENTS
from tilewright.planning.domain import Kernel, Operand
from tilewright.planning.parts import as_planned as planned

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
    for first, second in pairwise(kernels):
        if first.result not in second.inputs:
            return _problem(second, "a kernel is a chain: each operation reads the one before")
        if only_user(first.result) is not second:
            return _problem(first, "its result is read elsewhere, and a kernel gives one result")
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


def as_planned(kernel: KernelOp, machine: Machine) -> Kernel:
    """A kernel that has its numbers and layouts as it is planned, its tensors dense."""
    return planned(plain_kernel(kernel), machine)


def _numbered(kernel: Kernel, machine: Machine) -> Kernel:
    """The kernel with the machine's elements in place of float32, and its rounding of sums."""
    if machine.computes_as_given:
        return kernel

    def numbered(operand: Operand) -> Operand:
        if not ELEMENTS[operand.element].is_plain:
            return operand
        element = machine.accumulator if operand.role == "bias" else machine.element
        return replace(operand, element=element)

    bits = machine.own.rounding_rules().guard_bits
    guard = () if bits is None else (("guard", bits),)
    stages = tuple(
        replace(
            stage,
            inputs=tuple(numbered(producer) for producer in stage.inputs),
            output=numbered(stage.output),
            attributes=(*stage.attributes, *guard)
            if stage.operation in ALIGNING
            else stage.attributes,
        )
        for stage in kernel.stages
    )
    producers = tuple(_numbered(producer, machine) for producer in kernel.producers)
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
    for trial, primitive in _Pair(first, value, second, machine, undo, reasons).forms():
        if rest:
            yield from _extended(trial, second.result, rest, machine, undo, reasons)
        else:
            yield trial, primitive


@dataclass(frozen=True)
class _Pair:
    """Two kernels, of which the second reads ``value``, the first one's result."""

    first: KernelOp
    value: SSAValue
    second: KernelOp
    machine: Machine
    undo: ExitStack
    """Erases the trials."""
    reasons: list[str]
    """Why there are no forms."""

    def forms(self) -> Iterator[tuple[KernelOp, Primitive]]:
        """The two kernels as one, with the primitive that takes it."""
        anchor, machine = self.second.operations[0], self.machine
        if not isinstance(anchor, MAPS) and self.value not in anchor_operands(self.second):
            self.reasons.append(
                f"{_name(self.second)} reads it not itself, but by a map behind its results"
            )
        elif isinstance(anchor, MAPS):
            forms = list(self._with_maps())
            yield from forms or self._on_chip()
        elif forms := list(self._on_chip()):
            yield from forms
        elif isinstance(anchor, PoolOperation):
            yield from self._with_pool()
        elif (
            isinstance(anchor, ConvOp)
            and isinstance(self.first.operations[0], ConvOp)
            and machine.primitives_for(OPERATION)
            and self.first.result is self.value
        ):
            yield from self._separable()
        elif any(_name(self.second) in p.own.norms_behind_rows() for p in machine.primitives):
            yield from self._with_rows()
        else:
            self.reasons.append(
                f"no kernel has {_name(self.second)} behind {_name(self.first)}: tiles of the "
                "second one's results need more than those of the first one's"
            )

    def _object(self, kernel: KernelOp, objection: str) -> None:
        self.reasons.append(f"{_name(kernel)} and {_name(self.second)}: {objection}")

    def _on_chip(self) -> Iterator[tuple[KernelOp, Primitive]]:
        """The second kernel as a compute of its own behind the first."""
        if primitive := self._reads_on_chip():
            yield self._enclosed(self._copies(self.first, begins=True), self.first), primitive

    def _reads_on_chip(self) -> Primitive | None:
        """The second kernel's primitive, where it may be a compute that reads on the chip what the
        first kernel makes."""
        writer, reader = self.first.computes[-1][0], self.second.operations[0]
        if not isinstance(writer, Operation) or not isinstance(reader, Operation):
            return None
        writing = next(iter(serving(candidate(writer), self.machine)), None)
        reading = next(iter(serving(candidate(reader), self.machine)), None)
        if writing is None or reading is None:
            return None
        return reading if hands_on(self.machine, writing, reading) else None

    def _with_maps(self) -> Iterator[tuple[KernelOp, Primitive]]:
        """Maps behind the first kernel's own."""
        first, machine = self.first, self.machine
        if _name(first) == OPERATION and anchor_operands(first)[0] in self.second.inputs:
            image = "a map behind a pair of convolutions does not read the pair's own image"
            self.reasons.append(image)
            return
        chain = self._copies(first)
        anchor, *maps = [op for op in chain if isinstance(op, Operation)]
        steps = list(zip(chain, maps, strict=False))[len(first.operations) - 1 :]
        names = [op.operation for op in maps]
        for primitive in serving(candidate(anchor), machine):
            if primitive.accepts(names) and all(
                before.result in step.inputs and joins(step, before.result, primitive, machine)
                for before, step in steps
            ):
                yield self._enclosed(chain, first), primitive
                return
            self.reasons.append(
                f"{primitive.name} of {machine.name} does not apply {', '.join(names)}"
            )
        for op in reversed(chain):
            erase(op)

    def _with_pool(self) -> Iterator[tuple[KernelOp, Primitive]]:
        """A pool within the tiles of each method that has some."""
        first, machine = self.first, self.machine
        tiled: list[KernelOp] = [first]
        if isinstance(first.operations[0], ConvOp) and any(
            p.own.pools_within_tiles() for p in machine.primitives
        ):
            for method in list(methods_of(first, machine)):
                if method.form.tile and method.primitive.own.pools_within_tiles():
                    trial = rewritten(first, method.form, most_scratch(machine), None)
                    self.undo.callback(forget, trial)
                    tiled.append(trial)
        for trial in tiled:
            objection = pool_objection(trial, self.second, machine)
            if objection:
                self._object(trial, objection)
                continue
            for primitive in self._serving(trial):
                yield self._enclosed(self._copies(trial), trial), primitive

    def _separable(self) -> Iterator[tuple[KernelOp, Primitive]]:
        """A depthwise convolution and one of single points."""
        objection = pair_objection(self.first, self.second)
        if anchor_operands(self.second)[0] is not self.first.result:
            objection = "the second one does not read the first one's result as its image"
        if objection:
            self._object(self.first, objection)
            return
        trial = trial_pair(self.first, self.second, self.machine)
        self.undo.callback(forget_pair, trial)
        for primitive in self._serving(trial):
            yield trial, primitive

    def _with_rows(self) -> Iterator[tuple[KernelOp, Primitive]]:
        """A normalisation of rows behind a product's tiles."""
        primitive = rows_primitive(self.first, self.second, self.machine)
        if isinstance(primitive, str):
            self._object(self.first, primitive)
            return
        if anchor_operands(self.second)[0] is not self.value:
            self._object(self.first, "the result is not the rows that are normalised")
            return
        yield self._enclosed(self._copies(self.first), self.first), primitive

    def _serving(self, trial: KernelOp) -> Sequence[Primitive]:
        """The first primitive that serves a trial's anchor, if any does."""
        anchor = trial.operations[0]
        assert isinstance(anchor, Operation)
        return serving(candidate(anchor), self.machine)[:1]

    def _copies(self, first: KernelOp, *, begins: bool = False) -> list[GraphOperation]:
        """The operations of ``first``, the first kernel in some form, and of the second, in front
        of the second kernel; with ``begins`` those of the second are a compute of their own."""
        second = self.second
        chain = copied(first.operations, first, {}, second)
        behind = copied(second.operations, second, {self.value: chain[-1].result}, second)
        if begins:
            behind[0].begins = UnitAttr()
        return chain + behind

    def _enclosed(self, chain: Sequence[GraphOperation], like: KernelOp) -> KernelOp:
        trial = enclose_with(chain, like.properties)
        self.undo.callback(erase, trial)
        return trial


def _name(kernel: KernelOp) -> str:
    anchor = kernel.operations[0]
    return candidate(anchor).operation if isinstance(anchor, Operation) else anchor.name
