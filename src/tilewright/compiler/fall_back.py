"""Kernels that a target cannot plan or lower run on the host: the pipeline runs again from there.

A network is kept as it is once its kernels are formed and calibrated. When a later stage, or the
target's ``emit``, refuses a kernel, that kernel is marked as the host's in a copy of it, with the
reason, and the stages behind run again: numbers, layouts and places in memory depend on it.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.compiler.state import CompilationState, Formed, context_of
from tilewright.errors import KernelError, Problem
from tilewright.graph.dialect import KernelOp, network_of
from tilewright.ir import Operation as AnyOperation
from tilewright.ir import SSAValue, StringAttr

KERNEL_CODES = ("plan-", "schedule-", "layout-", "tile-", "lower-", "isa-")
"""What the codes of refusals begin with that are of a kernel on a machine, not of an option."""


def remember(state: CompilationState) -> None:
    """Keep the network as it is for ``fall_back``, where the target has a use for it."""
    if state.target.falls_back:
        weights = state.weights.subset(state.weights)
        state.formed = Formed(
            state.network.clone(), weights, state.runner.context, len(state.notes)
        )


def give_to_host(state: CompilationState, error: KernelError) -> None:
    """Go back to the formed network, with the refused kernels on the host.

    Raises the refusal of a kernel for which that does not help: the target has no host, or the
    host has the kernel already.
    """
    formed = state.formed
    if formed is None:
        raise error
    as_formed = [op for op in formed.network.walk() if isinstance(op, KernelOp)]
    kernels = {op.symbol.data for op in as_formed}
    hosted = {op.symbol.data for op in as_formed if op.on_host}
    chains = {
        op.symbol.data
        for op in state.network.walk()
        if isinstance(op, KernelOp) and len(op.computes) > 1
    }
    # What passes inserted is there for kernels that may be the host's by then: judged again.
    others = [other for other in error.others if other.symbol in kernels]
    for refusal in (error, *others):
        problem = refusal.problems[0]
        symbols = {refusal.symbol} & kernels or _neighbours(state, refusal.symbol, kernels, hosted)
        symbols -= state.refused.keys()
        if not symbols or not problem.code.startswith(KERNEL_CODES):
            raise refusal
        # A chain has the name of its last kernel, which the machine may well compute alone.
        reasons = state.apart if refusal.symbol in chains else state.refused
        reasons |= dict.fromkeys(sorted(symbols), problem)
    state.network = formed.network.clone()
    for op in network_of(state.network).block.ops:
        if isinstance(op, KernelOp) and (problem := state.refused.get(op.symbol.data)) is not None:
            op.engine = StringAttr("host")
            op.reason = StringAttr(_reason(problem))
    state.weights = formed.weights.subset(formed.weights)
    state.runner.context = context_of(state, formed.context.ranges)
    del state.notes[formed.notes :]
    state.kernels.clear()
    state.plans, state.held, state.staying = {}, {}, ()


def _neighbours(
    state: CompilationState, symbol: str, kernels: set[str], hosted: set[str]
) -> set[str]:
    """Of the kernels as they were formed, those that read what a later pass inserted.

    A copy to another layout is no kernel of the formed network; it is there because a kernel of the
    machine reads it, or else because a kernel wrote what it copies.
    """
    copies = [op for op in state.network.walk() if isinstance(op, KernelOp)]
    copy = next((op for op in copies if op.symbol.data == symbol), None)
    if copy is None:
        return set()
    on_machine = kernels - state.refused.keys() - hosted

    def reached(values: Iterable[SSAValue], *, readers: bool) -> set[str]:
        """Names of the nearest kernels of the machine behind values, or before them."""
        symbols: set[str] = set()
        for value in values:
            owners = [value.owner] if isinstance(value.owner, AnyOperation) else []
            for op in [use.operation for use in value.uses] if readers else owners:
                if isinstance(op, KernelOp) and op.symbol.data in kernels:
                    symbols |= {op.symbol.data} & on_machine
                else:
                    symbols |= reached(op.results if readers else op.operands, readers=readers)
        return symbols

    return reached(copy.results, readers=True) or reached(copy.operands, readers=False)


def _reason(problem: Problem) -> str:
    """A refusal as the reason why a kernel is on the host."""
    hint = f" ({problem.help})" if problem.help else ""
    return f"{problem.reason} [{problem.code}]{hint}"
