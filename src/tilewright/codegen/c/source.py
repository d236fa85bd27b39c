"""C text: names, comments, literals, and a writer that keeps indentation."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from tilewright.codegen.nest.value import variable
from tilewright.numerics.codes import FORMATS

C_TYPES: Mapping[str, str] = {
    "float32": "float",
    "fixed16": "int16_t",
    "fixed32": "int32_t",
    "float64": "double",
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
    "bool": "uint8_t",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    **dict.fromkeys(FORMATS, "uint8_t"),
}
"""Floats of 16 bits are kept as their bits, numbers of fewer than 8 bits and floats of 8 as a code
in the lowest bits of a byte, a boolean as 0 or 1 in a byte."""


def comment(text: str) -> str:
    """Text that can stand in a C comment on one line, whatever a model's author wrote."""
    plain = "".join(c if " " <= c <= "~" else f"\\x{ord(c):x}" for c in text)
    # A trigraph or a backslash at the end of a line would change what follows.
    return (
        plain.replace("*/", "*\\/").replace("/*", "/\\*").replace("??", "?\\?")[:200].rstrip("\\")
    )


def string(text: str) -> str:
    """A C string literal of the text's UTF-8 bytes."""
    parts: list[str] = []
    for byte in text.encode():
        plain = 32 <= byte < 127 and byte not in b'"\\?'
        parts.append(chr(byte) if plain else f"\\{byte:03o}")
    return '"' + "".join(parts) + '"'


def byte_string(numbers: Iterable[int]) -> str:
    """A C string literal of bytes."""
    return '"' + "".join(f"\\{number:03o}" for number in numbers) + '"'


def literal(value: float) -> str:
    """A float literal that reads back as the nearest float32."""
    single = np.float32(value)
    if np.isnan(single):
        return "NAN"
    if np.isinf(single):
        return "INFINITY" if single > 0 else "-INFINITY"
    text = str(single)
    return text + ("f" if "." in text or "e" in text else ".0f")


def total(terms: Sequence[tuple[int, str]], constant: int = 0) -> str:
    """``a*x + b*y + c`` from coefficients and expressions; "0" when nothing is left."""
    return str(sum((variable(name) * coefficient for coefficient, name in terms), constant))


def plus(pointer: str, offset: str) -> str:
    """``pointer + offset`` without a useless zero."""
    if offset == "0":
        return pointer
    return f"{pointer} - {offset[1:]}" if offset.startswith("-") else f"{pointer} + {offset}"


class Writer:
    """Lines of C with indentation."""

    def __init__(self, depth: int = 0) -> None:
        self.lines: list[str] = []
        self.depth = depth

    def line(self, text: str = "") -> None:
        """Append one line of text at the current indentation."""
        self.lines.append("    " * self.depth + text if text else "")

    def text(self, text: str) -> None:
        """Append lines of text, each at the current indentation; one that ends with a new line has
        an empty last one."""
        for line in text.split("\n"):
            self.line(line)

    @contextmanager
    def block(self, head: str = "") -> Generator[None]:
        """Write ``head {``, the body, and ``}``."""
        self.line(f"{head} {{" if head else "{")
        self.depth += 1
        yield
        self.depth -= 1
        self.line("}")

    def __str__(self) -> str:
        return "\n".join(self.lines) + "\n"
