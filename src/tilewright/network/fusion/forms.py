"""The kernels that the compiler can make of a group today, or why it can make none.

A form is tried as a kernel beside the network's own, which is described for planning and erased
again. The conditions are those of the passes that make such kernels: maps after an anchor
(fuse-pointwise), and those of the passes that the machine's family brings (graph/passes/own.py);
and computes that read on the chip what others make (planning/chains/plans.py).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import pairwise

from tilewright.errors import Problem
from tilewright.graph.dialect import KernelOp
from tilewright.graph.operations.separable import SeparableConvOp
from tilewright.graph.passes.constraints import candidate, serving
from tilewright.graph.passes.editing import erase, only_user
from tilewright.graph.passes.fuse_pointwise import MAPS, joins
from tilewright.graph.passes.own import passes_of
from tilewright.graph.passes.pairs import KernelPair, Trial, name_of
from tilewright.graph.passes.points import ALIGNING
from tilewright.graph.passes.reanchoring import anchor_operands, plain_kernel, with_layouts
from tilewright.ir import SSAValue
from tilewright.machine import Machine, Primitive
from tilewright.machine.fusions import hands_on
from tilewright.numerics.element_types import ELEMENTS
from tilewright.planning.domain import Kernel, Operand


@contextmanager
def forms_of(kernels: Sequence[KernelOp], machine: Machine) -> Generator[list[Trial] | Problem]:
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
    """The reason why kernels are no chain whose results nothing else reads; None if they are."""
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
        primitive = serving(candidate(kernel.anchor), machine)[0]
    return _numbered(with_layouts(plain, machine, primitive), machine)


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
) -> Iterator[Trial]:
    """Yield the fused forms of a kernel, which computes ``value``, with the others joined to it."""
    second, *rest = others
    for trial, primitive in _Pair(first, value, second, machine, undo, reasons).forms():
        if rest:
            yield from _extended(trial, second.result, rest, machine, undo, reasons)
        else:
            yield trial, primitive


class _Pair(KernelPair):
    """The forms of a pair of kernels."""

    def forms(self) -> Iterator[Trial]:
        """The two kernels as one, with the primitive that takes it."""
        anchor = self.second.anchor
        if not isinstance(anchor, MAPS) and self.value not in anchor_operands(self.second):
            self.reasons.append(
                f"{name_of(self.second)} reads it not itself, but by a map after its results"
            )
        elif isinstance(anchor, MAPS):
            forms = list(self._with_maps())
            # Maps after the anchor read in its tiles alone, not what an earlier compute has made.
            reads = self.value in anchor_operands(self.second)
            yield from forms or (self._on_chip() if reads else ())
        elif forms := list(self._on_chip()):
            yield from forms
        elif (trials := passes_of(self.machine).pair_trials(self)) is not None:
            yield from trials
        else:
            self.reasons.append(
                f"no kernel has {name_of(self.second)} after {name_of(self.first)}: tiles of the "
                "second one's results need more than those of the first one's"
            )

    def _on_chip(self) -> Iterator[Trial]:
        """The second kernel as a compute of its own after the first."""
        if primitive := self._reads_on_chip():
            yield self.enclosed(self.copies(self.first, begins=True), self.first), primitive

    def _reads_on_chip(self) -> Primitive | None:
        """The second kernel's primitive, where it may be a compute that reads on the chip what the
        first kernel makes."""
        writer, reader = self.first.computes[-1][0], self.second.anchor
        writing = next(iter(serving(candidate(writer), self.machine)), None)
        reading = next(iter(serving(candidate(reader), self.machine)), None)
        if writing is None or reading is None:
            return None
        return reading if hands_on(self.machine, writing, reading) else None

    def _with_maps(self) -> Iterator[Trial]:
        """Yield the forms with maps after the first kernel's own."""
        first, machine = self.first, self.machine
        if (
            isinstance(first.anchor, SeparableConvOp)
            and anchor_operands(first)[0] in self.second.inputs
        ):
            image = "a map after a pair of convolutions does not read the pair's own image"
            self.reasons.append(image)
            return
        chain = self.copies(first)
        anchor, *maps = chain
        steps = list(zip(chain, maps, strict=False))[len(first.operations) - 1 :]
        names = [op.operation for op in maps]
        for primitive in serving(candidate(anchor), machine):
            if primitive.accepts(names) and all(
                before.result in step.inputs and joins(step, before.result, primitive, machine)
                for before, step in steps
            ):
                yield self.enclosed(chain, first), primitive
                return
            self.reasons.append(
                f"{primitive.name} of {machine.name} does not apply {', '.join(names)}"
            )
        for op in reversed(chain):
            erase(op)
