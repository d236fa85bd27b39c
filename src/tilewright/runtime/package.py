"""Writing packages: the reference beside the target's program, and the manifest over both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tilewright
from tilewright.codegen.program.bodies import package_bytes
from tilewright.codegen.program.buffers import buffers_of
from tilewright.codegen.program.interface import Compilation
from tilewright.graph.dialect import KernelOp, network_of, tensor_type
from tilewright.graph.passes.memory_plan import activation_bound
from tilewright.ir.types import element_dtype
from tilewright.planning import Plan
from tilewright.planning.chains.plans import compute_peak, kernels_of
from tilewright.planning.cost.balance import imbalance
from tilewright.planning.cost.limits import issue_cycles, most_blocks, move_text
from tilewright.runtime.manifest import (
    PROGRAM,
    REFERENCE,
    KernelEntry,
    Manifest,
    OutputSize,
    Tensor,
)
from tilewright.runtime.reference import packed_weights, write_reference
from tilewright.shapes.lists import NO_LISTS, Lists
from tilewright.targets.base import Target
from tilewright.tile.counts import program_energy


@dataclass(frozen=True)
class Planned:
    """The plans of a network's kernels, and of those of its loops' bodies, by symbol."""

    plans: Mapping[str, Plan]
    bodies: Mapping[str, Planned]


def write_package(
    directory: Path,
    target: Target,
    compilation: Compilation,
    planned: Planned,
    name: str,
    notes: Sequence[str],
    *,
    empty: Sequence[Tensor] = (),
    sizes: Sequence[OutputSize] = (),
    lists: Lists = NO_LISTS,
    on_chip_bound: float | None = None,
    loops: Mapping[str, tuple[int, Manifest]] | None = None,
) -> None:
    """Make a package of a directory that has the target's program.

    ``empty`` are outputs without elements, which the network does not have; ``sizes`` axes of
    outputs whose sizes a run computes; ``lists`` the model's sequences; ``on_chip_bound`` is
    the network's bound with every intermediate on the chip (network/limits.py). ``loops`` has the
    rounds of loops whose bodies are packages and their manifests, by the symbols of their kernels.
    """
    network = network_of(compilation.network)
    weights, activations = package_bytes(compilation)
    bodies = [body for _, body in (loops or {}).values()]
    program = directory / PROGRAM
    reference = directory / REFERENCE
    reference.mkdir()
    write_reference(reference, compilation, packed_weights(target, program))
    manifest = Manifest(
        tilewright=tilewright.__version__,
        target=target.name,
        machine=compilation.machine.model_dump(mode="json", exclude_none=True),
        model=name,
        element=compilation.machine.element,
        inputs=tuple(_tensor(name, value) for name, value in network.inputs),
        outputs=tuple(_tensor(name, value) for name, value in network.outputs),
        kernels=tuple(_with_loops(_entries(compilation, planned), loops or {})),
        peak_memory_bytes=weights + activations + sum(body.peak_memory_bytes for body in bodies),
        activation_bytes=activations + sum(body.activation_bytes for body in bodies),
        lower_bound_memory_bytes=weights
        + _least_activations(compilation)
        + sum(body.lower_bound_memory_bytes for body in bodies),
        on_chip_bound=on_chip_bound,
        host_seconds=sum(compilation.host_seconds.values()) if compilation.machine.host else None,
        notes=tuple(notes),
        empty_outputs=tuple(empty),
        output_sizes=tuple(sizes),
        lists=lists,
        runs=target.runs,
    )
    manifest.write(directory)


def _least_activations(compilation: Compilation) -> int:
    """The least bytes that the activations of a network need, with those of a loop's body."""
    inner = [_least_activations(loop.body) for loop in compilation.loops.values()]
    return activation_bound(network_of(compilation.network)) + max(inner, default=0)


def _tensor(name: str, value: Any) -> Tensor:
    kind = tensor_type(value)
    return Tensor(name=name, shape=kind.get_shape(), dtype=str(element_dtype(kind.element_type)))


def _with_loops(
    rows: Sequence[KernelEntry], loops: Mapping[str, tuple[int, Manifest]]
) -> list[KernelEntry]:
    """The rows, with those of a loop's body in the place of the loop."""
    every: list[KernelEntry] = []
    for row in rows:
        if row.name not in loops:
            every.append(row)
            continue
        rounds, body = loops[row.name]
        every += [entry.of_rounds(rounds, row.name) for entry in body.kernels]
    return every


def _entries(compilation: Compilation, planned: Planned) -> list[KernelEntry]:
    """The manifest's rows of kernels; a loop that the program runs itself is one of them."""
    rows: list[KernelEntry] = []
    numbered = enumerate(network_of(compilation.network).block.ops)
    places = {op.symbol.data: (n, op) for n, op in numbered if isinstance(op, KernelOp)}
    for item in compilation.kernels:
        symbol = item.kernel.symbol
        number, op = places[symbol]
        if (loop := compilation.loops.get(symbol)) is not None:
            body = _entries(loop.body, planned.bodies[symbol])
            rows.append(KernelEntry.of_loop(symbol, item.kernel.nodes, loop.rounds, body))
            continue
        if item.schedule is None:
            rows.append(
                KernelEntry(
                    name=symbol,
                    nodes=item.kernel.nodes,
                    engine="host",
                    reason=op.told_reason,
                    host_seconds=compilation.host_seconds.get(number),
                )
            )
            continue
        kernel_plan = planned.plans[symbol]
        blocks = most_blocks(item.kernel, compilation.machine, kernel_plan.schedule)
        rows.append(
            KernelEntry(
                name=symbol,
                nodes=item.kernel.nodes,
                engine="accelerator",
                schedule=str(kernel_plan.schedule),
                predicted_cycles=kernel_plan.cycles,
                physical_bound=kernel_plan.physical_bound,
                granule_bound=kernel_plan.granule_bound,
                moved_bytes=kernel_plan.moved_bytes,
                candidates=kernel_plan.candidates,
                complete=kernel_plan.complete,
                slow_move=move_text(item.kernel, compilation.machine, kernel_plan.schedule),
                blocks="" if blocks is None else str(blocks),
                block_cycles=0 if blocks is None else blocks.cycles,
                issue_cycles=issue_cycles(item.kernel, compilation.machine, kernel_plan.schedule),
                unbalanced=imbalance(item.kernel, compilation.machine, kernel_plan.schedule),
                operations=sum(unit.anchor.iterations for unit in kernels_of(item.kernel)),
                peak_cycles=compute_peak(item.kernel, compilation.machine, kernel_plan.schedule),
                energy_pj=program_energy(item.programs, compilation.machine),
                buffers=buffers_of(item.programs),
            )
        )
    return rows
