"""Headers without what nobody uses: a package holds the helpers that its kernels call.

A header is read as a list of top-level parts, each with the names that it defines and those that it
mentions. What the users mention is kept, and what that mentions in turn; a part whose names are not
understood stays. That reading is by text alone, so it knows of C what these headers need:
functions, types, macros, macros that define functions and their calls, and conditions around them.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

_HIDDEN = re.compile(r"""/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_]\w*")
_DEFINE = re.compile(r"#define (\w+)(?:\(([^)]*)\))?(.*)", re.DOTALL)
_TYPE = re.compile(r"typedef\s+[\w\s]*?\b(\w+)\s*(?=__attribute__|;|\()")
_STRUCTURE = re.compile(r"struct (\w+)\s*[{;]")
_ATTRIBUTE = re.compile(r"__attribute__\s*\(\(.*?\)\)", re.DOTALL)
_FUNCTION = re.compile(r"(\w+)\s*\(")
_CALL = re.compile(r"(\w+)\(([^()]*)\)\s*")
_MADE = re.compile(r"\bINLINE [\w ]*?\b([\w#]+)\(")
_OWN = re.compile(r'#include "([^"]+)"')


@dataclass
class _Maker:
    """A macro that defines functions: its parameters, and its body in pieces of one each."""

    parameters: tuple[str, ...]
    head: str
    pieces: list[tuple[str, str]]
    """The name that a piece defines, in terms of the parameters, and its lines."""
    kept: set[int] = field(default_factory=set[int])

    def with_arguments(self, text: str, arguments: Sequence[str]) -> str:
        """A text of the body as a call has it."""
        for parameter, argument in zip(self.parameters, arguments, strict=False):
            text = re.sub(rf"\b{parameter}\b", argument, text)
        return text.replace("##", "")


@dataclass
class _Part:
    """A piece of a header between conditions: lines as they are, and without comments."""

    lines: list[str]
    plain: str
    names: frozenset[str] | None = None
    """The names that the part defines; None where it is not understood, and stays."""
    maker: _Maker | None = None
    """The macro that defines functions, if it is one."""
    kept: bool = False

    @property
    def is_directive(self) -> bool:
        """True if it is an ``#include``, ``#error`` or ``#pragma``, which nobody uses by a name."""
        return self.names is None and self.plain.startswith("#")


@dataclass
class _Choice:
    """``#if`` to ``#endif``, with the parts after each condition."""

    before: list[str]
    """The remarks before the part."""
    branches: list[tuple[str, list[_Part | _Choice]]] = field(
        default_factory=list[tuple[str, "list[_Part | _Choice]"]]
    )


@dataclass(frozen=True)
class Pruned:
    """The C headers after everything unused was removed."""

    texts: Mapping[str, str]
    includes: Mapping[str, tuple[str, ...]]
    """The lines that replace ``#include "NAME"``, for each header that there was."""


def pruned(headers: Mapping[str, str], users: Iterable[str]) -> Pruned:
    """The headers, of which none may include a later one, without what the users do not use."""
    files = {name: _File(text) for name, text in headers.items()}
    makers: dict[str, list[_Maker]] = {}
    for file in files.values():
        for part in file.parts():
            _understand(part, makers)
    used = {name for text in users for name in _mentions(_plain(text))}
    for file in files.values():
        used |= _mentions("\n".join(file.conditions))
    count = -1
    while count != len(used):
        count = len(used)
        for file in files.values():
            for part in file.parts():
                _keep(part, makers, used)
    texts: dict[str, str] = {}
    includes: dict[str, tuple[str, ...]] = {}
    for name, file in files.items():
        others = _expanded(file.includes, includes)
        if any(part.kept and not part.is_directive for part in file.parts()):
            includes[name] = (f'#include "{name}"',)
            texts[name] = file.text(others)
        else:
            includes[name] = others
    return Pruned(texts, includes)


def prune_folder(texts: dict[str, str], folder: str, names: Sequence[str]) -> None:
    """Leave of headers in a folder of a package, in their order, what the other files use.

    ``texts`` are the package's, by their paths; they include the headers from beside the folder, or
    from within it. Headers of which nothing is left go.
    """
    paths = {name: f"{folder}/{name}".lstrip("/") for name in names}
    helpers = set(paths.values())
    users = [text for path, text in texts.items() if path not in helpers]
    left = pruned({name: texts.pop(path) for name, path in paths.items()}, users)

    def included(match: re.Match[str]) -> str:
        before = f'#include "{match[1]}'
        lines = left.includes.get(match[2], (match[0],))
        return "\n".join(line.replace('#include "', before) for line in lines)

    inclusion = re.compile(rf'#include "((?:\.\./{folder}/)?)({"|".join(names)})"')
    for path, text in texts.items():
        texts[path] = inclusion.sub(included, text)
    texts |= {paths[name]: text for name, text in left.texts.items()}


