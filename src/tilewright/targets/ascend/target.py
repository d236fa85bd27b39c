"""The targets ``ascend910`` and ``ascend310``."""

from __future__ import annotations

from pathlib import Path

from tilewright.machine import Machine
from tilewright.machine.capabilities import Capability
from tilewright.targets.ascend.machine import ASCEND_910, DaVinci
from tilewright.targets.ascend.network import network_machine
from tilewright.targets.ascend.package import read_package, write_package
from tilewright.targets.ascend.runner import AscendRunner
from tilewright.targets.base import Compilation, Runner, Target


class AscendTarget(Target):
    """A DaVinci core: CCE C, run on a host core."""

    falls_back = True
    elements = ("float16",)
    implements = frozenset({Capability.TRANSACTION, Capability.IN_FLIGHT})

    def __init__(self, core: DaVinci = ASCEND_910) -> None:
        self.name = core.name
        self.core = core
        self.description = f"{core.description}: CCE C, run on the host"

    def machine(self) -> Machine:
        """The core's machine."""
        return network_machine(self.core)

    def emit(self, compilation: Compilation, directory: Path) -> None:
        """Write the kernels' C, the launches and the graph; see package.py."""
        write_package(compilation, directory)

    def load(self, directory: Path) -> Runner:
        """A runner on the host core."""
        return AscendRunner(*read_package(directory))
