"""Tables of HTML for notebooks: the summary of a package, rows with heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from tilewright.runtime.glance import SLOWEST, duration, percent, summary_lines, target_name
from tilewright.runtime.texts import printable

if TYPE_CHECKING:
    from tilewright.runtime.executable import Executable


def summary_table(executable: Executable) -> str:
    """The first lines of the report (runtime/glance.py) and the slowest kernels; of a package with
    free dims, its report as it is."""
    manifest = executable.manifest
    if manifest.open_model is not None:
        return f"<pre>{escape(executable.report(), quote=True)}</pre>"
    return facts_table(f"{manifest.model} on {target_name(manifest)}", executable.summary())


def facts_table(title: str, facts: Mapping[str, Any]) -> str:
    """A table of the totals that ``Executable.summary`` gives, and of the slowest kernels."""
    rows = sorted(facts["kernels"], key=lambda row: -(row["time"] or 0.0))
    lines = summary_lines(facts, rows)
    lines += [
        (row["name"], f"{duration(row['time'])}, {percent(row['share'])} of the time")
        for row in rows[:SLOWEST]
        if row["time"] is not None
    ]
    return labelled(title, lines)


def labelled(title: str, lines: Sequence[tuple[str, str]]) -> str:
    """A table of labels and texts under a title."""
    body = "".join(
        f'<tr><th style="text-align:left">{_text(label)}</th>'
        f'<td style="text-align:left">{_text(text)}</td></tr>'
        for label, text in lines
    )
    return f"<table><caption>{_text(title)}</caption><tbody>{body}</tbody></table>"


def columns(title: str, heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table of columns with heads under a title."""
    head = "".join(f"<th>{_text(name)}</th>" for name in heads)
    body = "".join(
        f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in line)}</tr>" for line in lines
    )
    caption = f"<caption>{_text(title)}</caption>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _text(text: str) -> str:
    return escape(printable(text), quote=True)
