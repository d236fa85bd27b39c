"""The emitted C: its text, and that compilers take it without a warning."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.papers.ascend.fractal import fractalise
from benchmarks.papers.ascend.handovers import synchronised
from benchmarks.papers.ascend.matmul import Matrices, Tiling, matmul
from tests.targets.ascend.cube_kernels import Convolution, levels, program_of
from tests.targets.ascend.element_kernels import elementwise

from tilewright.targets.ascend.emit import kernel_text
from tilewright.targets.ascend.host import SHIM
from tilewright.targets.ascend.machine import ASCEND_910
from tilewright.targets.ascend.program import Program
from tilewright.targets.ascend.vector_primitives import ROOM

GOLDENS = Path(__file__).parent / "goldens"

PROGRAMS: dict[str, Program] = {
    "matmul": matmul(
        Matrices(64, 100, 96, bias=True, relu=True),
        Tiling(32, 112, 48, 16, 48, 48, l1=2, l0=2, l0c=2, ub=2),
        ASCEND_910,
    ),
    "add": elementwise("add", "half", 1000, replace(ASCEND_910, ub=ROOM + 6 * 2 * 256), name="add"),
    "convolution": program_of(
        Convolution(
            20, 9, 7, 24, pads=(1, 1, 1, 1), strides=(2, 1), bias=True, relu=True
        ).of_kernel(),
        levels(
            {"n": 1, "co": 24, "oh": 3, "ci": 20},
            {"n": 1, "co": 16, "oh": 3, "ci": 20, "kh": 1, "kw": 1},
            *(("oh",), ("co", "kh", "kw"), 2, "conv"),
        ),
    ),
    "defractalise": fractalise(40, 33, "improved", ASCEND_910, back=True),
}


@pytest.mark.parametrize("name", ["matmul", "add", "convolution"])
def test_text(name: str) -> None:
    """``python -m tests.targets.ascend.test_emit`` rewrites the files."""
    assert kernel_text(synchronised(PROGRAMS[name])) == (GOLDENS / f"{name}.c").read_text()


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("compiler", [one for one in ("gcc", "clang") if shutil.which(one)])
def test_compilers_have_nothing_to_say(name: str, compiler: str, tmp_path: Path) -> None:
    path = tmp_path / "kernel.c"
    path.write_text(kernel_text(synchronised(PROGRAMS[name])))
    flags = ("-std=gnu11", "-Wall", "-Wextra", "-Werror", f"-I{SHIM}", "-c")
    command = [compiler, *flags, str(path), "-o", str(tmp_path / "kernel.o")]
    subprocess.run(command, check=True)


ENUMS = re.compile(r"(?:typedef )?enum (?:cce_\w+ )?\{[^}]*\}[^;]*;")
CALLS = re.compile(r"^ +([a-z]\w*)\(", re.MULTILINE)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler is here")
def test_a_compiler_of_c_plus_plus_keeps_the_symbol(name: str, tmp_path: Path) -> None:
    """As the vendor's does, of which this has the intrinsics as functions that take anything."""
    program = PROGRAMS[name]
    text = kernel_text(synchronised(program))
    calls = sorted({call for call in CALLS.findall(text) if call not in ("for", "if")})
    words = ("global", "aicore", "gm", "cbuf", "ca", "cb", "cc", "ubuf")
    head = [
        *("#include <stdint.h>", "#define __CCE_AICORE__ 100", "typedef _Float16 half;"),
        *ENUMS.findall((SHIM / "cce.h").read_text()),
        *(f"#define __{word}__" for word in words),
        *(f"template <class... T> void {call}(T...) {{}}" for call in calls),
        # Clang, of which the vendor's compiler is made, lets an unnamed array decay; GCC does not.
        "#define set_va_reg_sb(...)",
    ]
    (tmp_path / "ccec.h").write_text("\n".join(head) + "\n")
    (tmp_path / "kernel.c").write_text(text)
    command = ["g++", "-x", "c++", "-std=c++17", "-Wall", "-include", "ccec.h", "-c", "kernel.c"]
    subprocess.run([*command, "-o", "kernel.o"], cwd=tmp_path, check=True)
    symbols = subprocess.run(
        ["nm", "--defined-only", "kernel.o"], cwd=tmp_path, check=True, capture_output=True
    )
    assert f" T {program.name}\n" in symbols.stdout.decode()


if __name__ == "__main__":
    for golden in sorted(GOLDENS.glob("*.c")):
        golden.write_text(kernel_text(synchronised(PROGRAMS[golden.stem])))
