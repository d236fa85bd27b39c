"""The interface between compilers of kernels, writers of programs and their runners.

Whoever runs a package that is there needs neither graph nor planning, which take longer to import
than a library to load: what only compiling needs is imported where it is needed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tilewright.errors import refuse
from tilewright.numerics.element_types import dtype_named
from tilewright.shapes.lists import NO_LISTS, Lists
from tilewright.system.files import need_file

if TYPE_CHECKING:
    from tilewright.codegen.program.buffers import KernelBuffer
    from tilewright.graph.arenas import Arenas
    from tilewright.graph.free_axes import FreeSize
    from tilewright.ir import ModuleOp
    from tilewright.ir.passes import WeightStore
    from tilewright.ir.types import Array
    from tilewright.machine import Machine
    from tilewright.planning.domain import Kernel
    from tilewright.planning.schedule import Schedule
    from tilewright.tile.dialect import ProgramOp

MANIFEST = "program.json"
"""The file of a program's directory that describes the others."""

WEIGHTS_FILE = "weights.bin"
"""The file that holds the arena of weights."""

ALIGNMENT = 64
"""The number of bytes to which both arenas are aligned."""

HostStep = Callable[["Arenas"], None]
"""Runs one kernel on the host: reads its operands from the arenas and writes its result there."""


Watch = Callable[[str, "Arenas"], None]
"""Is shown the arenas after each step of a run, with the symbol of the kernel that has run ("" for
an operation outside kernels). It must not change their bytes, nor keep them."""


@dataclass(frozen=True)
class CompiledKernel:
    """One kernel of the network, in the order in which the network runs."""

    kernel: Kernel
    """The domain; ``kernel.symbol`` is the symbol of its ``graph.kernel``."""
    schedule: Schedule | None = None
    """The schedule; None for a kernel on the host."""
    program: ModuleOp | None = None
    """The ``tile.program`` after the tile passes; None for a kernel on the host."""
    predicted_cycles: float = 0.0
    """The cycles that the planner predicts for the kernel."""

    @property
    def programs(self) -> list[ProgramOp]:
        """The tile programs of ``program``; none for a kernel on the host."""
        from tilewright.tile.dialect import programs_of

        return [] if self.program is None else programs_of(self.program)

    @property
    def on_host(self) -> bool:
        """True if the host runs the kernel, which then has no program."""
        return self.program is None


RunTimer = Callable[[Sequence[CompiledKernel]], float]
"""Simulated cycles of kernels that run one after the other."""


@dataclass(frozen=True)
class Form:
    """The options for writing a package of C."""

    weights: str = "file"
    """``file`` (weights.bin), or ``array``: constant arrays in C."""
    bare: bool = False
    """Without threads, heap, files and clocks: for processors without an operating system."""


@dataclass(frozen=True)
class Compilation:
    """All that a target needs to emit a package."""

    machine: Machine
    network: ModuleOp
    """The graph after all graph passes: kernels, and operations at the borders, with placements."""
    weights: WeightStore
    kernels: tuple[CompiledKernel, ...]
    """One for each ``graph.kernel`` of the network, in its order."""
    arenas: Mapping[str, int]
    """Bytes of each arena."""
    form: Form = Form()
    free: Mapping[str, FreeSize] = field(default_factory=dict[str, "FreeSize"])
    """Axes that end early in a run, after one index at least, by the name of the size at which they
    end. Only targets that take sizes (``Target.sizes_taken``) are asked for that, and
    for no more sizes than they take."""
    host_seconds: Mapping[int, float] = field(default_factory=dict[int, float])
    """Predicted seconds of the host's operations by their place in the network, where the machine
    describes its host (``Machine.host``)."""

    lists: Lists = NO_LISTS
    """The model's sequences, of which inputs and outputs are elements."""
    loops: Mapping[str, LoopBody] = field(default_factory=dict[str, "LoopBody"])
    """The bodies of the network's loops by the symbols of their kernels, for targets that write
    loops themselves (``Target.writes_loops``)."""

    @cached_property
    def text(self) -> str:
        """The network as text, as the program and the reference keep it."""
        from tilewright.ir import to_text

        return f"{to_text(self.network)}\n"


