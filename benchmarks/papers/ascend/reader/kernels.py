"""Kernels in CCE C as programs again: read, verified, and printed as they were.

What ``kernel_text`` prints of a program that was read is the text that was read, and ``verified``
proves its flags and barriers as it proves those of a program that was compiled here.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager

from lark import Token, Tree

from benchmarks.papers.ascend.reader.instructions import (
    Argument,
    Call,
    Settings,
    command,
    whole,
)
from benchmarks.papers.ascend.reader.syntax import (
    Source,
    is_integer,
    names_of,
    parsed,
    trees,
    value_of,
)
from tilewright.codegen.nest.value import Value
from tilewright.errors import Problem, TilewrightError, refuse
from tilewright.targets.ascend import isa
from tilewright.targets.ascend.blocks import alike, conflicts, traces
from tilewright.targets.ascend.emit import QUALIFIERS
from tilewright.targets.ascend.fields import check_fields
from tilewright.targets.ascend.flags import proven_lengths
from tilewright.targets.ascend.look_ups import check_look_ups
from tilewright.targets.ascend.machine import BLOCK, DaVinci
from tilewright.targets.ascend.program import (
    BLOCK_INDEX,
    LENGTH,
    Access,
    Barrier,
    Buffer,
    Command,
    Executed,
    Flag,
    Loop,
    Place,
    Program,
    Statement,
    Tensor,
    counter,
    scalar,
)
from tilewright.targets.ascend.proof import PIPES, prove_trace

MEMORIES = {word: memory for memory, word in QUALIFIERS.items()}

BUFFER = re.compile(r"(\w+): (\d+) bytes of (\w+) at (\d+)(?:, (\d+) slots)?")
"""A buffer, as the head of a kernel lists it."""

RANGE = re.compile(rf"{LENGTH}: 1 to (\d{{1,9}})")
"""The greatest size of a parameter, as the head of a kernel states it."""

BLOCKS = re.compile(rf"{BLOCK_INDEX}: 0 to (\d{{1,5}})")
"""The range of a launch's block index, as the head of a kernel states it."""

IN_TENSOR = re.compile(r"\( ?\(__gm__ uint8_t \*\) ?(\w+) \+ (.+)\)", re.DOTALL)
"""Bytes from the start of a tensor."""


def read_kernels(text: str, core: DaVinci) -> list[Program]:
    """The programs of the kernels in a text.

    Refuses what is no kernel (``cce-syntax``), instructions that the core does not have
    (``cce-instruction``), arguments that they do not take (``cce-argument``, ``lower-field``),
    settings that nothing has set (``cce-setting``), and names that nothing declares
    (``cce-value``), each with the line.
    """
    return [_kernel(Source(text), tree, core) for tree in trees(parsed(text).children)]


def _kernel(source: Source, tree: Tree[Token], core: DaVinci) -> Program:
    about = [str(child) for child in tree.children if isinstance(child, Token)]
    declared, defined, block = trees(tree.children)
    if source.slice(declared) != source.slice(defined):
        raise refuse("cce-syntax", "the function is declared otherwise", _line(defined))
    name, *parameters = defined.children
    tensors: list[Tensor] = []
    sizes: list[str] = []
    for parameter in trees(parameters):
        if parameter.data == "size":
            sizes.append(str(parameter.children[0]))
            continue
        element, known = (str(child) for child in parameter.children)
        tensors.append(Tensor(known, 0, element))
    if sizes not in ([], [str(LENGTH)]):
        raise refuse("cce-syntax", f"sizes {', '.join(sizes)}", _line(defined), f"one, {LENGTH}")
    reader = _Reader(source, core, {tensor.name: tensor for tensor in tensors}, frozenset(sizes))
    body = reader.body(block, Settings(), reader.sizes)
    if bool(sizes) != bool(reader.longest):
        reason = f"the parameter {LENGTH} and the remark of its range belong together"
        raise refuse("cce-syntax", reason, _line(defined), f"/* {LENGTH}: 1 to 512 */")
    for tensor in tensors:
        tensor.written = tensor.name in reader.written
        if tensor.written and tensor.name in reader.indices:
            reason = f"{tensor.name} is written here, and read by the scalar unit"
            raise refuse("cce-value", reason, _line(defined))
    words = "\n".join(_comment(remark) for remark in about)
    buffers = tuple(reader.buffers)
    return Program(
        *(str(name), tuple(tensors), body, buffers, words, reader.longest),
        blocks=reader.blocks,
        constants=tuple(reader.constants),
    )


