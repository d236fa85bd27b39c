"""Build packages' C as one file, which takes half the time, and without optimisation a tenth.

What is tested is meaning. The compiler reads the headers that a package's files share once.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from tilewright.codegen.c import compiler, libraries
from tilewright.codegen.c.compiler import build_library, find_compiler
from tilewright.codegen.host import library
from tilewright.targets.cpu.headers import HEADERS
from tilewright.targets.cpu.headers import header as support

FLAGS = ("-std=gnu11", "-march=native", "-fPIC", "-shared", "-w", "-D_GNU_SOURCE")

OWN = r"^(?:(?:static|INLINE) [\w ]*?|struct )(\w+)(?=\(|\[\]| \{$)"
"""Names that a file keeps to itself: static functions and tables, and structures."""


def build(program: Path, library: Path) -> Path:
    """Build the package's library; raises AssertionError with what the compiler says."""
    return build_together({"": program}, library)


def build_libraries_as_one(optimise: bool) -> None:
    """From now on, build the libraries of packages by ``build_as_one``.

    What is kept of it is for builds of this kind alone: the last bits of another's may differ."""
    kind = "optimised" if optimise else "quick"

    def version() -> str:
        plain = compiler.compiler_version()
        return f"{plain}, {kind}" if plain else ""

    library.build_library = partial(build_as_one, optimise=optimise)
    libraries.compiler_version = version


def build_as_one(
    sources: Sequence[Path],
    target: Path,
    includes: Sequence[Path],
    flags: Sequence[str],
    *,
    optimise: bool,
) -> None:
    """A package's library with the flags that are asked for, unless it is not to be optimised.

    Stands for ``build_library`` in the runner.
    """
    plain = ["-O0" if flag == "-O2" else flag for flag in flags]
    kernels = list(sources[0].parent.glob("*_kernels.h"))
    # A machine's functions, in few files, and two networks, whose headers have the same names.
    if any(path.parent.name == "shim" for path in sources) or len(kernels) > 1:
        build_library(sources, target, includes, flags if optimise else plain)
        return
    with tempfile.TemporaryDirectory(prefix="tilewright-") as scratch:
        unit = Path(scratch) / "unit.c"
        text = one_file(sources[0].parent.parent)
        for folder in includes:
            text = text.replace(f'#include "{folder}/', '#include "')
        unit.write_text(text)
        build_library([unit], target, includes, flags if optimise else plain)


def build_together(
    programs: Mapping[str, Path], library: Path, options: Sequence[str] = ("-O0",)
) -> Path:
    """Build packages, each with a prefix of its own, as one library.

    The compiler reads the headers that they share once. Raises AssertionError with what it says.
    """
    unit, headers = library.with_suffix(".c"), library.with_suffix("")
    headers.mkdir()  # Of this library: another that is built meanwhile does not read half a file.
    for name in HEADERS:
        (headers / name).write_text(support(name))
    unit.write_text("\n".join(one_file(program, prefix) for prefix, program in programs.items()))
    folders = [f"-I{folder}" for folder in (headers, *(p / "src" for p in programs.values()))]
    command = [*find_compiler(), *FLAGS, *options, *folders, str(unit), "-o", str(library), "-lm"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{unit.name}: {ran.stderr[:2000]}"
    return library


def one_file(program: Path, prefix: str = "") -> str:
    """A package's sources as one; their static functions get names of their own."""
    lines: list[str] = []
    for source in sorted((program / "src").glob("*.c")):
        text = source.read_text()
        if own := dict.fromkeys(re.findall(OWN, text, re.MULTILINE)):
            # All at once: a pass for each name takes twice as long.
            names = rf"\b({'|'.join(own)})\b(?!\.h)"
            text = re.sub(names, rf"{prefix}_{source.stem}_\1", text)
        for header in sorted((program / "src").glob("*_kernels.h")):
            text = text.replace(f'#include "{header.name}"', header.read_text())
        if prefix:  # Helpers have the same names in all packages: they are read once for all.
            names = "|".join(HEADERS)
            text = re.sub(rf'#include "\w+_({names})"', r'#include "\1"', text)
        for header in sorted((program / "include").glob("*.h")):
            text = text.replace(f'#include "{header.name}"', f'#include "{header}"')
        lines.append(text)
    return "\n".join(lines)
