"""AscendNPU-IR's ``bishengir-opt``, where it is installed (``make test-oracles``)."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from math import prod
from pathlib import Path

import pytest

VARIABLE = "BISHENGIR_OPT"
"""Names the binary."""

OPTIONS = (
    "--hacc-append-device-spec=target=Ascend910B2",
    "--hivm-plan-memory",
    "--hivm-inject-sync",
)
"""Places buffers and adds flags; the first names the processor, whose sizes the others take."""

TOOL = os.environ.get(VARIABLE, "")

needs_oracle = pytest.mark.skipif(
    not Path(TOOL).is_file(), reason=f"{VARIABLE} names no bishengir-opt; make test-oracles does"
)


def bishengir_opt(text: str, options: Sequence[str] = ()) -> str:
    """What the tool prints of a module; fails with what it says of a module that it refuses."""
    done = subprocess.run(
        [TOOL, "-", *options], input=text, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr[:2000]
    return done.stdout


CAST = re.compile(
    r"hivm\.hir\.pointer_cast\((?P<addresses>[^)]*)\).* : "
    r"memref<(?P<sizes>[0-9x]+)x(?P<element>f16|f32), #hivm\.address_space<(?P<space>\w+)>>"
)
WIDTHS = {"f16": 2, "f32": 4}


def planned_bytes(planned: str) -> dict[str, int]:
    """The end of the last buffer in each memory, where the tool has placed all of them."""
    constants = dict(re.findall(r"(%\w+) = arith\.constant (\d+) : i64", planned))
    ends: dict[str, int] = {}
    casts = list(CAST.finditer(planned))
    assert len(casts) == planned.count("hivm.hir.pointer_cast")
    for cast in casts:
        size = prod(map(int, cast["sizes"].split("x"))) * WIDTHS[cast["element"]]
        for address in cast["addresses"].split(","):
            end = int(constants[address.strip()]) + size
            ends[cast["space"]] = max(ends.get(cast["space"], 0), end)
    return ends


def missing_functions(text: str) -> set[str]:
    """The functions of the vendor's device library that operations of a module become calls of, and
    that it does not have for these cores."""
    lowered = bishengir_opt(text, (*OPTIONS, "--convert-hivm-to-std"))
    called = set(re.findall(r"call @(\w+)", lowered))
    assert called
    folder = Path(TOOL).parents[1] / "lib"
    library = b"".join((folder / f"meta_op.{core}.bc").read_bytes() for core in ("aic", "aiv"))
    return {name for name in called if f"_mlir_ciface_{name}".encode() not in library}
