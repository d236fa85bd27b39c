"""The target ``ascend910b``: text in HIVM, which AscendNPU-IR's tools read.

There is no host core for it: packages hold text, and nothing here runs them.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from tilewright.codegen.c.source import comment
from tilewright.codegen.program.files import compiled_steps
from tilewright.codegen.program.interface import Compilation, Runner
from tilewright.errors import Refusals, refuse
from tilewright.graph.dialect import KernelOp
from tilewright.machine import Machine
from tilewright.machine.capabilities import Capability
from tilewright.targets.ascend.hivm.emit import function_name, function_text
from tilewright.targets.ascend.hivm.machine import machine_910b
from tilewright.targets.base import Target
from tilewright.tile.decisions import Decision

FILE = "kernels.mlir"


class Ascend910bTarget(Target):
    """Cube and vector cores of an Ascend 910B: a module of functions in HIVM."""

    name = "ascend910b"
    description = "a cube core and a vector core of an Ascend 910B: text in HIVM, for other tools"
    falls_back = True
    runs = False
    elements = ("float16",)
    implements = frozenset({Capability.TRANSACTION, Capability.IN_FLIGHT})
    honours = frozenset({Decision.ORDER, Decision.SLOTS})
    """The vendor's tools place buffers and synchronise pipes."""
    levels: ClassVar = {**Target.levels, "ascend": "graph", "cce": "tile", "hivm": "program"}

    def machine(self) -> Machine:
        """One core of each kind."""
        return machine_910b()

    def emit(self, compilation: Compilation, directory: Path) -> None:
        """Write kernels.mlir; raises KernelError for kernels that the dialect cannot say here."""
        functions: list[str] = []
        refused = Refusals()
        for _, op, compiled in compiled_steps(compilation):
            if compiled is None or compiled.program is None:
                if isinstance(op, KernelOp):
                    reason = op.told_reason or "a copy"
                    functions.append(f"  // {op.symbol.data} runs on the host: {comment(reason)}")
                continue
            (program,) = compiled.programs
            with refused.of(compiled.kernel.symbol):
                functions.append(function_text(program, function_name(compiled.kernel.symbol)))
        refused.check()
        text = "\n".join(["module {", *functions, "}"])
        (directory / FILE).write_text(f"{text}\n")

    def listing(self, directory: Path) -> str:
        """Return the text of the package's module."""
        return (directory / FILE).read_text()

    def load(self, directory: Path) -> Runner:
        """Refuse: nothing here executes HIVM."""
        raise refuse(
            "target-text",
            f"packages for {self.name} hold text for other tools, which is not run here",
            self.name,
            "tilewright compile --emit hivm prints it; ascend910 runs on the host",
        )
