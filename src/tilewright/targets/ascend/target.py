"""The targets ``ascend910`` and ``ascend310``."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from tilewright.codegen.program.interface import Compilation, Runner
from tilewright.errors import refuse
from tilewright.machine import Machine, Synchronisation
from tilewright.machine.capabilities import Capability
from tilewright.planning import Ask
from tilewright.targets.ascend.grids import GridPlans
from tilewright.targets.ascend.machine import ASCEND_910, MOST_EVENTS, DaVinci
from tilewright.targets.ascend.network import chip_machine
from tilewright.targets.ascend.package import FOLDER, read_package, write_package
from tilewright.targets.ascend.runner import AscendRunner
from tilewright.targets.base import Target


class AscendTarget(Target):
    """DaVinci cores: CCE C, run on a host core, block by block."""

    falls_back = True
    sizes_taken = 1
    elements = ("float16",)
    family = "ascend"
    kernels_overlap = False
    implements = frozenset(
        {
            *(Capability.TRANSACTION, Capability.IN_FLIGHT, Capability.CORES, Capability.ELEMENT),
            *(Capability.AT_STORE, Capability.FILLS, Capability.STALLS),
            Capability.SYNCHRONISATION,
        }
    )
    # The thesis's three dialects (section 6.3) are the three representations on such a core.
    levels: ClassVar = {**Target.levels, "ascend": "graph", "cce": "tile", "hivm": "program"}

    def __init__(self, core: DaVinci = ASCEND_910) -> None:
        self.name = core.name
        self.core = core
        self.description = f"{core.description}: CCE C, run on the host"

    def machine(self) -> Machine:
        """The machine of all cores."""
        return chip_machine(self.core)

    def check_machine(self, machine: Machine, source: str = "") -> None:
        """Refuse pipes that wait for anything but flags, or for more than ``set_flag`` names."""
        super().check_machine(machine, source)
        asked = machine.synchronisation
        if asked != Synchronisation(style="flags", ids=asked.count, stalls=False):
            reason = "pipes set flags, which are up or down, and wait for them"
            raise refuse("ascend-machine", reason, "synchronisation", "leave all but ids out")
        if asked.count > MOST_EVENTS:
            reason = f"{asked.count} events; set_flag names {MOST_EVENTS}"
            raise refuse("ascend-machine", reason, "synchronisation.ids")

    @contextmanager
    def planner(
        self, text: str, machine: Machine, database: str | Path | None = None
    ) -> Generator[Ask | None]:
        """The planner that a text names; what kernels of the vector unit the cost model plans have
        the grids that they take (grids.py)."""
        with super().planner(text, machine, database) as asked:
            yield GridPlans(machine, asked)

    def emit(self, compilation: Compilation, directory: Path) -> None:
        """Write the kernels' C, the launches and the graph; see package.py."""
        write_package(compilation, directory)

    def listing(self, directory: Path) -> str:
        """The C of all kernels."""
        return "\n".join(path.read_text() for path in sorted((directory / FOLDER).glob("*.c")))

    def takes_loops(self, machine: Machine) -> bool:
        """The host runs the rounds."""
        del machine
        return True

    def load(self, directory: Path) -> Runner:
        """A runner on the host core."""
        return AscendRunner(*read_package(directory))
