"""The rows of the kept page, for those that this computer has not measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.papers.dlir.measure import gains, partitioning
from benchmarks.report import RESULTS

EFFICIENCY = "Six networks on the configurations of table 5.3"
STUDY = "Beside an independent study"
BUFFERING = "Double buffering, with the granule-aware greedy planner as the base"
PARTITIONING = "Greedy partitioning beside the exact planner"
"""Titles of the page's tables, by which their rows are found again."""

OLDER = ", older"
"""What follows the code of a row that has been measured with other code than today's."""


def digested(result: dict[str, Any]) -> dict[str, Any]:
    """What was measured, with the rows that are made of its plans in their place."""
    rest = {key: value for key, value in result.items() if key != "plans"}
    return rest | {"gains": gains(result), "partitioning": partitioning(result)}


def published(path: Path = RESULTS / "dlir.json") -> dict[tuple[str, str], dict[str, Any]]:
    """The page's rows by network and target, as ``digested`` makes them."""
    if not path.exists():
        return {}
    tables = {table["title"]: table["rows"] for table in json.loads(path.read_text())["tables"]}
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in [*tables.get(STUDY, []), *tables.get(EFFICIENCY, [])]:
        code = str(row.get("code", "unknown")).removesuffix(OLDER)
        found[row["network"], row["target"]] = row | {"code": code, "partitioning": []}
    for row in tables.get(BUFFERING, []):
        if (row["network"], row["target"]) in found:
            found[row["network"], row["target"]]["gains"] = row
    for row in tables.get(PARTITIONING, []):
        if (row["network"], row["target"]) in found:
            found[row["network"], row["target"]]["partitioning"].append(row)
    return found
