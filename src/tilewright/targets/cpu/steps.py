"""The steps of a package's network: calls of kernels' functions, and loops over steps of a body."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from tilewright.codegen.c.parameters import Place, place_text
from tilewright.codegen.c.source import Writer, comment
from tilewright.codegen.host.calls import KernelCall, KernelSource
from tilewright.codegen.host.loops import LoopCall, copies_of
from tilewright.codegen.program.bodies import Bases, bases_of_bodies
from tilewright.codegen.program.interface import Compilation, CompiledKernel, Form
from tilewright.graph.dialect import network_of
from tilewright.graph.names import identifier
from tilewright.system.template import filled
from tilewright.targets.cpu.headers import SUPPORT

Functions = list[tuple[str, KernelSource, list[CompiledKernel]]]
"""Name and source of every function, and the kernels that it computes."""


@dataclass(frozen=True)
class Step:
    """One kernel of the network: which function it runs, and on what; or a loop."""

    kernel: CompiledKernel
    function: str
    arguments: tuple[str, ...]
    shared: bool = False
    """True if threads share it: the function takes ``part`` and ``parts``."""
    scratch_bytes: int = 0
    """Bytes of its scratch, which no two threads may share; 0 if it has none or one thread runs
    it."""
    body: tuple[Step, ...] = ()
    """The steps of a loop's body."""

    @property
    def kernels(self) -> Iterator[CompiledKernel]:
        """The kernel, or those of a loop's body."""
        if not self.body:
            yield self.kernel
        for step in self.body:
            yield from step.kernels

    @property
    def nodes(self) -> str:
        """The model's nodes, for a comment."""
        return comment(", ".join(self.kernel.kernel.nodes) or self.kernel.kernel.symbol)


def scratch_bytes(steps: Sequence[Step]) -> int:
    """Bytes of scratch that each further thread of a team needs; whole cache lines."""
    return max((max(step.scratch_bytes, scratch_bytes(step.body)) for step in steps), default=0)


def cases(steps: Sequence[Step]) -> str:
    """The cases of a switch over the steps' numbers."""
    return "\n".join(_case(number, step) for number, step in enumerate(steps))


def _case(number: int, step: Step) -> str:
    """The case of one step."""
    writer = Writer(1)
    writer.line(f"case {number}: /* {step.nodes} */")
    writer.depth = 2
    _write_call(writer, step, alone=False)
    writer.line("break;")
    return "\n".join(writer.lines)


def _write_call(writer: Writer, step: Step, *, alone: bool) -> None:
    """Write the call of one step, of which part 0 computes all where it is not shared; ``alone``
    says that nobody else is there."""
    arguments = list(step.arguments)
    if step.shared:
        arguments += ["part", "parts"]
    elif not alone:
        writer.line("if (part == 0)")
        writer.depth += 1
    writer.line(f"{step.function}(")
    for argument in arguments[:-1]:
        writer.line(f"    {argument},")
    writer.line(f"    {arguments[-1]});")
    writer.depth -= not step.shared and not alone


def meetings(shared: Sequence[bool], *, apart: bool = False) -> list[bool]:
    """Before which steps, and at the end, threads meet: wherever one may need what another made,
    beside each shared step, and at the start if they begin ``apart``."""
    pairs = zip([apart, *shared], [*shared, False], strict=True)
    return [before or after for before, after in pairs]


class StepWriter:
    """Writes the steps of a network and of its loops' bodies, equal functions once."""

    def __init__(self, prefix: str, form: Form) -> None:
        self.prefix = prefix
        self.form = form
        self.functions: Functions = []
        self.loops: list[str] = []
        """C of the loops' functions, those that are called by others first."""
        self._by_text: dict[str, int] = {}

    def steps(
        self, compilation: Compilation, calls: Sequence[KernelCall | LoopCall], bases: Bases
    ) -> list[Step]:
        """The steps of a network that has its arenas at ``bases``."""
        bodies = bases_of_bodies(compilation, bases)
        return [
            self._loop(compilation, call, bases, bodies[call.kernel.kernel.symbol])
            if isinstance(call, LoopCall)
            else self._kernel(call, bases.place)
            for call in calls
        ]

    def _kernel(self, call: KernelCall, placed: Callable[[Place], Place]) -> Step:
        source = call.source
        if source.text not in self._by_text:
            number = self._by_text[source.text] = len(self.functions)
            name = f"{self.prefix}_k{number:02d}_{identifier(source.operation, 'kernel')}"
            self.functions.append((name, source, []))
        name, _, used = self.functions[self._by_text[source.text]]
        used.append(call.kernel)
        moved = replace(
            call, places={tensor: placed(place) for tensor, place in call.places.items()}
        )
        arguments, scratch = moved.divided_arguments("workspace")
        return Step(call.kernel, name, (*arguments, *source.sizes), source.shared, scratch)

    def _loop(self, compilation: Compilation, call: LoopCall, outer: Bases, inner: Bases) -> Step:
        """A loop as a function of its own, which all threads run if they share a step of it."""
        symbol, body = call.kernel.kernel.symbol, call.loop.body
        steps = self.steps(body, call.calls, inner)
        op = next(op for op in network_of(compilation.network).kernels if op.symbol.data == symbol)
        copies = copies_of(op, body, outer, inner, lambda p: place_text(*p, "workspace"))
        name = f"loop{len(self.loops)}_{identifier(symbol, 'loop')}"
        shared = any(step.shared for step in steps)
        team = shared and not self.form.bare
        arguments = (*(["team"] if team else []), "weights", "workspace")
        step = Step(call.kernel, name, arguments, shared, body=tuple(steps))
        begin, each = Writer(1), Writer(2)
        _write_alone(begin, copies.begin, shared)
        _write_alone(each, copies.enter, shared)
        meets = meetings([each_step.shared for each_step in steps])
        for each_step, together in zip([*steps, None], meets, strict=True):
            if together and team:
                each.line("if (team)")
                each.line("    team_meet(team);")
            if each_step is not None:
                each.line(f"/* {each_step.nodes} */")
                _write_call(each, each_step, alone=not shared)
        _write_alone(each, copies.leave, shared)
        self.loops.append(
            filled(
                SUPPORT / "templates" / "loop.c.in",
                name=name,
                about=f"{step.nodes}: {call.loop.rounds} rounds",
                rounds=call.loop.rounds,
                team="struct team *team, " if team else "",
                parts=", long part, long parts" if shared else "",
                begin="\n".join(begin.lines),
                round="\n".join(each.lines),
            )
        )
        return step


def _write_alone(writer: Writer, copies: Writer, shared: bool) -> None:
    """Write what one thread alone does, of those that share a loop."""
    if not copies.lines:
        return
    if not shared:
        writer.text("\n".join(copies.lines))
        return
    with writer.block("if (part == 0)"):
        writer.text("\n".join(copies.lines))
