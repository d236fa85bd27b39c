"""Kernels that a target cannot plan or lower run on the host: the pipeline runs again from there.

A network is kept as it is once its kernels are formed and calibrated. When a later stage, or the
target's ``emit``, refuses a kernel, the later stages run again on a copy of it: numbers, layouts
and places in memory depend on which engine has which kernel. A kernel that was formed is marked
there as the host's, with the reason; one that a pass inserted later (a copy to another layout, a
view that moves data) is not in it yet, so the pass is told when it inserts it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set

from tilewright.compiler.state import CompilationState, Formed, context_of, reason_of
from tilewright.errors import KernelError
from tilewright.graph.dialect import KernelOp, network_of
from tilewright.ir import SSAValue, StringAttr
from tilewright.ir.types import shape_of

OTHER_CODES = (
    *("option-", "space-", "target-", "machine-", "tuning-", "cache-"),
    *("file-", "input-", "output-", "system-", "package-", "weights-", "cpu-"),
)
"""The first words of codes of refusals of an option or a file, not of the kernel at hand: without
that kernel the next would be refused for the same."""


def remember(state: CompilationState) -> None:
    """Keep the network as it is for ``give_to_host``, where the target has a use for it."""
    if state.target.falls_back:
        weights = state.weights.subset(state.weights)
        state.formed = Formed(
            state.network.clone(), weights, state.runner.context, len(state.notes)
        )


def give_to_host(state: CompilationState, error: KernelError) -> None:
    """Go back to the formed network, with the refused kernels on the host.

    Raises a refusal for which that does not help: the target has no host, the host has the kernel
    already, or no kernel is at fault.
    """
    formed = state.formed
    if formed is None:
        raise error
    refusals = (error, *error.others)
    for refusal in refusals:
        if refusal.problems[0].code.startswith(OTHER_CODES):
            raise refusal
    inserted = state.runner.context.inserted
    # What passes inserted is there for kernels that may be the host's by then: judged again.
    original = [refusal for refusal in refusals if refusal.symbol not in inserted]
    if original:
        _refuse_formed(state, formed, original)
    else:
        for refusal in refusals:
            if inserted[refusal.symbol] in state.refused:
                raise refusal
        state.refused |= {inserted[refusal.symbol]: refusal.problems[0] for refusal in refusals}
    inserted.clear()
    state.network = formed.network.clone()
    for op in network_of(state.network).block.ops:
        if isinstance(op, KernelOp) and (problem := state.refused.get(op.symbol.data)) is not None:
            op.engine = StringAttr("host")
            op.reason = StringAttr(reason_of(problem))
    state.weights = formed.weights.subset(formed.weights)
    state.runner.context = context_of(state, formed.context.ranges)
    del state.notes[formed.notes :]
    state.kernels.clear()
    state.plans, state.staying = {}, ()


def _refuse_formed(
    state: CompilationState, formed: Formed, refusals: Sequence[KernelError]
) -> None:
    """Note the refusals of kernels that were formed, or of steps of their methods."""
    as_formed = {op.symbol.data: op for op in network_of(formed.network).kernels}
    now = {op.symbol.data: op for op in network_of(state.network).kernels}
    on_machine = {name for name, op in as_formed.items() if not op.on_host} - state.refused.keys()
    for refusal in refusals:
        kernel, symbols = now.get(refusal.symbol), {refusal.symbol}
        if kernel is not None and refusal.symbol not in as_formed:
            symbols = _readers(kernel.results, as_formed.keys())
        symbols &= on_machine
        if not symbols:
            raise refusal
        for symbol in sorted(symbols):
            # A chain and the last step of a method have the name of a kernel that the machine may
            # well compute alone.
            changed = kernel is not None and (
                refusal.symbol != symbol or _is_changed(kernel, as_formed[symbol])
            )
            reasons = state.apart if changed and symbol not in state.apart else state.refused
            reasons[symbol] = refusal.problems[0]


def _is_changed(kernel: KernelOp, as_formed: KernelOp) -> bool:
    """Return True if a kernel computes something else than the one of its name that was formed."""
    anchors = [each.anchor for each in (kernel, as_formed)]
    now, formed = [(op.name, *map(shape_of, op.inputs)) for op in anchors]
    return len(kernel.computes) > 1 or now != formed


def _readers(values: Iterable[SSAValue], formed: Set[str]) -> set[str]:
    """Names of the nearest kernels after values that are as they were formed.

    The last step of a method has the name of the kernel whose method it is.
    """
    symbols: set[str] = set()
    for value in values:
        for op in [use.operation for use in value.uses]:
            if isinstance(op, KernelOp) and op.symbol.data in formed:
                symbols.add(op.symbol.data)
            else:
                symbols |= _readers(op.results, formed)
    return symbols
