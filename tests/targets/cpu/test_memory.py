"""Memory that a package's runner takes: private, aligned, in large pages where there are any."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest

from tilewright.codegen.host.library import arena, read_weights
from tilewright.errors import TilewrightError

_LARGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def _advice_of(address: int) -> str:
    """VmFlags of the mapping that holds an address; "hg" among them: large pages are asked for."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if found := re.match(r"([0-9a-f]+)-([0-9a-f]+) (\S+)", line):
            inside = int(found[1], 16) <= address < int(found[2], 16)
            if inside and found[3].endswith("s"):
                return "shared"
        elif inside and line.startswith("VmFlags:"):
            return line
    return ""


@pytest.mark.parametrize("size", [0, 1, 5 << 20])
def test_an_arena_is_zeroed_and_aligned(size: int) -> None:
    space = arena(size)
    assert space.nbytes == size
    assert space.ctypes.data % 64 == 0 or size == 0
    assert not space.any()


@pytest.mark.skipif(
    not _LARGE_PAGES.exists() or "[never]" in _LARGE_PAGES.read_text(),
    reason="the system has no large pages",
)
def test_an_arena_asks_for_large_pages() -> None:
    assert re.search(r"\bhg\b", _advice_of(arena(5 << 20).ctypes.data))


def test_weights_are_a_copy_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "weights.bin"
    expected = np.random.default_rng(0).integers(0, 256, 100_001, np.uint8)
    path.write_bytes(expected.tobytes())
    weights = read_weights(path, expected.size)
    os.truncate(path, 0)
    assert np.array_equal(weights, expected)


def test_weights_of_another_size_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.bin"
    path.write_bytes(b"123")
    with pytest.raises(TilewrightError, match="package-invalid"):
        read_weights(path, 4)