@dataclass(frozen=True)
class LoopBody:
    """A loop's body as a network of its own, and how often it runs."""

    rounds: int
    body: Compilation


@dataclass(frozen=True)
class TensorInfo:
    """An input or output of the network, as the caller sees it."""

    name: str
    shape: tuple[int | str, ...]
    """Sizes; names stand for free dims, which only packages have, never what runners take."""
    dtype: str
    """NumPy's name of the element type."""


@dataclass(frozen=True)
class KernelProfile:
    """One kernel's cycles and time in one run; a host kernel of a simulated run has no cycles."""

    symbol: str
    nodes: tuple[str, ...]
    cycles: float | None = None
    """Cycles by which the kernel moved the end of the program; they sum to the whole."""
    start: float | None = None
    end: float | None = None
    dram_bytes: int | None = None
    seconds: float | None = None
    """Wall time: of every kernel of a native run, and of the host's of a simulated one."""
    on_host: bool = False


@dataclass(frozen=True)
class Profile:
    """Measurements of one run: ``cycles`` when simulated, ``seconds`` when native."""

    kernels: tuple[KernelProfile, ...] = ()
    cycles: int | None = None
    clock_hz: float | None = None
    seconds: float | None = None
    dram_bytes: int | None = None
    host_seconds: float | None = None
    """Seconds that the host took in a simulated run, beside the ``cycles`` of the accelerator: all
    its kernels, those that only convert included, and operations outside kernels, which have no row
    in ``kernels``. None where that was not measured, and for native runs, which are all the
    host's."""
    elapsed_seconds: float | None = None
    """Seconds of a simulated run where the host and the accelerator work at the same time; None
    where ``host_seconds`` is."""
    peak_memory_bytes: int = 0
    """Bytes of main memory that the package needs for activations and weights."""
    engines: Mapping[str, float] = field(default_factory=dict[str, float])
    """Fraction of the cycles in which each engine was busy."""


@dataclass(frozen=True)
class PlannedKernel:
    """The part of a kernel's plan that a trace shows."""

    buffers: tuple[KernelBuffer, ...] = ()
    peak_cycles: float | None = None
    """Cycles of its computes at the machine's peak."""


@dataclass(frozen=True)
class RunResult:
    """The outputs of a run by name, and its profile, which is made when it is asked for."""

    outputs: dict[str, Array]
    measured: Callable[[], Profile]
    """A small network runs in the time that a profile of its kernels takes to make."""

    @property
    def profile(self) -> Profile:
        """The measurements of the run."""
        return self.measured()


