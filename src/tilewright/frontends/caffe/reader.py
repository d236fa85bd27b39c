"""Read a prototxt: text into Caffe's NetParameter."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from tilewright.errors import Problem, refuse
from tilewright.frontends.caffe.limits import MAX_TEXT_BYTES
from tilewright.frontends.caffe.schema import message_class
from tilewright.frontends.files import read_file
from tilewright.frontends.limits import shown


@dataclass(frozen=True)
class Source:
    """A parsed prototxt and where it came from."""

    net: Any
    """The parsed NetParameter of the network."""
    digest: str
    title: str
    """The file's name in messages."""
    problems: tuple[Problem, ...] = ()
    """Problems of a text that could still be parsed."""


def read_prototxt(path: str | Path) -> Source:
    """Parse a prototxt; raises TilewrightError."""
    title = shown(str(path))
    data = read_file(Path(path), "caffe", MAX_TEXT_BYTES, Path.read_bytes)
    net, problems = parse_text(data, title)
    return Source(net, hashlib.sha256(data).hexdigest(), title, tuple(problems))


def parse_text(data: bytes, title: str) -> tuple[Any, list[Problem]]:
    """The text as a NetParameter; a field that Caffe lacks is a problem, and parsing goes on.

    Raises TilewrightError where the text as such is wrong.
    """
    # Comments come in all encodings.
    text = data.decode("utf-8", "replace")
    try:
        return _parse(text, lenient=False), []
    except text_format.ParseError as error:
        strict = error
    except RecursionError as error:
        raise refuse("caffe-syntax", "its braces are nested too deep", where=title) from error
    try:
        net = _parse(text, lenient=True)
    except text_format.ParseError as error:
        raise refuse("caffe-syntax", _message(error), where=title) from error
    except RecursionError as error:
        raise refuse("caffe-syntax", "its braces are nested too deep", where=title) from error
    problem = Problem(
        "caffe-field",
        _message(strict),
        title,
        "Caffe's own format has no such field; where it does not matter, remove it",
    )
    return net, [problem]


def _parse(text: str, *, lenient: bool) -> Any:
    net = message_class("NetParameter")()
    text_format.Parse(text, net, allow_unknown_field=lenient)
    return net


def _message(error: text_format.ParseError) -> str:
    """One line: place and reason, without the names of our own package."""
    text = " ".join(str(error).replace("tilewright.caffe.", "").split())
    line, column = error.GetLine(), error.GetColumn()
    if line is None:
        return text
    return f"line {line}: {text.removeprefix(f'{line}:{column} : ')}"