def verified(program: Program, core: DaVinci) -> None:
    """Refuse what is wrong with a program: addresses beyond a memory or no whole blocks
    (``cce-address``), and what its flags and barriers do not order (``cce-order``). A kernel that
    takes a length is looked at for the longest and for ``proven_lengths``, and all blocks of a
    launch for what one touches of what another one writes."""
    try:
        check_look_ups(program)
        for length in (program.longest, *proven_lengths(program.longest)):
            steps = traces(program, length)
            for executed in steps:
                check_fields(executed, program.name)
                _check_accesses(executed, core)
            problems = conflicts(steps)
            for block in dict.fromkeys(alike(steps)):
                problems += prove_trace(steps[block], events=core.events)
            texts = dict.fromkeys(map(str, problems))
            if texts:
                raise TilewrightError([Problem("cce-order", text, program.name) for text in texts])
    except ZeroDivisionError:
        raise refuse("cce-value", "an expression divides by 0", program.name) from None


def _check_accesses(steps: list[Executed], core: DaVinci) -> None:
    """Refuse, on the chip, bytes outside of a memory or at no multiple of a block."""
    sizes = {"cbuf": core.l1, "ca": core.l0a, "cb": core.l0b, "cc": core.l0c, "ub": core.ub}
    for executed in steps:
        for access in (*executed.reads, *executed.writes):
            if isinstance(executed.statement, Command):
                _check_access(executed.statement, access, sizes.get(access.home))


def _check_access(command: Command, access: Access, size: int | None) -> None:
    if size is None or not access.bytes or 0 in access.counts:
        return
    spans = [(n - 1) * step for n, step in zip(access.counts, access.strides, strict=True)]
    first = access.start + sum(min(span, 0) for span in spans)
    end = access.start + sum(max(span, 0) for span in spans) + access.bytes
    if first < 0 or end > size:
        raise refuse(
            "cce-address",
            f"{command.name} touches {access.home} from {first} to {end}; it has {size} bytes",
        )
    # Of masks of 128 bits a block holds two.
    granule = BLOCK // 2 if command.name == "set_cmpmask" else BLOCK
    for number in (access.start, *access.strides):
        if number % granule:
            raise refuse(
                "cce-address",
                f"{command.name} touches {access.home} at {access.start} by {access.strides}: "
                f"{number} is no multiple of {granule}",
            )


def _line(tree: Tree[Token]) -> str:
    return f"line {tree.meta.line}"


def _comment(token: Token | str) -> str:
    return str(token)[2:-2].strip()


@contextmanager
def _at(tree: Tree[Token]) -> Generator[None]:
    """Refusals within get the line."""
    try:
        yield
    except TilewrightError as error:
        first = error.problems[0]
        if first.where.startswith("line "):
            raise
        raise refuse(first.code, first.reason, _line(tree), first.help) from None


