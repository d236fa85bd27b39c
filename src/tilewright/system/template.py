"""Texts of packages that lie in files of their own (``NAME.in``), with names to fill in.

``@name@`` stands for a value; a line that holds one alone goes where the value is empty. Parts
stand under conditions, a line each::

    @if threads
    LIBRARIES = -lm -lpthread
    @else
    LIBRARIES = -lm
    @end
"""

from __future__ import annotations

import re
from pathlib import Path

_LINES = r"((?:(?!@if ).*\n)*?)"
_PART = re.compile(rf"^@if (not )?(\w+)\n{_LINES}(?:@else\n{_LINES})?@end\n", re.MULTILINE)
"""One without others in it."""

_NAME = re.compile(r"^@([a-z_]+)@\n|@([a-z_]+)@", re.MULTILINE)


def filled(template: Path, /, **values: object) -> str:
    """The text of a template with these values; raises KeyError where one is missing."""

    def part(match: re.Match[str]) -> str:
        holds = bool(values[match[2]]) is not bool(match[1])
        return match[3] if holds else match[4] or ""

    def value(match: re.Match[str]) -> str:
        alone = str(values[match[1] or match[2]])
        return alone + "\n" * bool(match[1] and alone)

    text, count = template.read_text(), 1
    while count:
        text, count = _PART.subn(part, text)
    return _NAME.sub(value, text)
