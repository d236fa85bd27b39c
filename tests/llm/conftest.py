"""Packages of language models are built file by file: those of two networks lie in one folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tilewright.codegen.c import compiler
from tilewright.codegen.host import library


@pytest.fixture(autouse=True)
def built_by_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(
        sources: Sequence[Path], target: Path, includes: Sequence[Path], flags: Sequence[str]
    ) -> None:
        plain = ["-O1" if flag == "-O2" else flag for flag in flags]
        compiler.build_library(sources, target, includes, plain)

    monkeypatch.setattr(library, "build_library", build)
