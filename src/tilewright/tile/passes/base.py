"""The base of the tile passes."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.errors import refuse
from tilewright.ir import Context, ModuleOp, ModulePass
from tilewright.ir.passes import CompilerContext
from tilewright.machine import Machine
from tilewright.tile.dialect import ProgramOp, programs_of


def machine_of(ctx: Context) -> Machine:
    """The machine compiled for; refuses a context without one."""
    if isinstance(ctx, CompilerContext):
        return ctx.machine
    raise refuse("pass-machine", "this pass needs a machine", help="name a --target")


@dataclass(frozen=True)
class TilePass(ModulePass):
    """A pass over each tile program of a module."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Run on every program in the module."""
        machine = machine_of(ctx)
        for program in programs_of(op):
            self.run(program, machine)

    def run(self, program: ProgramOp, machine: Machine) -> None:
        """Run on one program, in place; raises TilewrightError."""
        raise NotImplementedError
