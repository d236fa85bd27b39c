"""Maps over whole tensors: as few loops as the layouts allow, the innermost in vectors."""

from __future__ import annotations

from tilewright.codegen.c.address import Address
from tilewright.codegen.c.meaning import AFFINE, COPIES
from tilewright.codegen.c.source import Writer, plus, total
from tilewright.targets.cpu.instance import Instance, Step
from tilewright.targets.cpu.primitives import general, masking, padding, transposing, words
from tilewright.targets.cpu.primitives.chain import (
    FLOAT_LANES,
    LANE_ELEMENTS,
    lane_suffix,
    loaded,
    splat_name,
    stored,
    write_maps,
)
from tilewright.targets.cpu.primitives.code import KernelCode, loops, write_vectors
from tilewright.targets.cpu.primitives.transposing import Run


def emit(instance: Instance, code: KernelCode, writer: Writer) -> None:
    """Write loops in vectors where all operands lie alike, else one element after another."""
    if padding.emit(instance, writer):
        return
    with masking.in_place(instance, writer):
        _map(instance, code, writer)


def _map(instance: Instance, code: KernelCode, writer: Writer) -> None:
    joined = _runs(instance)
    runs = joined if joined is not None and _straight(joined) else None
    if runs is None:
        done = in_lanes(instance) and words.emit(instance, writer)
        if not done and joined is not None:
            done = transposing.emit(instance, writer, joined)
        if not done:
            general.emit(instance, code, writer)
        return
    addresses = instance.addresses
    variables = [f"i{number}" for number in range(len(runs) - 1)]
    with writer.block():
        for number, address in enumerate(addresses):
            pointer = instance.declared(address, f"p{number}")
            writer.line(f"{pointer} = {address.first(instance.dims)};")
        counts = [(name, run.count) for name, run in zip(variables, runs, strict=False)]
        with loops(writer, counts):
            for number, address in enumerate(addresses if variables else []):
                steps = [(run.steps[number], v) for v, run in zip(variables, runs, strict=False)]
                pointer = instance.declared(address, f"q{number}")
                writer.line(f"{pointer} = {plus(f'p{number}', total(steps))};")
            prefix = "q" if variables else "p"
            pointers = {a.pointer: f"{prefix}{number}" for number, a in enumerate(addresses)}
            _innermost(writer, instance, runs[-1], pointers)


def _innermost(writer: Writer, instance: Instance, run: Run, pointers: dict[str, str]) -> None:
    lanes = instance.lanes
    steps = {
        address.pointer: step for address, step in zip(instance.addresses, run.steps, strict=True)
    }

    def body(start: str, count: int) -> None:
        def load(operand: Address) -> str:
            pointer, suffix = pointers[operand.pointer], lane_suffix(instance, operand)
            if not steps[operand.pointer]:
                return f"{splat_name(operand.element)}(*{pointer})"
            return loaded(instance, suffix, plus(pointer, start), count)

        name = write_maps(writer, instance, [], load, "t")
        place = plus(pointers[instance.output.pointer], start)
        suffix = lane_suffix(instance, instance.output)
        writer.line(stored(instance, suffix, place, name, count))

    write_vectors(writer, run.count, lanes, body, lanes)


def _runs(instance: Instance) -> list[Run] | None:
    """The loops over memory, outermost first, joined where they can be; None if there are none."""
    addresses = instance.addresses
    if not in_lanes(instance):
        return None
    accesses = {
        (a.pointer, a.window) for s in instance.steps for a in s.inputs if isinstance(a, Address)
    }
    if len(accesses) != len({pointer for pointer, _ in accesses}):
        return None  # one tensor read through two windows
    parts = _parts(instance)
    if parts is None:
        return None
    runs: list[Run] = []
    for dim, block, count in parts:
        steps: list[int] = []
        for address in addresses:
            if dim not in address.dims():
                steps.append(0)
                continue
            size = instance.size(dim)
            if block < 0:
                step = address.stride(dim, min(size, -block), instance.dims)
            elif block:
                step = address.block_stride(dim, block, size, instance.dims)
            else:
                step = address.stride(dim, size, instance.dims)
            if step is None or not all(map(all, instance.inside(address))):
                return None
            steps.append(step)
        if count > 1:
            runs.append(Run(count, tuple(steps)))
    # Outermost first: the largest step of the output first.
    runs.sort(key=lambda run: -run.steps[-1])
    joined: list[Run] = []
    for run in runs:
        if joined and all(
            outer == inner * run.count
            for outer, inner in zip(joined[-1].steps, run.steps, strict=True)
        ):
            joined[-1] = Run(joined[-1].count * run.count, run.steps)
        else:
            joined.append(run)
    if not joined:
        joined = [Run(1, tuple(1 for _ in addresses))]
    return joined


def _straight(runs: list[Run]) -> bool:
    """Return True if all operands have stride 1 where the result does, or do not change."""
    last = runs[-1].steps
    return last[-1] == 1 and all(step in (0, 1) for step in last)


def in_lanes(instance: Instance) -> bool:
    """Return True if all steps are computed on vectors."""
    return all(_in_lanes(instance, step) for step in instance.steps)


def _in_lanes(instance: Instance, step: Step) -> bool:
    """Return True if a step runs on vectors: on floats, or a map of affine quantisation."""
    elements = [*instance.elements(step), step.result.element]
    if step.operation == "cast":
        return all(element in FLOAT_LANES for element in elements)
    if step.operation in AFFINE or step.operation in COPIES:
        return all(element in LANE_ELEMENTS for element in elements)
    return all(element == "float32" for element in elements)


def _parts(instance: Instance) -> list[tuple[str, int, int]] | None:
    """(dim, block, count): a plain dim (0), blocks of a dim (b), what is in a block (-b)."""
    output = instance.output
    parts: list[tuple[str, int, int]] = []
    for axis, window in enumerate(output.window):
        if not window.terms and not window.offset:
            continue
        if len(window.terms) != 1 or window.terms[0][1] != 1 or window.offset:
            return None
        dim = window.terms[0][0]
        size = instance.size(dim)
        factors = output.axes[axis]
        if len(factors) == 1:
            block = max((f.modulus for f in output.layout.factors if f.axis == axis), default=0)
            alike = all(a.layout == output.layout for a in instance.addresses)
            theirs = _block_of(instance, dim)
            if block and alike and size == output.shape[axis]:
                # Blocks one after another: whole vectors, padding included.
                parts.append((dim, -block, -(-size // block) * block))
            elif theirs and size % theirs == 0:
                parts.append((dim, theirs, size // theirs))
                parts.append((dim, -theirs, theirs))
            else:
                parts.append((dim, 0, size))
            continue
        if len(factors) != 2:
            return None
        block = factors[0][0].modulus
        if size % block:
            alike = all(
                a.layout == output.layout or dim not in a.dims() for a in instance.addresses
            )
            # The last tile may end within a block, all of which is there.
            starts = instance.dims[dim].starts
            last = all(not s % block and s + size == output.shape[axis] for s in starts)
            if not alike or not last:
                return None
        parts.append((dim, block, -(-size // block)))
        parts.append((dim, -block, block))
    return parts


def _block_of(instance: Instance, dim: str) -> int:
    """The block in which an operand keeps a dim that the result does not; 0 if none does."""
    blocks = {
        factors[0][0].modulus
        for address in instance.addresses
        for window, factors in zip(address.window, address.axes, strict=True)
        if dim in window.dims and len(factors) == 2
    }
    return blocks.pop() if len(blocks) == 1 else 0
