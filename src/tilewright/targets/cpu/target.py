"""The target object that the entry point names."""

from __future__ import annotations

from math import isqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.codegen.c.compiler import FLAGS, compiler_version
from tilewright.codegen.program.interface import WEIGHTS_FILE, Compilation, Runner
from tilewright.errors import refuse
from tilewright.machine.capabilities import Capability
from tilewright.targets.base import Target, sources_text
from tilewright.targets.cpu.builds import BUILDS, NATIVE
from tilewright.targets.cpu.runner import CpuRunner
from tilewright.tile.decisions import Decision

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tilewright.codegen.host.calls import KernelCall
    from tilewright.codegen.host.compiler import HostCompiler
    from tilewright.codegen.host.loops import LoopCall
    from tilewright.graph.free_axes import Sizes
    from tilewright.machine import Machine
    from tilewright.planning.planners.measurements import Measure


SUMMING = (
    *("attention", "softmax"),
    *(f"reduce_{each}" for each in ("sum", "mean", "max", "min", "product")),
)
"""Operations whose kernels know where a dim ends that they sum."""


def _sizes(compilation: Compilation) -> Sizes:
    """The dims and axes that end at sizes of a run. Refuses (``length-kernel``) what cannot."""
    from tilewright.graph.dialect import network_of
    from tilewright.graph.free_axes import ends_of

    for symbol in compilation.loops if compilation.free else ():
        reason = "a loop's body takes no sizes of a run"
        raise refuse("length-kernel", reason, symbol, "give the dim a size")
    return ends_of(network_of(compilation.network), compilation.free, SUMMING)


def _calls(
    compilation: Compilation, lanes: int, ends: Mapping[str, Mapping[str, str]]
) -> Sequence[KernelCall | LoopCall]:
    """The calls of a network's kernels, and of its loops with those of their bodies, in order;
    ``ends`` are C of the sizes at which dims of kernels end."""
    from tilewright.codegen.host.loops import LoopCall
    from tilewright.graph.dialect import network_of
    from tilewright.graph.passes.editing import VIEWS
    from tilewright.targets.cpu.walk import call_of  # The generators of all primitives.

    for op in network_of(compilation.network).operations:
        if op.operation not in VIEWS:
            raise refuse("cpu-operation", f"no kernel computes {op.name}", op.node_name)
    calls: list[KernelCall | LoopCall] = []
    for kernel in compilation.kernels:
        loop = compilation.loops.get(kernel.kernel.symbol)
        if loop is None:
            calls.append(call_of(kernel, lanes, ends.get(kernel.kernel.symbol)))
        else:
            calls.append(LoopCall(kernel, loop, tuple(_calls(loop.body, lanes, {}))))
    return calls


class CpuTarget(Target):
    """C for the processor at hand."""

    name = "cpu"
    family = "cpu"
    weights_file = WEIGHTS_FILE
    writes_c = True
    writes_loops = True
    sizes_taken = 8
    description = "readable C for the processor at hand, built by the system's compiler"
    elements = ("float32",)
    honours = frozenset({Decision.ORDER})
    """Order of loops alone: tiles lie in main memory, behind caches, so no buffer has a place."""
    implements = frozenset(
        {
            *(Capability.CORES, Capability.MEMORY_GROWTH),
            *(Capability.EPILOGUE_ANY, Capability.SYNCHRONISATION),
        }
    )

    def plan_sizes(self, most: int) -> tuple[int, ...]:
        """The largest, 4, and what is as many times 4 as it goes into the largest. A plan's last
        tile is computed whole: tiles of several rows would take a run of one or two rows three
        times as long as need be."""
        least = min(4, most)
        return tuple(sorted({most, isqrt(least * most), least}, reverse=True))

    def machine(self) -> Machine:
        """The processor that this process runs on."""
        from tilewright.targets.cpu.machine import machine

        return machine()

    def variant(self, name: str) -> Machine:
        """A processor of ``--cpu``: a name, for cross builds, or the file of a calibration."""
        from tilewright.targets.cpu.machine import machine
        from tilewright.targets.cpu.processors import processor

        if name.endswith(".json"):
            from tilewright.targets.cpu.calibrate import Calibration

            return machine(Calibration.read(Path(name)).applied())
        return machine(processor(name))

    def listing(self, directory: Path) -> str:
        """The C of the network and of its kernels."""
        return sources_text(directory, "src/*.c")

    def emit(self, compilation: Compilation, directory: Path) -> None:
        """Write the sources, header, Makefile, main and weights.

        Raises TilewrightError for an operation that is neither in a kernel nor a mere view.
        """
        from tilewright.targets.cpu.machine import lanes_of
        from tilewright.targets.cpu.package import names_of_sizes, write_package
        from tilewright.targets.cpu.processors import processor

        made_for = processor(compilation.machine.name.partition("-")[2] or NATIVE)
        lanes = lanes_of(compilation.machine)
        sizes = _sizes(compilation)
        names = names_of_sizes(compilation.free)
        ends = {
            symbol: {dim: names[size] for dim, size in dims.items()}
            for symbol, dims in sizes.dims.items()
        }
        calls = _calls(compilation, lanes, ends)
        write_package(compilation, directory, calls, lanes, processor=made_for, sizes=sizes)

    def load(self, directory: Path) -> Runner:
        """Build the package's library (once) and make a runner of it."""
        return CpuRunner(directory)

    @property
    def host_compiler(self) -> HostCompiler:
        """C of kernels that accelerators leave to the processor in front of them."""
        from tilewright.targets.cpu.host import CpuHost

        return CpuHost()

    def measurer(self) -> Measure:
        """Builds and runs kernels here."""
        from tilewright.targets.cpu.measure import measure  # With the generators, too.

        return measure

    def built(self) -> str:
        """The compiler and its flags."""
        from tilewright.targets.cpu.processors import this_processor

        return " ".join([compiler_version(), *FLAGS, *this_processor().flags])

    def options(self) -> dict[str, Any]:
        """The compiler and the vectors that are used."""
        from tilewright.targets.cpu.processors import this_processor

        return {
            "compiler": compiler_version() or "none found",
            "lanes": this_processor().lanes,
            "processors": list(BUILDS),
        }