class _Reader:
    def __init__(
        self, source: Source, core: DaVinci, tensors: dict[str, Tensor], sizes: frozenset[str]
    ) -> None:
        self.source, self.core, self.tensors, self.sizes = source, core, tensors, sizes
        self.longest = 0
        self.blocks = 1
        self.constants: list[tuple[str, Value]] = []
        self.buffers: list[Buffer] = []
        self.written: set[str] = set()
        self.counters: dict[str, Command] = {}
        self.indices: set[str] = set()
        """Tensors of which the scalar unit reads elements."""

    def body(
        self, block: Tree[Token], settings: Settings, variables: frozenset[str]
    ) -> list[Statement]:
        """The statements of a block."""
        statements: list[Statement] = []
        for tree in trees(block.children):
            with _at(tree):
                if tree.data == "constant":
                    outside = variables == self.sizes | {name for name, _ in self.constants}
                    if not statements and outside:
                        self._constant(tree, variables)
                    else:
                        statements.append(self._scalar(tree, variables))
                elif tree.data == "counter":
                    statements.append(self._counter(tree, variables))
                else:
                    first = not statements
                    statement = self._statement(tree, settings, variables, first=first)
                    statements += [] if statement is None else [statement]
                    continue
            variables |= {str(tree.children[0])}
        return statements

    def _scalar(self, tree: Tree[Token], variables: frozenset[str]) -> Command:
        """A name for a value, which may be an element of a tensor of integers."""
        name, value = self._named(tree, variables)
        elements = [str(node.children[0]) for node in value.find_data("element")]
        for element in elements:
            tensor = self.tensors.get(element)
            if tensor is None or tensor.element not in ("int32_t", "int64_t"):
                raise refuse("cce-value", f"no parameter of integers has the name {element}")
        cycles = int(self.core.latency) if elements else 0
        self.indices |= set(elements)
        return scalar(name, self._value(value, variables), cycles)

    def _counter(self, tree: Tree[Token], variables: frozenset[str]) -> Command:
        name = self._new(tree, variables)
        start, self.counters[name] = counter(name)
        return start

    def _count(self, tree: Tree[Token], variables: frozenset[str]) -> Command:
        """The step of a counter, which is always 1: other values could grow without end."""
        name, text = str(tree.children[0]), self.source.slice(trees(tree.children)[0])
        if name not in variables or name not in self.counters or text != f"{name} + 1":
            reason = f"{name} is no counter that goes on by 1"
            raise refuse("cce-value", reason, help=f"int64_t {name} = 0; {name} = {name} + 1;")
        return self.counters[name]

    def _named(self, tree: Tree[Token], variables: frozenset[str]) -> tuple[str, Tree[Token]]:
        """The name that a line gives to a value, and that value."""
        return self._new(tree, variables), trees(tree.children)[0]

    def _new(self, tree: Tree[Token], variables: frozenset[str]) -> str:
        """A name that nothing else has."""
        name = str(tree.children[0])
        if name in variables or name in self.tensors or name == str(BLOCK_INDEX):
            raise refuse("cce-value", f"{name} is another name's already", help="rename it")
        return name

    def _constant(self, tree: Tree[Token], variables: frozenset[str]) -> None:
        """A constant of a block, before all statements."""
        name, value = self._named(tree, variables)
        place = {str(BLOCK_INDEX)} if self.blocks > 1 else set[str]()
        self.constants.append((name, self._value(value, variables | place)))

    def _statement(
        self, tree: Tree[Token], settings: Settings, variables: frozenset[str], *, first: bool
    ) -> Statement | None:
        if tree.data == "comment":
            text = _comment(str(tree.children[0]))
            head = first and variables == self.sizes
            if head and (known := RANGE.fullmatch(text)):
                self.longest = int(known.group(1))
                return None
            if head and (known := BLOCKS.fullmatch(text)):
                self.blocks = int(known.group(1)) + 1
                return None
            buffer = BUFFER.fullmatch(text) if head else None
            if buffer is None:
                return None
            name, size, memory, address, slots = buffer.groups()
            self.buffers.append(Buffer(name, memory, int(address), int(size), int(slots or 1)))
            return None
        if tree.data == "unused":
            return None
        if tree.data == "count":
            return self._count(tree, variables)
        if tree.data == "loop":
            return self._loop(tree, settings, variables)
        name, *rest = tree.children
        arguments = [child for child in rest if isinstance(child, Tree)]
        if str(name) in ("set_flag", "wait_flag", "pipe_barrier"):
            return self._order(str(name), arguments, variables)
        given = [self._argument(argument, variables) for argument in arguments]
        instruction = command(Call(str(name), given, settings, self.core))
        self.written |= {
            region.place.home.name
            for region in instruction.writes
            if isinstance(region.place.home, Tensor)
        }
        return instruction

    def _loop(self, tree: Tree[Token], settings: Settings, variables: frozenset[str]) -> Loop:
        names = {str(child) for child in tree.children if isinstance(child, Token)}
        count, block = trees(tree.children)
        if len(names) != 1:
            raise refuse("cce-syntax", f"a loop over {' and '.join(sorted(names))}")
        name = self._new(tree, variables)
        inside = settings.inside()
        loop = Loop(name, self._value(count, variables))
        loop.body = self.body(block, inside, variables | {name})
        if not loop.body:
            raise refuse("cce-syntax", "a loop without statements", help="leave it out")
        settings.after(inside)
        return loop

    def _order(
        self, name: str, arguments: list[Tree[Token]], variables: frozenset[str]
    ) -> Flag | Barrier:
        wanted = 1 if name == "pipe_barrier" else 3
        if len(arguments) != wanted:
            raise refuse("cce-argument", f"{name}: takes {wanted} arguments")
        pipes = [self.source.slice(tree) for tree in arguments[:2]]
        for pipe in pipes:
            known = ("ALL", *PIPES) if name == "pipe_barrier" else PIPES
            if pipe.removeprefix("PIPE_") not in known or not pipe.startswith("PIPE_"):
                raise refuse("cce-argument", f"{name}: there is no pipe {pipe}")
        words = [pipe.removeprefix("PIPE_") for pipe in pipes]
        if wanted == 1:
            return Barrier(words[0])
        kind, event = name.removesuffix("_flag"), arguments[2]
        text = self.source.slice(event)
        number = text.removeprefix("EVENT_ID")
        if number != text and number.isdigit():
            return Flag(kind, words[0], words[1], int(number))
        inner = _inside(event, "event_t")
        if inner is None:
            raise refuse("cce-argument", f"{name}: {text} is no event", help="EVENT_ID0")
        return Flag(kind, words[0], words[1], self._value(inner, variables))

    def _value(
        self, tree: Tree[Token], variables: frozenset[str], source: Source | None = None
    ) -> Value:
        """A value of loop variables; ``source`` is the text of the tree, if not the kernel's."""
        unknown = sorted(names_of(tree) - variables)
        if unknown:
            raise refuse("cce-value", f"no loop around has the variable {unknown[0]}")
        return value_of(source or self.source, tree)

    def _argument(self, tree: Tree[Token], variables: frozenset[str]) -> Argument:
        text = self.source.slice(tree)
        if tree.data == "list":
            items = trees(tree.children)
            return tuple(Place(whole("ub"), self._value(item, variables)) for item in items)
        if tree.data == "name" and text not in variables:
            return Place(self.tensors[text]) if text in self.tensors else text
        if tree.data == "converted":
            cast, pointed = trees(tree.children)
            words = _words(cast)
            if words[0] in MEMORIES:
                return self._pointer(MEMORIES[words[0]], words[-1], pointed, variables)
            return text
        if self._is_integer(tree):
            return self._value(tree, variables)
        return text

    def _is_integer(self, tree: Tree[Token]) -> bool:
        """Return True if all numbers of an expression are integers, and nothing is converted."""
        numbers = [str(node.children[0]) for node in tree.find_data("number")]
        return all(map(is_integer, numbers)) and not any(tree.find_data("converted"))

    def _pointer(
        self, memory: str, element: str, tree: Tree[Token], variables: frozenset[str]
    ) -> Place:
        """A pointer: a number, or bytes from the start of a tensor."""
        if element not in isa.WIDTHS:
            raise refuse("cce-argument", f"no instruction takes elements of {element}")
        text = self.source.slice(tree)
        if memory != "gm":
            address = _inside(tree, "uintptr_t")
            if address is None:
                raise refuse("cce-argument", f"{text[:60]!r} is no address: (uintptr_t)0x0")
            return Place(whole(memory), self._value(address, variables), element)
        offset: Value = 0
        match = IN_TENSOR.fullmatch(text)
        if match is not None:
            text, rest = match.groups()
            offset = self._value(parsed(rest, "value"), variables, Source(rest))
        if text not in self.tensors:
            raise refuse("cce-value", f"no parameter has the name {text[:60]!r}")
        return Place(self.tensors[text], offset, element)


def _words(cast: Tree[Token]) -> list[str]:
    """The memory and the type of a conversion."""
    return [str(child) for child in cast.children if isinstance(child, Token)]


def _inside(tree: Tree[Token], kind: str) -> Tree[Token] | None:
    """Return the expression that is converted to a type, without the parentheses around it; None if
    nothing is."""
    if tree.data != "converted":
        return None
    cast, inner = trees(tree.children)
    if _words(cast) != [kind]:
        return None
    return trees(inner.children)[0] if inner.data == "inside" else inner
