"""Kernels without names: what two kernels must share to be planned alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilewright.planning.domain import Kernel, Operand, Stage
from tilewright.planning.schedule import Schedule


def canonical(kernel: Kernel, *, meaning: bool = False) -> tuple[Kernel, dict[str, str]]:
    """The kernel without what planning does not look at, and its operand names to the new ones.

    Dropped are symbols and node names and, without ``meaning``, stage attributes and binary points;
    operands are numbered in order of appearance. With ``meaning``, kernels of one form compute the
    same function.
    """
    names: dict[str, str] = {}
    return _canonical(kernel, names, meaning), names


def _canonical(kernel: Kernel, names: dict[str, str], meaning: bool) -> Kernel:
    def operand(old: Operand) -> Operand:
        name = names.setdefault(old.name, f"operand{len(names)}")
        return replace(old, name=name, fraction=old.fraction if meaning else 0)

    stages: list[Stage] = []
    for stage in kernel.stages:
        inputs = tuple(operand(read) for read in stage.inputs)
        attributes = stage.attributes if meaning else ()
        stages.append(Stage(stage.operation, stage.dims, inputs, operand(stage.output), attributes))
    producers = tuple(_canonical(producer, names, meaning) for producer in kernel.producers)
    return Kernel("", tuple(stages), first=kernel.first, producers=producers)


def renamed(schedule: Schedule, names: Mapping[str, str]) -> Schedule:
    """The schedule with its operands' names replaced."""
    buffers = tuple((names[name], slots) for name, slots in schedule.buffers)
    staged = tuple((names[name], memory, slots) for name, memory, slots in schedule.staged)
    exchanged = tuple((names[name], axis) for name, axis in schedule.exchanged)
    homes = tuple((names[name], memory) for name, memory in schedule.homes)
    producers = tuple(renamed(producer, names) for producer in schedule.producers)
    kept = tuple((names[name], ahead) for name, ahead in schedule.kept)
    return replace(
        schedule,
        buffers=buffers,
        staged=staged,
        exchanged=exchanged,
        homes=homes,
        producers=producers,
        kept=kept,
        stays=tuple(replace(item, operand=names[item.operand]) for item in schedule.stays),
    )
