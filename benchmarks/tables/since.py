"""since: lines of src/ by folder, and cycles of small networks, at an earlier commit and now."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.papers.dlir.experiments import TARGETS
from benchmarks.papers.dlir.measure import source_of
from benchmarks.report import Column, Table, whole

TITLE = "Lines of src/ and simulated cycles, before and now"

NETWORKS = ("f3c98a4",)
"""The commits that are compared with what is there now."""

ROOT = Path(__file__).parents[2]
SOURCE = "src/tilewright"
DLIR = "benchmarks/results/dlir.json"
"""Where a commit keeps the cycles of networks."""

SMALL = ("lenet5", "cifar10_quick")
"""Networks whose cycles are simulated again."""

ENDINGS = (".py", ".c", ".h", ".lark", ".hlal", ".toml")


def lines_at(commit: str) -> Mapping[str, int]:
    """Lines of each file of the package at a commit, by its path below the package."""
    ran = subprocess.run(
        ["git", "grep", "-c", "", commit, "--", SOURCE],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, int] = {}
    for line in ran.stdout.splitlines():
        path, _, count = line.removeprefix(f"{commit}:{SOURCE}/").rpartition(":")
        found[path] = int(count)
    return found


def lines_now() -> Mapping[str, int]:
    """The same of the working tree."""
    source = ROOT / SOURCE
    return {
        path.relative_to(source).as_posix(): len(path.read_bytes().splitlines())
        for path in sorted(source.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def folder_of(path: str) -> str:
    """The room of a file; rooms in targets/, codegen/ and integrations/ each count alone."""
    first, *rest = path.split("/")
    if not rest:
        return "(files beside the rooms)"
    alone = first in ("targets", "codegen", "integrations") and len(rest) > 1
    return f"{first}/{rest[0]}" if alone else first


def by_folder(lines: Mapping[str, int]) -> tuple[Counter[str], Counter[str]]:
    """Files and lines of each folder; only what is written by hand."""
    files, total = Counter[str](), Counter[str]()
    for path, count in lines.items():
        if path.endswith(ENDINGS):
            files[folder_of(path)] += 1
            total[folder_of(path)] += count
    return files, total


def table_of(commit: str) -> Table:
    """Files and lines of each folder, at a commit and now."""
    old_files, old_lines = by_folder(lines_at(commit))
    new_files, new_lines = by_folder(lines_now())
    rows = [
        {
            "folder": folder,
            "old_files": old_files[folder],
            "old": old_lines[folder],
            "files": new_files[folder],
            "now": new_lines[folder],
            "change": new_lines[folder] - old_lines[folder],
        }
        for folder in sorted({*old_lines, *new_lines})
    ]
    totals = {key: sum(row[key] for row in rows) for key in rows[0] if key != "folder"}
    columns = (
        Column("folder", "folder"),
        Column("old_files", f"files at {commit}", whole),
        Column("old", f"lines at {commit}", whole),
        Column("files", "files now", whole),
        Column("now", "lines now", whole),
        Column("change", "change", lambda value: f"{value:+,}"),
    )
    remarks = (
        f"Files that end in {', '.join(ENDINGS)}, comments and empty lines included.",
        "A file that moved counts in its old folder before and in its new one now.",
    )
    return Table(f"Lines since {commit}", columns, [*rows, {"folder": "all", **totals}], remarks)


def cycles_at(commit: str) -> Mapping[tuple[str, str], float]:
    """Cycles that a commit's own results have, by network and target."""
    ran = subprocess.run(
        ["git", "show", f"{commit}:{DLIR}"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    rows = json.loads(ran.stdout)["tables"][0]["rows"]
    return {(row["network"], row["target"]): row["cycles"] for row in rows}


def cycles_now(network: str, target: str) -> float:
    """Simulated cycles of the kernels on the accelerator."""
    import tilewright

    model, options = source_of(network)
    made = tilewright.compile(model, target, **options)
    random = np.random.default_rng(0)
    shapes = {info.name: [int(size) for size in info.shape] for info in made.inputs}
    made.run({name: random.standard_normal(s).astype(np.float32) for name, s in shapes.items()})
    kernels: list[dict[str, Any]] = made.summary()["kernels"]
    return sum(float(k["cycles"]) for k in kernels if k["engine"] == "accelerator")


def cycles_table(commit: str) -> Table:
    """Cycles of the small networks at a commit and now."""
    then, rows = cycles_at(commit), list[dict[str, Any]]()
    for network in SMALL:
        for target in TARGETS:
            old, now = then[network, target], cycles_now(network, target)
            change = now / old - 1
            rows.append(
                {"network": network, "target": target, "old": old, "now": now, "change": change}
            )
    columns = (
        Column("network", "network"),
        Column("target", "target"),
        Column("old", f"cycles at {commit}", whole),
        Column("now", "cycles now", whole),
        Column("change", "change", lambda value: f"{100 * value:+.2f} %"),
    )
    remark = f"Cycles at {commit} are those of that commit's {DLIR}."
    return Table(f"Cycles since {commit}", columns, rows, (remark,))


def tables(networks: Sequence[str]) -> list[Table]:
    """Two tables for each commit."""
    return [table for commit in networks for table in (table_of(commit), cycles_table(commit))]
