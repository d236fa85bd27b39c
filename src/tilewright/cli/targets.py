"""``tilewright targets``: what can be compiled for."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tilewright.cli import console
from tilewright.system.choices import target_names


def targets(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Show the machine of this target, or of a machine file.",
            autocompletion=console.complete_target,
        ),
    ] = None,
    as_json: console.JsonOption = False,
) -> None:
    """List the targets, or show the machine of one of them or of a file.

    Example: tilewright targets cambricon-x --json

    Example: tilewright targets my-machine.toml
    """
    from tilewright.compiler.pipeline import resolve
    from tilewright.targets.base import find_target

    with console.refusals(as_json):
        if name is None:
            rows = [
                {"name": known, "description": find_target(known).description}
                for known in target_names()
            ]
            if as_json:
                console.print_json(rows)
            for row in [] if as_json else rows:
                console.say(f"{row['name']:<16} {row['description']}")
            return
        target, machine = resolve(name, None, {})
    if as_json:
        facts: dict[str, Any] = target.options()
        facts["implements"] = sorted(target.implements)
        facts["honours"] = sorted(target.honours)
        console.print_json({"name": name, "machine": machine.model_dump(mode="json")} | facts)
        return
    console.say(f"{machine.name}: {machine.description}")
    console.say(f"  clock {machine.clock_hz / 1e6:,.0f} MHz, numbers {machine.element}")
    for memory in machine.memories:
        size = "main memory" if memory.bytes is None else f"{memory.bytes:,} bytes"
        console.say(f"  memory    {memory.name:<16} {size}")
    for move in machine.moves:
        console.say(
            f"  move      {move.source} -> {move.target}: {move.bytes_per_cycle:g} bytes a cycle,"
            f" latency {move.latency}, in flight {move.in_flight}"
        )
    for engine in machine.engines:
        console.say(f"  engine    {engine.name:<16} queue of {engine.queue}")
    for primitive in machine.primitives:
        console.say(f"  primitive {primitive.name:<16} {', '.join(primitive.operations)}")
    for fusion in machine.fusions:
        console.say(f"  fusion    {fusion.name:<16} {fusion.query}")
    console.say("  implements the keys of machine files " + ", ".join(sorted(target.implements)))
    taken = ", ".join(sorted(target.honours)) or "loops alone"
    console.say(f"  takes from tile programs {taken}")
