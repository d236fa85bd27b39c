"""Names of a model, and tables, as lines of text."""

from __future__ import annotations

from collections.abc import Sequence


def printable(name: str) -> str:
    """A model's name as one line of text."""
    return "".join(c if c.isprintable() else "\ufffd" for c in name)


def table(rows: Sequence[Sequence[str]], texts: int) -> list[str]:
    """A line for each row, its columns as wide as they must be: the first ``texts`` of them begin
    at the left, the others end at the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if place < texts else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
