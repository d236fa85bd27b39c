"""The interface of a target: a machine, a way to emit packages for it, and a way to run them.

Targets are found through the entry points ``tilewright.targets``; adding one edits no file outside
its folder. Graph passes, planning and tile passes ask the machine, never the target.

Whoever runs a package that is there needs neither graph nor planning, which take longer to import
than a library to load: what only compiling needs is imported where it is needed.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from tilewright.codegen.program.interface import Compilation, Runner, RunTimer
from tilewright.errors import Problem, TilewrightError, choose, refuse
from tilewright.numerics.element_types import ElementType
from tilewright.tile.decisions import EVERY_DECISION, Decision

if TYPE_CHECKING:
    from tilewright.codegen.host.compiler import HostCompiler
    from tilewright.codegen.program.files import ProgramParts
    from tilewright.codegen.words import Instruction, InstructionSet
    from tilewright.machine import Machine
    from tilewright.machine.capabilities import Capability
    from tilewright.planning import Ask, Timer
    from tilewright.planning.planners.measurements import Measure
    from tilewright.planning.space.mesh import Mesh


EXAMPLES = "examples/machines"
"""The repository's folder of machine files, for those who work in it."""

_FOLDER = re.compile("[a-z][a-z0-9-]{0,99}")


class Target(ABC):
    """A kind of machine that packages are emitted for."""

    name: str
    description: str
    family: str = ""
    """Family whose own keys its machines may have (machine/records.py): the name of its folder."""
    sizes_taken: int = 0
    """Sizes that one program may be given when it runs: each is of axes of inputs, and may be any
    up to the one that the program was compiled for (``Compilation.free``)."""
    implements: frozenset[Capability] = frozenset()
    """The keys of machines beyond those that hold for all targets; others are refused."""
    honours: ClassVar[frozenset[Decision]] = EVERY_DECISION
    """Decisions of the tile program that the target's code takes over; it decides the rest anew,
    and no pass does."""
    waits_for_host: ClassVar[bool] = True
    """True if all of a kernel's loads wait for a step of the host before it; False if weights may
    be loaded before that step, so that the host's steps part no row of kernels."""
    kernels_overlap: ClassVar[bool] = True
    """True if a kernel's first loads run beside the end of the kernel before, whose last tiles they
    then leave alone (``Allocate.avoid``)."""
    residents: ClassVar[frozenset[str]] = frozenset({"inputs", "results"})
    """The kinds of tensors that may stay in memories (``Memory.resident``), if that is implemented;
    others are refused."""
    elements: tuple[ElementType, ...] = ("float32", "fixed16", "fixed8")
    """Element types that machines may compute on; others are refused."""
    weights_file: str = ""
    """The file of its programs that is the arena of weights, each as its layout and placement say:
    packages keep no second copy of those. "" where programs keep weights in other ways."""
    elf_sections: Mapping[str, str] = {}
    """Files of its programs, and the sections that they are in a package of one file
    (runtime/elf_package.py); without any, packages are directories."""
    writes_c: bool = False
    """True if its packages are C throughout, of which there are several forms (``Form``)."""
    writes_loops: bool = False
    """True if ``emit`` writes loops with their bodies; else bodies are packages of their own, whose
    rounds the host runs."""
    falls_back: bool = False
    """True if the host runs the kernels that its instructions cannot say, so that no network is
    refused for one of them. ``emit`` then tells which they are (``KernelError``)."""
    completes_machines: ClassVar[bool] = False
    """True if machine files may leave fusions and what stays on the chip to the compiler
    (machine/implied.py)."""
    runs: ClassVar[bool] = True
    """True if a runner here executes its packages; False if only other tools do."""
    levels: ClassVar[Mapping[str, str]] = {"graph": "graph", "tile": "tile", "program": "program"}
    """Names of a network's representations -> the level (compiler/representation.py)."""
    takes_computed_weights: bool = True
    """True if the weights of products may be values that a network takes in or computes. Otherwise
    they are laid out when a package is written, and have to be constants."""

    def plan_sizes(self, most: int) -> tuple[int, ...]:
        """Three sizes of a free dim at most, descending from the largest, for which programs that
        take sizes are planned: a run uses the smallest that is large enough.

        Quarters down to 32, in blocks of 16.
        """
        sizes = [most]
        while len(sizes) < 3 and sizes[-1] > 32:
            sizes.append(-(-sizes[-1] // 64) * 16)
        return tuple(sizes)

    @property
    def host_compiler(self) -> HostCompiler:
        """The compiler of kernels that accelerators leave to this target's processor."""
        raise refuse("target-host", f"target {self.name} does not compile kernels for the host")

    @abstractmethod
    def machine(self) -> Machine:
        """The machine that is compiled for unless the caller gives a variant."""

    def check_machine(self, machine: Machine, source: str = "") -> None:
        """Refuse (``machine-capability``, ``machine-element``) a machine with keys that the target
        does not implement, or of elements that it does not compute on.

        Invalid layouts are refused, too (``machine-invalid``). ``source`` is the machine's
        file, named before the keys.
        """
        from tilewright.machine.capabilities import records, used
        from tilewright.planning.space.operand_layouts import layout_problems
        from tilewright.system.choices import target_names

        before = f"{source}: " if source else ""
        problems = [
            Problem("machine-invalid", reason, f"{before}{where}", help)
            for where, reason, help in layout_problems(machine)
        ]
        for capability, where in used(machine):
            if capability not in self.implements:
                others = [n for n in target_names() if capability in find_target(n).implements]
                hint = f"leave it out; targets that do: {', '.join(others)}"
                reason = f"target {self.name} does not implement this key"
                problem = Problem("machine-capability", reason, f"{before}{where}", hint)
                problems.append(problem)
        for memory in machine.memories:
            if kinds := ", ".join(kind for kind in memory.resident if kind not in self.residents):
                reason = f"target {self.name} lets no {kinds} stay on the chip"
                where = f"{before}memory.{memory.name}.resident"
                problems.append(Problem("machine-capability", reason, where, "leave them out"))
        for where, record in records(machine):
            if record.family != self.family:
                reason = f"target {self.name} does not implement keys of {record.family}'s own"
                others = [n for n in target_names() if find_target(n).family == record.family]
                hint = f"leave them out; targets that do: {', '.join(others)}"
                problem = Problem("machine-capability", reason, f"{before}{where}", hint)
                problems.append(problem)
        if machine.element not in self.elements:
            others = [n for n in target_names() if machine.element in find_target(n).elements]
            reason = f"target {self.name} does not compute on {machine.element}"
            help = f"it takes {', '.join(self.elements)}; {', '.join(others)} takes this one"
            problems.append(Problem("machine-element", reason, f"{before}element", help))
        if problems:
            raise TilewrightError(problems)

    def variant(self, name: str) -> Machine:
        """The machine of a named variant (``--cpu avx2``), for targets that have some."""
        raise refuse("target-variant", f"target {self.name} has no variants", repr(name))

    @abstractmethod
    def emit(self, compilation: Compilation, directory: Path) -> None:
        """Write the program's files into an existing directory; the same input, the same bytes."""

    @abstractmethod
    def load(self, directory: Path) -> Runner:
        """Make a runner of what ``emit`` wrote; refuses damaged or hostile files."""

    def runner(self, directory: Path) -> Runner:
        """A runner of what ``emit`` wrote, and of the loops whose programs lie below it."""
        runner = self.load(directory)
        runner.open_loops(self.runner)
        return runner

    def takes_loops(self, machine: Machine) -> bool:
        """Return True if programs for a machine may have loops, which the package's C or the host
        (codegen/program/rounds.py) runs; elsewhere they are unrolled."""
        del machine
        return self.writes_loops

    def elf_symbols(self, directory: Path) -> Sequence[tuple[str, str, int, int]]:
        """Name, section, offset and bytes of the kernels of what ``emit`` wrote."""
        return ()

    def timer(self, machine: Machine) -> Timer | None:
        """A simulator for the planner's best candidates, or None if the target has none."""
        return None

    def simulator(self, machine: Machine) -> Timer | None:
        """A simulator for prices that are asked for (``tilewright fuse --cost simulated``), also
        where planning goes without a timer; None if the target has none."""
        return self.timer(machine)

    def run_timer(self, machine: Machine, arenas: Mapping[str, int]) -> RunTimer | None:
        """A simulator of several kernels of a network, with what one leaves on the chip for others.

        ``arenas`` has the bytes of the regions of main memory that their tensors lie in. None if
        the target has none.
        """
        return None

    def planner(
        self, text: str, machine: Machine, database: str | Path | None = None
    ) -> AbstractContextManager[Ask | None]:
        """The planner that a text names (planning/planners/registry.py), open inside ``with``.

        ``database`` holds schedules that were measured. Raises TilewrightError.
        """
        from tilewright.planning.planners.registry import planner_of

        return planner_of(
            text,
            machine,
            timer=self.timer(machine),
            measure=self.measurer(),
            built=self.built(),
            database=database,
            mesh=self.mesh(),
        )

    def mesh(self) -> Mesh | None:
        """The mesh of the machine's cores, over which they exchange registers; None for none."""
        return None

    def measurer(self) -> Measure | None:
        """The measurer of schedules on the processor at hand; None for machines that are not
        here."""
        return None

    def built(self) -> str:
        """The way in which a measurer builds kernels: measurements of other compilers are not
        comparable."""
        return ""

    def word_bytes(self, machine: Machine) -> int:
        """Bytes of an instruction word, for targets that have them; raises TilewrightError."""
        raise refuse("target-no-words", f"target {self.name} has no instruction words")

    def instruction_count(self, words: bytes, machine: Machine) -> int:
        """Instructions of a program's words; raises TilewrightError as ``word_bytes`` does."""
        return len(words) // self.word_bytes(machine)

    def assemble(self, text: str, machine: Machine, name: str = "assembly") -> bytes:
        """Instruction words of a source text, for targets that have them; raises TilewrightError.

        ``name`` stands before line and column in messages.
        """
        raise refuse("target-no-words", f"target {self.name} has no instruction words")

    def disassemble(self, data: bytes, machine: Machine) -> str:
        """The text of instruction words; ``assemble`` gives the same bytes back."""
        raise refuse("target-no-words", f"target {self.name} has no instruction words")

    def listing(self, directory: Path) -> str:
        """The disassembly of what ``emit`` wrote, with the kernels and nodes as remarks, or its
        kernels' C."""
        raise refuse("target-no-words", f"target {self.name} has no instruction words")

    def manual(self, machine: Machine) -> str:
        """Return the machine's instruction manual."""
        raise refuse("target-no-words", f"target {self.name} has no instruction words")

    def options(self) -> dict[str, Any]:
        """Facts for ``tilewright targets``, such as the compiler that was found."""
        return {}


class WordTarget(Target):
    """A target with an assembler, a disassembler and listings."""

    image: ClassVar[str] = "image"
    """The name of its machine's own image in main memory (codegen/program/files.py)."""

    @abstractmethod
    def instruction_set(self, machine: Machine) -> InstructionSet[Instruction]:
        """The instructions of a machine."""

    def parts(self, directory: Path) -> ProgramParts:
        """The files of a package; refuses (``package-invalid``) what is damaged."""
        from tilewright.codegen.program.files import check_words, read_program

        parts = read_program(directory, self.image)
        check_words(parts, self.word_bytes(parts.machine))
        return parts

    def word_bytes(self, machine: Machine) -> int:
        """Bytes of an instruction word."""
        instructions = self.instruction_set(machine)
        return instructions.instructions[0].units * instructions.unit_bits // 8

    def assemble(self, text: str, machine: Machine, name: str = "assembly") -> bytes:
        """Words of a source text."""
        from tilewright.codegen.words import assemble, to_bytes

        instructions = self.instruction_set(machine)
        return to_bytes(instructions, assemble(instructions, text, name))

    def disassemble(self, data: bytes, machine: Machine) -> str:
        """The text of words."""
        from tilewright.codegen.words import disassemble, from_bytes

        instructions = self.instruction_set(machine)
        return disassemble(instructions, from_bytes(instructions, data))

    def listing(self, directory: Path) -> str:
        """The disassembly of a package's program, kernels and nodes as remarks."""
        from tilewright.codegen.program.files import remarks_of
        from tilewright.codegen.words import disassemble, from_bytes

        parts = self.parts(directory)
        instructions, rows = self.instruction_set(parts.machine), remarks_of(parts.file.kernels)
        return disassemble(instructions, from_bytes(instructions, parts.data), rows)

    def manual(self, machine: Machine) -> str:
        """Return the machine's instruction manual."""
        from tilewright.codegen.words import manual

        return manual(self.instruction_set(machine))


def sources_text(directory: Path, *patterns: str) -> str:
    """The C files of a program, one after another, each under its name."""
    paths = [path for pattern in patterns for path in sorted(directory.glob(pattern))]
    return "\n".join(
        f"/* {path.relative_to(directory).as_posix()} */\n{path.read_text()}" for path in paths
    )


def find_target(name: str) -> Target:
    """The installed target of that name; refuses an unknown one with the list.

    The main target of one of Tilewright's own folders is found by the folder's name: to look
    through the entry points of all that is installed takes longer than to run a package.
    """
    return _own_target(name) or _installed_target(name)


def _own_target(name: str) -> Target | None:
    """The target of Tilewright's folder of that name, if there is one."""
    if not _FOLDER.fullmatch(name):
        return None
    folder = Path(__file__).with_name(name.replace("-", "_"))
    if not (folder / "__init__.py").is_file():
        return None
    entry: Any = getattr(import_module(f"tilewright.targets.{folder.name}"), "TARGET", None)
    return entry if isinstance(entry, Target) and entry.name == name else None


def _unknown_target(name: str, known: Sequence[str]) -> TilewrightError:
    """Say what a name is that no target has: a directory, or a machine's file in the examples."""
    ends, path = "the name of a machine's file ends in .toml", Path(name)
    try:
        directory = path.is_dir() and name not in ("", ".", "..")
        if path.is_file():
            return refuse("target-unknown", f"no target {name!r}, which is a file", help=ends)
        example = path.name == name and Path(EXAMPLES, f"{name}.toml").is_file()
    except OSError:  # Too long for a file's name.
        directory = example = False
    if directory:
        reason = f"no target {name!r}, which is a directory"
        return refuse("target-unknown", reason, help=f"{ends}; {choose(name, known)}")
    near = f"did you mean {EXAMPLES}/{name}.toml?" if example else f"{choose(name, known)}; {ends}"
    return refuse("target-unknown", f"no target {name!r}", help=near)


def _installed_target(name: str) -> Target:
    from tilewright.system.choices import target_points

    points = target_points()
    if name not in points:
        raise _unknown_target(name, sorted(points))
    try:
        entry: Any = points[name].load()
    except (ImportError, AttributeError) as error:
        raise refuse("target-broken", f"target {name!r} does not load: {error}") from error
    target = entry() if isinstance(entry, type) else entry
    if not isinstance(target, Target):
        raise refuse("target-broken", f"target {name!r} is no Target: {points[name].value}")
    return target
