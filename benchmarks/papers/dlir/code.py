"""Which code a row was measured with: rows that are older than it are seen."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from pathlib import Path

PARTS = (
    *("frontends/caffe", "frontends/onnx", "graph", "machine", "numerics", "planning"),
    *("simulate", "system", "tile", "targets/generic"),
)
"""What all simulated machines share, beside the modules at the top."""

CACHES = ("cached", "block_cost", "measure", "piece", "registers", "sharing")
"""Modules of planning that only machines behind caches use begin so."""

DIGITS = 8


@cache
def code_of(target: str) -> str:
    """A digest of the sources that decide what a target's rows are."""
    import tilewright
    from tilewright.system.choices import target_points

    root = Path(tilewright.__file__).parent
    own = target_points()[target].module.split(".")[2]
    files = sorted(root.glob("*.py"))
    for part in (*PARTS, f"targets/{own}"):
        files += sorted((root / part).rglob("*.py"))
    digest = sha256()
    for file in files:
        name = file.relative_to(root).as_posix()
        if name.startswith("planning/") and file.name.startswith(CACHES):
            continue
        digest.update(name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:DIGITS]
