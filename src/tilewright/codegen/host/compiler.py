"""The compiler of the kernels that an accelerator leaves to the processor in front of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from tilewright.codegen.host.calls import KernelCall
from tilewright.codegen.program.interface import Compilation, HostStep
from tilewright.system.choices import target_points

HOST_TARGET = "cpu"
"""The name of the target that compiles for the processor in front of an accelerator."""

Refused = Callable[[str], None]
"""Is told the symbol of a kernel that the host compiler cannot compute."""


class HostCompiler(Protocol):
    """Compiles kernels on the host to C that runs on the accelerator's arenas of memory."""

    @property
    def lanes(self) -> int:
        """The number of float32 lanes of the vectors that calls use (``LANES`` in C)."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The texts of the C headers that calls may use, by name; none includes a later one."""
        ...

    def calls(
        self, compilation: Compilation, *, refused: Refused | None = None
    ) -> Sequence[KernelCall]:
        """Plan and write the kernels on the host, in order.

        ``refused`` is told of a kernel that cannot be computed, which is left out; without it,
        raises TilewrightError.
        """
        ...

    def emit(
        self, compilation: Compilation, directory: Path, *, refused: Refused | None = None
    ) -> Sequence[Path]:
        """Write the kernels on the host below ``directory/host``; return the files, [] if none."""
        ...

    def load(self, directory: Path) -> Mapping[str, HostStep]:
        """Return the steps that ``emit`` wrote by their kernels' symbols, built on first use."""
        ...


def host_compiler() -> HostCompiler:
    """Return the host compiler, which is looked up by entry point as every target is."""
    target: Any = target_points()[HOST_TARGET].load()
    compiler: HostCompiler = target.host_compiler
    return compiler
