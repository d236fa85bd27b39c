"""AscendNPU-IR's ``bishengir-opt``, where it is installed (``make test-oracles``)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
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
