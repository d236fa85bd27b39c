"""Processors that tests may take this one for: ``pytest --as-cpu NAME``.

What a description changes is what is planned and written where no processor is named: lanes,
caches, cores, and which primitives there are. The compiler still builds for the processor at hand;
where that one lacks what is described, tests that would build such C are skipped.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tilewright.targets.cpu import builds, processors
from tilewright.targets.cpu.builds import NATIVE, Build
from tilewright.targets.cpu.tiles import TILE_FLAGS

_WIDE = "fma avx2 avx512f avx512bw avx512cd avx512dq avx512vl avx512_vnni avx512_bf16"

CPUINFO: Mapping[str, str] = {
    "xeon-amx": f"vendor_id : GenuineIntel\ncpu family : 6\nflags : {_WIDE} {' '.join(TILE_FLAGS)}",
    "zen5": f"vendor_id : AuthenticAMD\ncpu family : 26\nflags : {_WIDE}",
    "zen3": "vendor_id : AuthenticAMD\ncpu family : 25\nflags : fma avx2",
    "sse2": "vendor_id : GenuineIntel\ncpu family : 6\nflags : sse2",
}
"""Enough of what Linux says of each."""

CORES = 8


def take_for(name: str) -> None:
    """Let ``this_processor`` give the named one for as long as this process lives."""
    known = processors.this_processor
    known.cache_clear()
    with (
        patch.object(processors, "cpuinfo", return_value=CPUINFO[name]),
        patch.object(processors, "cache_sizes", return_value={}),
        patch.object(processors, "tiles_supported", return_value=True),
        patch.object(processors, "defines", return_value=True),
        patch.object(os, "cpu_count", return_value=CORES),
    ):
        known()  # Which keeps its answer.


def runs_here(name: str) -> bool:
    """Whether the processor at hand has all that the named one has."""
    found = re.search(r"^flags\s*:(.*)$", builds.cpuinfo(), re.MULTILINE)
    own = found[1].split() if found else []
    return set(CPUINFO[name].rpartition(":")[2].split()) <= set(own)


def skipping(run_compiler: Callable[..., Any]) -> Callable[..., Any]:
    """Skip the test that would build for the processor at hand what is planned for another."""

    def run(command: Sequence[str | Path], *rest: Any, **options: Any) -> Any:
        if "-march=native" in command:
            pytest.skip("what is planned for the processor described is not built here")
        return run_compiler(command, *rest, **options)

    return run


def refuse_foreign(build: Build, *, tiles: bool = False) -> None:
    """``builds.refuse_foreign``, but for what is planned for the processor described."""
    if build.name == NATIVE and tiles:
        pytest.skip("matrix tiles of the processor described are not run here")
    builds.refuse_foreign(build, tiles=tiles)
