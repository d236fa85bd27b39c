"""The processors that C is built for: a name, compiler flags, and what a processor must have.

A package that is there is run with this alone; what planning asks of a processor is in
processors.py, which takes longer to import.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tilewright.errors import choose, refuse
from tilewright.targets.cpu.tiles import TILE_FLAGS, tiles_granted

NATIVE = "native"
"""The name of the processor at hand."""

X86 = "x86_64"


@dataclass(frozen=True, kw_only=True)
class Build:
    """Flags by which C is built for a processor, and where the result runs."""

    name: str = NATIVE
    flags: tuple[str, ...] = ("-march=native",)
    """Options for GCC and Clang."""
    architecture: str = ""
    """Machines that run it, as the system calls them; "" for any."""
    needs: tuple[str, ...] = ()
    """Flags that /proc/cpuinfo lists on x86 machines that run it."""


_AVX512 = ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_BUILDS = (
    Build(),
    Build(name="avx512", flags=("-march=x86-64-v4",), architecture=X86, needs=_AVX512),
    Build(
        name="amx",
        flags=("-march=sapphirerapids",),
        architecture=X86,
        needs=(*_AVX512, *TILE_FLAGS),
    ),
    Build(
        name="avx2",
        flags=("-march=x86-64-v3",),
        architecture=X86,
        needs=("avx2", "fma", "bmi2", "f16c"),
    ),
    Build(name="sse2", flags=("-march=x86-64",), architecture=X86),
    Build(name="neon", flags=("-march=armv8-a",), architecture="aarch64"),
    Build(name="portable", flags=()),
    Build(
        name="cortex-m7",
        flags=("-mcpu=cortex-m7", "-mfpu=fpv5-sp-d16", "-mfloat-abi=hard"),
        architecture="armv7e-m",
    ),
)

BUILDS: Mapping[str, Build] = {build.name: build for build in _BUILDS}
"""Every processor that packages are made for, by name."""


def build_of(name: str) -> Build:
    """The build of that name; refuses (``cpu-processor``) an unknown one with the list."""
    if name not in BUILDS:
        raise refuse("cpu-processor", f"no processor {name!r}", help=choose(name, BUILDS))
    return BUILDS[name]


def refuse_foreign(build: Build, *, tiles: bool = False) -> None:
    """Refuse (``cpu-foreign``) to run here what was made for a processor of another kind.

    With ``tiles`` it multiplies on matrix tiles, whatever the processor's name: one that lacks
    them, or a system that keeps them back, is refused as well.
    """
    here = platform.machine().replace("arm64", "aarch64").replace("AMD64", X86)
    flags = listed_flags(cpuinfo())
    needs = dict.fromkeys((*build.needs, *(TILE_FLAGS if tiles else ())))
    missing = [flag for flag in needs if flags and flag not in flags]
    if (build.architecture and build.architecture != here) or missing:
        lacking = f" without {', '.join(missing)}" if missing else ""
        raise refuse(
            "cpu-foreign",
            f"the package is made for {build.name}, and this processor is {here}{lacking}",
            help="build it there with its own Makefile, or compile the model with --cpu native",
        )
    if tiles and not tiles_granted():
        raise refuse(
            "cpu-foreign",
            f"the package is made for {build.name} with matrix tiles (AMX), which the system "
            "refuses",
            help="compile the model for another processor (--cpu avx512)",
        )


def cpuinfo() -> str:
    """Return Linux's description of the processor, /proc/cpuinfo; "" elsewhere."""
    path = Path("/proc/cpuinfo")
    return path.read_text() if path.exists() else ""


def listed_flags(cpuinfo: str) -> set[str]:
    """The instruction sets that a text of /proc/cpuinfo lists on x86."""
    match = re.search(r"^flags\s*:\s*(.*)$", cpuinfo, re.MULTILINE)
    return set(match.group(1).split()) if match else set()