class Runner(ABC):
    """A package loaded and ready to run."""

    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    exact: bool = True
    """True if results on an integer machine equal the interpreter's bit for bit.

    They need not where the host computes in float32: C and NumPy round exponentials differently.
    """
    roundoff: float = 0.0
    """Unit roundoff of the numbers in which the machine computes, where these are coarser than the
    graph's float32: 2 ** -11 for half precision."""
    spoils: bool = False
    """True if memories begin with contents that show in results where a program reads what nobody
    wrote; ``seed`` chooses them. Runs of equal seeds are then alike, bit for bit."""
    seed: int = 0
    planned: Mapping[str, PlannedKernel] = {}
    """The facts known of kernels' plans, by symbol: whoever opens a package sets it. Traces
    show it as counters."""

    @property
    def threads(self) -> int:
        """Threads that share a run's work on the processor at hand: 1 but on the cpu target."""
        return 1

    @threads.setter
    def threads(self, count: int) -> None:
        """Any number gives the same results; raises TilewrightError for one that cannot be."""
        if count < 1:
            raise refuse("option-threads", f"{count} threads: at least 1 is needed")
        if count > 1:
            raise refuse(
                "option-threads", f"{count} threads: only the cpu target's C shares its work among "
                "threads", help="leave --threads out",
            )  # fmt: skip

    @abstractmethod
    def run(
        self,
        inputs: Mapping[str, Array],
        *,
        trace: Path | None = None,
        check_races: bool = False,
        watch: Watch | None = None,
        profile: bool = False,
    ) -> RunResult:
        """Run once; ``inputs`` have the names, shapes and dtypes of ``self.inputs``.

        ``trace`` is a file to write (Chrome / Perfetto JSON); targets without a timeline of
        commands leave one event per kernel. ``check_races`` makes simulators refuse programs
        that lack a wait. ``watch`` sees the arenas after every step, before any byte of its
        result is used again. ``profile`` measures this very run: a native one otherwise reads no
        clocks, and is made once more, on the same arrays, when its profile is asked for. Raises
        TilewrightError.
        """

    def open_loops(self, opener: Callable[[Path], Runner]) -> None:
        """Open the programs of the loops that the program has, if it may have some; ``opener``
        makes a runner of such a program."""
        del opener

    def timed(self) -> Profile:
        """The profile of a run whose values are not computed, where times do not depend on them.

        Refuses (``profile-missing``) where only a run tells.
        """
        raise refuse("profile-missing", "times are known only after a run", help="call run()")

    def use_functions(self, files: Sequence[Path]) -> None:
        """Call the machine's functions in these C files, not those that a package brings for the
        host; refuses (``option-functions``) packages that call none."""
        raise refuse(
            "option-functions",
            "the package holds no C that calls functions of a machine",
            help="compile for a machine file with C functions (docs/machine-file.md)",
        )

    def build(self) -> None:
        """Build now the C that the processor at hand runs, where a run would do it."""
        return

    def prepare(self) -> None:
        """Build now all that is otherwise built when a run first needs it, simulators included."""
        self.build()

    def check_inputs(self, inputs: Mapping[str, Array], asked: Sequence[TensorInfo] = ()) -> None:
        """Refuse inputs of the wrong name, shape or dtype: others than are ``asked``, which are the
        runner's by default.

        What a network was compiled without because it is empty may be given all the same.
        """
        wanted = {info.name: info for info in asked or self.inputs}
        listed = ", ".join(f"{i.name}: {i.dtype}{list(i.shape)}" for i in wanted.values())
        for name, value in inputs.items():
            if name not in wanted and np.size(value):
                raise refuse("input-name", f"the model has no input {name!r}", help=listed)
        for name, info in wanted.items():
            if name not in inputs:
                raise refuse("input-missing", f"input {name!r} is missing", help=listed)
            array = np.asarray(inputs[name])
            if array.dtype.kind in "OUSV" and array.dtype.kind != dtype_named(info.dtype).kind:
                reason = f"has dtype {array.dtype}, which is of no numbers"
                raise refuse("input-dtype", reason, name, f"the model takes {info.dtype}")
            if array.shape != info.shape:
                shape, model_shape = list(array.shape), list(info.shape)
                raise refuse(
                    "input-shape", f"has shape {shape}, the model takes {model_shape}", name
                )
            if array.dtype != dtype_named(info.dtype):
                dtype = array.dtype
                raise refuse(
                    "input-dtype", f"has dtype {dtype}, the model takes {info.dtype}", name,
                    f"convert it: array.astype({info.dtype!r})",
                )  # fmt: skip


def need_functions(files: Sequence[Path]) -> None:
    """Refuse (``option-functions``) what cannot be the C of a machine's functions: names of no
    files, headers alone, and two files of one name."""
    for file in files:
        need_file(file, "option-functions")
        if file.suffix not in (".c", ".h"):
            raise refuse(
                "option-functions", "is no C file and no header", str(file), "driver.c driver.h"
            )
    if not any(file.suffix == ".c" for file in files):
        raise refuse("option-functions", "there are headers alone", help="name a C file, too")
    names = [file.name for file in files]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise refuse("option-functions", f"two files are called {twice[0]}", help="rename one")
