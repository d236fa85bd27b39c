"""Build a package's C in the cheapest way: one file, no optimisation. What is tested is meaning."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tilewright.targets.cpu.compiler import find_compiler

FLAGS = ("-std=gnu11", "-O0", "-march=native", "-fPIC", "-shared", "-w", "-D_GNU_SOURCE")


def build(program: Path, library: Path) -> Path:
    """Build the package's library; raises AssertionError with what the compiler says."""
    unit = library.with_suffix(".c")
    unit.write_text(one_file(program))
    search = [f"-I{program / part}" for part in ("src", "include")]
    command = [find_compiler(), *FLAGS, *search, str(unit), "-o", str(library), "-lm"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{unit.name}: {ran.stderr[:2000]}"
    return library


def one_file(program: Path) -> str:
    """A package's sources as one; their static functions get names of their own."""
    lines: list[str] = []
    for source in sorted((program / "src").glob("*.c")):
        text = source.read_text()
        for stem in re.findall(r"^static \w+ (\w+)\(", text, re.MULTILINE):
            text = re.sub(rf"\b{stem}\b", f"{source.stem}_{stem}", text)
        lines.append(text)
    return "\n".join(lines)
