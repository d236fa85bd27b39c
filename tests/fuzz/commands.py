"""``plan`` and ``explain`` say of every kernel what ``compile`` makes of it."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from typer.testing import CliRunner

from tests.fuzz.cases import Case
from tilewright.cli.main import app


def disagreement(case: Case, target: str, options: tuple[str, ...] = ()) -> str:
    """The first kernel of which the commands differ, in words; "" where they agree."""
    with TemporaryDirectory() as folder:
        path = case.save(Path(folder))
        given = (str(path), "--target", target, *options)
        made = answer_of("compile", *given, "-o", str(Path(folder) / "package"))
        planned = answer_of("plan", *given)
        explained = answer_of("explain", str(path), "--target", target, *options)
        manifest = json.loads((Path(folder) / "package" / "manifest.json").read_text())
    for command, found in (("compile", made), ("plan", planned), ("explain", explained)):
        if isinstance(found, str):
            return f"{command}: {found}"
    engines = {row["name"]: row["engine"] for row in manifest["kernels"]}
    rows: Any = planned
    plans = {row["name"]: row["engine"] for row in rows["kernels"]}
    if plans != engines:
        return f"plan has {_apart(plans, engines)} that compile has not"
    told: Any = explained
    named = {row["name"] for row in manifest["kernels"] if row["nodes"]}
    told: Any = explained
    untold = set(named)
    for row in told["added_kernels"]:
        if engines.get(row["name"]) != row["engine"]:
            return f"explain has {row['name']} on {row['engine']}"
    for node in told["nodes"]:
        # A node of several kernels is on the host if one of them is.
        places = {engines.get(name, "nothing") for name in node["kernels"]}
        if places and node["place"] != ("host" if "host" in places else places.pop()):
            return f"explain has {node['node']} on {node['place']}"
        untold -= {*node["kernels"]}
    untold -= {row["name"] for row in told["added_kernels"]}
    return f"explain has no {', '.join(sorted(untold))}" if untold else ""


def _apart(found: dict[str, str], wanted: dict[str, str]) -> str:
    return ", ".join(f"{n} on {e}" for n, e in found.items() if wanted.get(n) != e) or "fewer"


def answer_of(*arguments: str) -> Any:
    """What a command prints as JSON; its message where it fails."""
    result = CliRunner().invoke(app, [*arguments, "--json", "--quiet"])
    if result.exit_code:
        return result.output[-400:] or repr(result.exception)
    return json.loads(result.stdout)
