"""Tables of results: how they print, and how they are kept under results/."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"

PEERS = ("numpy", "xdsl", "numba", "onnx", "onnxruntime")

Row = Mapping[str, Any]


def whole(value: float) -> str:
    """1234567 as 1,234,567."""
    return f"{value:,.0f}"


def percent(value: float) -> str:
    """0.971 as 97.1 %."""
    return f"{100 * value:.1f} %"


def seconds(value: float) -> str:
    """With two digits behind the point."""
    return f"{value:.2f}"


def megabytes(value: float) -> str:
    """Bytes in units of a million."""
    return f"{value / 1e6:.1f}"


@dataclass(frozen=True)
class Column:
    """One column: the key in a row, the heading, and how a value is written."""

    key: str
    heading: str
    form: Callable[[Any], str] = str

    def cell(self, row: Row) -> str:
        """The text of one cell; ``-`` where a row has no value."""
        value = row.get(self.key)
        return "-" if value is None else self.form(value)


@dataclass(frozen=True)
class Table:
    """A titled table with remarks under it."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    remarks: Sequence[str] = ()

    def markdown(self) -> str:
        """The table as markdown, its columns aligned."""
        lines = [[c.heading for c in self.columns]]
        lines += [[column.cell(row) for column in self.columns] for row in self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.columns))]
        texts = [
            "| " + " | ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) + " |"
            for line in lines
        ]
        texts.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
        remarks = [f"- {remark}" for remark in self.remarks]
        parts = [f"## {self.title}", "\n".join(texts), "\n".join(remarks)]
        return "\n\n".join(part for part in parts if part) + "\n"


def processor() -> str:
    """The processor as the system names it."""
    path = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.*)", path.read_text()) if path.exists() else None
    return found.group(1) if found else platform.processor()


def surroundings() -> dict[str, Any]:
    """What figures depend on besides the code."""
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        **{name: version(name) for name in PEERS},
    }


def text_of(title: str, tables: Iterable[Table], about: Mapping[str, Any]) -> str:
    """A page of tables."""
    line = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in about.items())
    return "\n".join([f"# {title}\n", f"{line}\n", *(table.markdown() for table in tables)])


def keep(name: str, title: str, tables: Sequence[Table], about: Mapping[str, Any]) -> None:
    """Write ``results/NAME.md`` and ``results/NAME.json``."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.md").write_text(text_of(title, tables, about))
    content = {
        "about": about,
        "tables": [{"title": table.title, "rows": list(table.rows)} for table in tables],
    }
    (RESULTS / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")
