"""Two kernels that may be computed as one, in a trial that stands beside them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from tilewright.graph.dialect import KernelOp
from tilewright.graph.operations import Operation
from tilewright.graph.passes.constraints import candidate, serving
from tilewright.graph.passes.editing import erase
from tilewright.graph.passes.enclosing import copied, enclose_with
from tilewright.ir import SSAValue, UnitAttr
from tilewright.machine import Machine, Primitive

Trial = tuple[KernelOp, Primitive]
"""A kernel that computes a group, and the primitive that takes it."""


@dataclass(frozen=True)
class KernelPair:
    """Two kernels, of which the second reads ``value``, the first one's result."""

    first: KernelOp
    value: SSAValue
    second: KernelOp
    machine: Machine
    undo: ExitStack
    """The stack that erases the trials."""
    reasons: list[str]
    """Reasons why there are no forms."""

    def refuse(self, kernel: KernelOp, objection: str) -> None:
        """Note why the first kernel, in some form, and the second are not one."""
        self.reasons.append(f"{name_of(kernel)} and {name_of(self.second)}: {objection}")

    def serving(self, trial: KernelOp) -> Sequence[Primitive]:
        """The first primitive that serves a trial's anchor, if any does."""
        return serving(candidate(trial.anchor), self.machine)[:1]

    def copies(self, first: KernelOp, *, begins: bool = False) -> list[Operation]:
        """The operations of ``first``, the first kernel in some form, and of the second, inserted
        before the second kernel; with ``begins`` those of the second are a compute of their own."""
        second = self.second
        chain = copied(first.operations, first, {}, second)
        copies = copied(second.operations, second, {self.value: chain[-1].result}, second)
        if begins:
            copies[0].begins = UnitAttr()
        return chain + copies

    def enclosed(self, chain: Sequence[Operation], like: KernelOp) -> KernelOp:
        """A trial of operations, with the properties of a kernel."""
        trial = enclose_with(chain, like.properties)
        self.undo.callback(erase, trial)
        return trial


def name_of(kernel: KernelOp) -> str:
    """The name of the operation that a kernel is planned by."""
    return candidate(kernel.anchor).operation
