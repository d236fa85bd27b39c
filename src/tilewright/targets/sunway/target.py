"""The target object that the entry point names."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tilewright.codegen.program.interface import WEIGHTS_FILE, Compilation, Runner
from tilewright.errors import refuse
from tilewright.machine import Machine
from tilewright.machine.capabilities import Capability
from tilewright.planning import Ask
from tilewright.planning.planners.by_node import ByNode
from tilewright.planning.planners.registry import planner_of
from tilewright.planning.space.mesh import Mesh
from tilewright.targets.base import Target, sources_text
from tilewright.targets.sunway.chip import CHIP, ChipPlans, group_machine
from tilewright.targets.sunway.emit.package import write_package
from tilewright.targets.sunway.machine import CPES, LDM_BYTES, MACHINE
from tilewright.targets.sunway.mesh import MESH
from tilewright.targets.sunway.plans import Plans
from tilewright.targets.sunway.runner import SunwayRunner


class SunwayTarget(Target):
    """C for one core group of SW26010, which the host runs through a shim of its interface."""

    name = "sunway"
    description = "athread C for one core group of SW26010, run on the host through a shim"
    family = "sunway"
    implements = frozenset(
        {
            *(Capability.CORES, Capability.ISSUE_CYCLES, Capability.SYNCHRONISATION),
            Capability.ISSUER,
            *(Capability.EFFICIENCY, Capability.TRANSACTION, Capability.IN_FLIGHT),
            *(Capability.EPILOGUE_ANY, Capability.MEMORY_GROWTH),
        }
    )
    falls_back = True
    writes_loops = True
    weights_file = WEIGHTS_FILE

    def mesh(self) -> Mesh | None:
        """The CPEs' rows and columns."""
        return MESH

    def machine(self) -> Machine:
        """Return the machine of one core group."""
        return MACHINE

    @contextmanager
    def planner(
        self, text: str, machine: Machine, database: str | Path | None = None
    ) -> Generator[Ask | None]:
        """The planner that a text names; by default whichever is faster, with registers that CPEs
        exchange or without."""
        if text == "model" and database is None and machine.cores == MESH.cores:
            yield Plans(machine, MESH)
            return
        with super().planner(text, machine, database) as asked:
            if isinstance(asked, ByNode) and machine.cores == MESH.cores:
                yield replace(asked, otherwise=Plans(machine, MESH))
            else:
                yield asked

    def check_machine(self, machine: Machine, source: str = "") -> None:
        """Refuse a machine that no core group is: more than 64 CPEs, or more than 64 KB of LDM."""
        super().check_machine(machine, source)
        names = {memory.name for memory in machine.memories}
        if names != {machine.main, "ldm"}:
            raise refuse("sunway-machine", "has one memory beside the main one, ldm", machine.name)
        self.check_cores(machine)
        if machine.synchronisation != MACHINE.synchronisation:
            reason = "a CPE gives all commands, and waits for reply words"
            raise refuse("sunway-machine", reason, "synchronisation", "leave it out")
        if (machine.memory("ldm").bytes or 0) > LDM_BYTES:
            reason = f"a CPE has {LDM_BYTES} bytes of LDM"
            raise refuse("sunway-machine", reason, "memory.ldm.bytes")

    def check_cores(self, machine: Machine) -> None:
        """Refuse more CPEs than there are."""
        if machine.cores > CPES:
            reason = f"{machine.cores} cores; a core group has {CPES} CPEs"
            raise refuse("sunway-machine", reason, "cores", f"cores = {CPES} at most")

    def listing(self, directory: Path) -> str:
        """The C of the MPE and of the CPEs."""
        return sources_text(directory, "main.c", "layers/*.c")

    def emit(self, compilation: Compilation, directory: Path) -> None:
        """Write the C of the network, the shim, and its weights."""
        write_package(compilation, directory)

    def load(self, directory: Path) -> Runner:
        """A runner that builds the package with the shim."""
        return SunwayRunner(directory)


class ChipTarget(SunwayTarget):
    """C for all four core groups: a thread of the MPEs for each, which meet after every layer."""

    name = "sunway-chip"
    description = "athread C for the four core groups of SW26010, run on the host through a shim"

    def mesh(self) -> None:
        """Return None, the mesh that plans may use: CPEs of different core groups exchange no
        registers."""

    def machine(self) -> Machine:
        """All four core groups."""
        return CHIP

    def check_cores(self, machine: Machine) -> None:
        """Refuse anything but whole core groups."""
        if machine.cores != CHIP.cores:
            reason = f"{machine.cores} cores; four core groups have {CHIP.cores} CPEs"
            raise refuse("sunway-machine", reason, "cores", f"cores = {CHIP.cores}, or sunway")

    @contextmanager
    def planner(
        self, text: str, machine: Machine, database: str | Path | None = None
    ) -> Generator[Ask | None]:
        """The planner that a text names plans for one core group; its plans are divided."""
        with planner_of(text, group_machine(machine), database=database) as asked:
            yield ChipPlans(machine, asked)
