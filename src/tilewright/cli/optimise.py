"""Running named passes on text, in the manner of mlir-opt: ``tilewright opt``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tilewright.compiler.pipeline import resolve
from tilewright.errors import Problem, TilewrightError, choose, refuse
from tilewright.graph.operations import context as graph_context
from tilewright.graph.passes import PASSES as GRAPH_PASSES
from tilewright.graph.passes.own import own_passes
from tilewright.graph.weights import Weights
from tilewright.ir import (
    DiagnosticException,
    ModulePass,
    ParseError,
    Parser,
    PassPipeline,
    VerifyException,
    to_text,
)
from tilewright.ir.passes import CompilerContext, PassEntry, PassRunner
from tilewright.machine import Machine
from tilewright.system.choices import target_names
from tilewright.targets.base import Target
from tilewright.tile.decisions import Decision
from tilewright.tile.dialect import ProgramOp, programs_of
from tilewright.tile.dialect import context as tile_context
from tilewright.tile.machine_parts import absent_parts
from tilewright.tile.passes import PASSES as TILE_PASSES
from tilewright.tile.passes.base import TilePass
from tilewright.tile.passes.check import Check

MOST_CHARACTERS = 64 << 20
"""Longest text that is read."""


SHARED_PASSES: dict[str, type[ModulePass]] = {**GRAPH_PASSES, **TILE_PASSES}
"""The passes that any machine may need, by name: graph and tile."""


def all_passes() -> dict[str, type[ModulePass]]:
    """Every pass by its name: those for any machine, and those that bundled machines bring."""
    passes = dict(SHARED_PASSES)
    for name in target_names():
        with suppress(TilewrightError):  # A target that needs a machine file brings none.
            passes |= own_passes(resolve(name)[1])
    return passes


@dataclass(frozen=True)
class _CheckOf(TilePass):
    """Checks of each program what a target takes from it."""

    name = "check"
    target: Target

    def run(self, program: ProgramOp, machine: Machine) -> None:
        """Check one program; raises TilewrightError."""
        Check(waits=Decision.WAITS in self.target.honours).run(program, machine)


def optimise_text(
    text: str,
    passes: str,
    target: str = "cambricon-x",
    *,
    values: Mapping[str, float] | None = None,
    weights: Path | None = None,
    name: str = "text",
) -> str:
    """Parse a module, run ``passes`` (``name,name{option=1}``), verify and print it.

    ``name`` is the text's in messages. Raises TilewrightError with the line and column of a syntax
    error, and for unknown passes.
    """
    if len(text) > MOST_CHARACTERS:
        raise refuse("text-too-large", f"more than {MOST_CHARACTERS} characters")
    device, machine = resolve(target, None, values)
    context = CompilerContext(machine, None if weights is None else Weights.load(weights))
    for source in (graph_context(), tile_context()):
        for dialect in source.loaded_dialects:
            if dialect.name not in {known.name for known in context.loaded_dialects}:
                context.load_dialect(dialect)
    try:
        module = Parser(context, text, name).parse_module()
        module.verify()
    except (ParseError, VerifyException, DiagnosticException) as error:
        raise refuse("text-invalid", str(error)) from error
    except RecursionError as error:
        raise refuse("text-invalid", "regions are nested too deeply") from error
    known = {**SHARED_PASSES, **own_passes(machine)}
    try:
        available = {
            name: (lambda pass_class=pass_class: pass_class) for name, pass_class in known.items()
        }
        steps = PassPipeline.parse_spec(available, passes).passes if passes else ()
    except Exception as error:  # xDSL raises bare exceptions for pass specifications
        unknown = next((name for name in re.findall(r"[\w-]+", passes) if name not in known), "")
        help = choose(unknown, sorted(known))
        raise refuse("pass-unknown", str(error), passes, help) from error
    steps = tuple(_CheckOf(device) if isinstance(step, Check) else step for step in steps)
    absent = [
        Problem("tile-machine", part.reason, program.symbol.data, part.help)
        for program in (programs_of(module) if steps else ())
        for part in absent_parts(program, machine)
    ]
    if absent:
        raise TilewrightError(absent)
    runner = PassRunner(context)
    runner.run(module, [PassEntry(step, "asked for") for step in steps])
    return to_text(module)
