"""Maps of tensors that lie side by side along different axes: squares of vectors, turned over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.codegen.c.address import Address
from tilewright.codegen.c.source import Writer, plus, total
from tilewright.targets.cpu.instance import Instance
from tilewright.targets.cpu.primitives.chain import (
    lane_suffix,
    lane_type,
    loaded,
    splat_name,
    stored,
    write_maps,
)
from tilewright.targets.cpu.primitives.code import loops


@dataclass(frozen=True)
class Run:
    """A loop over memory: its count, and each operand's step (the output's last)."""

    count: int
    steps: tuple[int, ...]


@dataclass(frozen=True)
class _Square:
    """The two loops of a square: along the result's lanes, and along those of other operands."""

    along: Run
    across: Run
    turned: tuple[bool, ...]
    """For each address whether it lies side by side across."""


def emit(instance: Instance, writer: Writer, runs: Sequence[Run]) -> bool:
    """Write the loops if the operands lie along two axes; whether they do."""
    square = _square(instance, runs)
    if square is None:
        return False
    lanes, addresses = instance.lanes, instance.addresses
    outer = [run for run in runs if run not in (square.along, square.across)]
    counts = [(f"i{number}", run.count) for number, run in enumerate(outer)]
    with writer.block(), loops(writer, counts):
        for number, address in enumerate(addresses):
            pointer = instance.declared(address, f"p{number}")
            base = address.first(instance.dims)
            moved = total([(run.steps[number], f"i{n}") for n, run in enumerate(outer)])
            writer.line(f"{pointer} = {plus(base, moved)};")
        full, rest = divmod(square.across.count, lanes)
        wide, narrow = divmod(square.along.count, lanes)
        for start, end, tall in (
            (0, full * lanes, True),
            (full * lanes, full * lanes + rest, False),
        ):
            if start == end:
                continue
            step = lanes if tall else 1
            with writer.block(f"for (long b = {start}; b < {end}; b += {step})"):
                if wide:
                    with writer.block(f"for (long a = 0; a < {wide * lanes}; a += {lanes})"):
                        _tile(writer, instance, square, "a", lanes, tall)
                if narrow:
                    with writer.block():
                        writer.line(f"const long a = {wide * lanes};")
                        _tile(writer, instance, square, "a", narrow, tall)
    return True


def _tile(
    writer: Writer, instance: Instance, square: _Square, a: str, count: int, tall: bool
) -> None:
    """A square of vectors, or (not ``tall``) one vector of it; ``count`` lanes are there."""
    addresses, lanes = instance.addresses, instance.lanes
    along, across = square.along.steps, square.across.steps
    numbers = {address.pointer: number for number, address in enumerate(addresses)}
    for number, address in enumerate(addresses[:-1]):
        if tall and square.turned[number]:
            suffix = lane_suffix(instance, address)
            rows = total([(along[number], f"({a} + u)")])
            writer.line(f"vec v{number}[{lanes}] = {{{{0}}}};")
            writer.line(
                f"UNROLL for (int u = 0; u < {count}; u++) "
                f"v{number}[u] = (vec)load{suffix}(p{number} + {rows} + b);"
            )
            writer.line(f"transpose_v(v{number});")

    def load(operand: Address) -> str:
        number = numbers[operand.pointer]
        suffix = lane_suffix(instance, operand)
        if tall and square.turned[number]:
            return f"({lane_type(operand.element)})v{number}[u]"
        down = total([(across[number], "(b + u)" if tall else "b")])
        place = plus(f"p{number}", down)
        if square.turned[number]:
            place = plus(place, total([(along[number], a)]))
            return f"gather{suffix}({place}, {along[number]}, {count})"
        if not along[number]:
            return f"{splat_name(operand.element)}(*({place}))"
        return loaded(instance, suffix, plus(place, a), count)

    head = f"UNROLL for (int u = 0; u < {lanes}; u++)" if tall else ""
    with writer.block(head):
        name = write_maps(writer, instance, [], load, "t")
        last = len(addresses) - 1
        place = plus(f"p{last}", total([(across[last], "(b + u)" if tall else "b"), (1, a)]))
        suffix = lane_suffix(instance, instance.output)
        writer.line(stored(instance, suffix, place, name, count))


def _square(instance: Instance, runs: Sequence[Run]) -> _Square | None:
    """The loops along which the result and the other operands lie; None if there are not two."""
    along = next((run for run in runs if run.steps[-1] == 1), None)
    if along is None or along.count < instance.lanes:
        return None
    others = [step not in (0, 1) for step in along.steps]
    turned = [number for number, other in enumerate(others) if other]
    across = next(
        (run for run in runs if run is not along and all(run.steps[n] == 1 for n in turned)), None
    )
    if not turned or across is None or across.count < instance.lanes:
        return None
    return _Square(along, across, tuple(others))
