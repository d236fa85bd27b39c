"""The summary of a package as a table of HTML, for notebooks."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

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
    facts = executable.summary()
    rows = sorted(facts["kernels"], key=lambda row: -(row["time"] or 0.0))
    lines = summary_lines(facts, rows)
    lines += [
        (row["name"], f"{duration(row['time'])}, {percent(row['share'])} of the time")
        for row in rows[:SLOWEST]
        if row["time"] is not None
    ]
    body = "".join(
        f'<tr><th style="text-align:left">{_text(label)}</th>'
        f'<td style="text-align:left">{_text(text)}</td></tr>'
        for label, text in lines
    )
    title = f"{manifest.model} on {target_name(manifest)}"
    return f"<table><caption>{_text(title)}</caption><tbody>{body}</tbody></table>"


def _text(text: str) -> str:
    return escape(printable(text), quote=True)