def drop_unread(texts: dict[str, str], folder: str) -> None:
    """Leave out the headers in a folder of a package that no other file includes."""
    headers = {path for path in texts if path.startswith(f"{folder}/") and path.endswith(".h")}
    waiting = [path for path in texts if path not in headers]
    read = set(waiting)
    while waiting:
        path = waiting.pop()
        for name in _OWN.findall(texts[path]):
            place = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
            if place in texts and place not in read:
                read.add(place)
                waiting.append(place)
    for path in [path for path in texts if path not in read]:
        del texts[path]


def _expanded(lines: Iterable[str], includes: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Include lines, those of headers that are gone replaced by what these include."""
    found: list[str] = []
    for line in lines:
        match = _OWN.match(line)
        found += includes[match[1]] if match else [line]
    return tuple(dict.fromkeys(found))


def _plain(text: str) -> str:
    """A text with blanks for comments and strings, line by line."""
    return _HIDDEN.sub(lambda hidden: re.sub(r"[^\n]", " ", hidden[0]), text)


def _mentions(plain: str) -> set[str]:
    return set(_NAME.findall(plain))


class _File:
    """A header with a guard around it: remarks, includes, parts."""

    def __init__(self, text: str) -> None:
        lines, plain = _joined(text.splitlines(), _plain(text).splitlines())
        start = next(n for n, line in enumerate(lines) if line.startswith("#ifndef"))
        end = max(n for n, line in enumerate(lines) if line.startswith("#endif"))
        self.head, self.tail = lines[: start + 2], lines[end:]
        self.includes: list[str] = []
        body = range(start + 2, end)
        self.conditions: list[str] = []
        self.content = self._read([(lines[n], plain[n]) for n in body])

    def _read(self, rows: Sequence[tuple[str, str]]) -> list[_Part | _Choice]:
        """The parts and choices of a header's lines, without includes at the top."""
        read: list[_Part | _Choice] = []
        stack: list[tuple[list[_Part | _Choice], _Choice]] = []
        lines: list[str] = []
        plain: list[str] = []
        for number, (line, bare) in enumerate(rows):
            word = bare.split(None, 1)[0] if bare.strip() else ""
            has_code = any(text.strip() for text in plain)
            if word.startswith(("#if", "#elif")):
                self.conditions.append(bare)
            if not has_code and word.startswith("#if"):
                choice = _Choice(lines)
                read.append(choice)
                stack.append((read, choice))
                read = []
                choice.branches.append((line, read))
                lines, plain = [], []
                continue
            if not has_code and stack and word in ("#elif", "#else"):
                read = []
                stack[-1][1].branches.append((line, read))
                continue
            if not has_code and stack and word == "#endif":
                read, _ = stack.pop()
                lines, plain = [], []
                continue
            if not has_code and word == "#include" and not stack:
                self.includes.append(line)
                continue
            lines.append(line)
            plain.append(bare)
            following = rows[number + 1][1] if number + 1 < len(rows) else ""
            if _ends("\n".join(plain), following):
                read.append(_Part(lines, "\n".join(plain).strip()))
                lines, plain = [], []
        return read

    def parts(self) -> Iterator[_Part]:
        """All parts, also after conditions."""
        waiting = list(reversed(self.content))
        while waiting:
            item = waiting.pop()
            if isinstance(item, _Part):
                yield item
            else:
                waiting += [part for _, parts in reversed(item.branches) for part in parts[::-1]]

    def text(self, includes: Sequence[str]) -> str:
        """Return the text of the header that is kept, with the given lines of includes."""
        lines = [*self.head, "", *includes, *([""] if includes else [])]
        for item in self.content:
            lines += _lines(item)
        text = "\n".join([*lines, "", *self.tail])
        text = re.sub(r"^}\n(?=[^#\n])|^(?=/\*)", r"\g<0>\n", text, flags=re.MULTILINE)
        return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def _joined(lines: list[str], plain: list[str]) -> tuple[list[str], list[str]]:
    """Conditions of several lines as one each."""
    whole: tuple[list[str], list[str]] = [], []
    for line, bare in zip(lines, plain, strict=True):
        before = whole[1][-1] if whole[1] else ""
        if before.startswith(("#if", "#elif")) and before.rstrip().endswith("\\"):
            whole[0][-1] += f"\n{line}"
            whole[1][-1] += f"\n{bare}"
        else:
            whole[0].append(line)
            whole[1].append(bare)
    return whole


def _ends(plain: str, following: str) -> bool:
    """Return True if a part is complete: its brackets are balanced and no body follows it."""
    if not plain.strip():
        return False
    last = plain.rstrip()
    if last.lstrip().startswith("#"):
        return not last.endswith("\\")
    balanced = all(last.count(a) == last.count(b) for a, b in ("()", "{}", "[]"))
    return balanced and (
        last.endswith((";", "}")) or (last.endswith(")") and not following.startswith("{"))
    )


def _understand(part: _Part, makers: dict[str, list[_Maker]]) -> None:
    """Find what a part defines."""
    text = part.plain
    if define := _DEFINE.match(text):
        part.names = frozenset({define[1]})
        parameters = tuple(word.strip() for word in (define[2] or "").split(","))
        if made := _MADE.findall(define[3]):
            part.maker = _maker(part, parameters, made)
            makers.setdefault(define[1], []).append(part.maker)
        return
    if text.startswith("#"):
        return
    if (kind := _TYPE.match(text)) or (kind := _STRUCTURE.match(text)):
        part.names = frozenset({kind[1]})
    elif (call := _CALL.fullmatch(text)) and call[1] in makers:
        arguments = _arguments(call[2])
        part.names = frozenset(
            maker.with_arguments(name, arguments)
            for maker in makers[call[1]]
            for name, _ in maker.pieces
        )
    elif text.startswith(("static ", "INLINE ")):
        head = _ATTRIBUTE.sub(" ", text.partition("{")[0])
        if function := _FUNCTION.search(head):
            part.names = frozenset({function[1]})


def _arguments(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")]


def _maker(part: _Part, parameters: tuple[str, ...], made: Sequence[str]) -> _Maker:
    """A macro's body, a piece for each function."""
    first = next(n for n, line in enumerate(part.lines) if line.startswith("#define"))
    pieces: list[tuple[str, str]] = []
    for line in part.lines[first + 1 :]:
        if _MADE.search(line):
            pieces.append((made[len(pieces)], line))
        elif pieces:
            name, before = pieces[-1]
            pieces[-1] = name, f"{before}\n{line}"
    return _Maker(parameters, "\n".join(part.lines[: first + 1]), pieces)


def _keep(part: _Part, makers: Mapping[str, list[_Maker]], used: set[str]) -> None:
    """Keep a part that is used, and note what it uses."""
    call = _CALL.fullmatch(part.plain)
    if call and call[1] in makers:
        if part.names is None or not part.names & used:
            return
        part.kept = True
        used |= _mentions(part.plain)
        arguments = _arguments(call[2])
        for maker in makers[call[1]]:
            for number, (name, text) in enumerate(maker.pieces):
                if maker.with_arguments(name, arguments) in used:
                    maker.kept.add(number)
                    used |= _mentions(_plain(maker.with_arguments(text, arguments)))
        return
    if part.kept or (part.names is not None and not part.names & used):
        return
    part.kept = True
    if part.maker is not None:
        return  # What its pieces mention, calls tell.
    mentioned = _mentions(part.plain)
    used |= mentioned
    for name in mentioned & makers.keys():
        for maker in makers[name]:  # Other macros may call it with anything.
            maker.kept.update(range(len(maker.pieces)))
            used |= _mentions(_plain("\n".join(text for _, text in maker.pieces)))


def _lines(item: _Part | _Choice) -> list[str]:
    """The lines of what is kept."""
    if isinstance(item, _Part):
        if not item.kept:
            return []
        return item.lines if item.maker is None else _maker_lines(item.maker)
    inner = [(head, _branch_lines(parts)) for head, parts in item.branches]
    if not any(lines for _, lines in inner):
        return []
    return [*item.before, *(line for head, lines in inner for line in (head, *lines)), "#endif"]


def _branch_lines(parts: Sequence[_Part | _Choice]) -> list[str]:
    """The lines of a branch, whose includes are for what else is kept of it."""
    kept = [(part, lines) for part in parts if (lines := _lines(part))]
    includes = [
        isinstance(part, _Part) and part.is_directive and part.plain.startswith("#include")
        for part, _ in kept
    ]
    return [] if all(includes) else [line for _, lines in kept for line in lines]


def _maker_lines(maker: _Maker) -> list[str]:
    """A macro with the pieces that some call needs."""
    kept = [text for number, (_, text) in enumerate(maker.pieces) if number in maker.kept]
    lines = [*maker.head.splitlines(), *"\n".join(kept).splitlines()]
    return [*lines[:-1], lines[-1].rstrip("\\ ")]
