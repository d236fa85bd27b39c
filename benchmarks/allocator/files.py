"""The CSV in which allocation problems and their solutions are published, as MiniMalloc has it.

A row is a buffer: ``id,lower,upper,size``, live in [lower, upper), or with the older names
``buffer_id,start,end,size``, whose end is the last step. ``alignment`` and ``offset`` may follow. A
capacity stands in the name of the file, before the ending: ``A.1048576.csv``.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from tilewright.memory import Buffer, Problem

MOST_ROWS = 100_000

_ALIASES = {"buffer": "id", "buffer_id": "id", "start": "lower", "begin": "lower", "end": "last"}


def write_problem(path: Path, problem: Problem, offsets: Sequence[int] = ()) -> None:
    """Write a problem, and its solution if there is one."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        solved = bool(offsets)
        aligned = problem.alignment > 1
        head = ["id", "lower", "upper", "size"]
        writer.writerow(head + ["alignment"] * aligned + ["offset"] * solved)
        for number, b in enumerate(problem.buffers):
            row = [b.name, b.first, b.last + 1, b.size] + [problem.alignment] * aligned
            writer.writerow(row + ([offsets[number]] if offsets else []))


def read_problem(path: Path) -> tuple[Problem, tuple[int, ...]]:
    """A file's problem, and its solution, empty if it has none.

    The alignment is the largest of the buffers', the capacity that of the file's name. Raises
    ValueError with the line of what is no buffer.
    """
    buffers: list[Buffer] = []
    offsets: list[int] = []
    alignment = 1
    with path.open(newline="") as file:
        reader = csv.reader(file)
        head = [_ALIASES.get(name.strip(), name.strip()) for name in next(reader, [])]
        if not {"id", "lower", "size"} <= set(head) or ("upper" in head) == ("last" in head):
            raise ValueError(f"{path}: the first line must name id, lower, upper, size")
        if len(set(head)) < len(head):
            raise ValueError(f"{path}: the first line names a column twice")
        if "gaps" in head:
            raise ValueError(f"{path}: buffers with gaps in their lives are not read")
        for cells in filter(None, reader):
            where = f"{path}, line {reader.line_num}"
            if len(cells) != len(head):
                raise ValueError(f"{where}: {len(cells)} fields, not {len(head)}")
            row = dict(zip(head, cells, strict=True))
            try:
                buffer, own = _buffer(row)
                if "offset" in row:
                    offsets.append(int(row["offset"]))
            except ValueError as error:
                raise ValueError(f"{where}: {error}") from error
            if len(buffers) == MOST_ROWS:
                raise ValueError(f"{where}: more than {MOST_ROWS} buffers")
            buffers.append(buffer)
            alignment = max(alignment, own)
    return Problem(tuple(buffers), alignment, capacity_of(path)), tuple(offsets)


def _buffer(row: Mapping[str, str]) -> tuple[Buffer, int]:
    """A row as a buffer with its alignment; raises ValueError."""
    lower, size = int(row["lower"]), int(row["size"])
    last = int(row["upper"]) - 1 if "upper" in row else int(row["last"])
    alignment = int(row.get("alignment", "1"))
    if not 0 <= lower <= last or size < 0 or alignment < 1:
        raise ValueError("no buffer")
    return Buffer(row["id"], size, lower, last), alignment


def capacity_of(path: Path) -> int | None:
    """The capacity in a file's name; None if there is none."""
    text = path.stem.rpartition(".")[2] if "." in path.stem else ""
    return int(text) if text.isdecimal() else None


def check(buffers: Sequence[Buffer], offsets: Sequence[int]) -> int:
    """Bytes that a solution takes; raises ValueError where live buffers overlap."""
    order = sorted(range(len(buffers)), key=lambda i: buffers[i].first)
    live: list[int] = []
    for i in order:
        live = [j for j in live if buffers[j].last >= buffers[i].first]
        for j in live:
            apart = offsets[i] + buffers[i].size <= offsets[j]
            if not apart and offsets[j] + buffers[j].size > offsets[i]:
                raise ValueError(f"{buffers[i].name} and {buffers[j].name} overlap")
        live.append(i)
    return max((o + b.size for o, b in zip(offsets, buffers, strict=True)), default=0)
