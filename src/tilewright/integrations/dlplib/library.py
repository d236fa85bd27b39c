"""The library for programs in C: dlplib.h and a shared object beside each other."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from tilewright.codegen.c.compiler import build_library
from tilewright.errors import TilewrightError, refuse
from tilewright.integrations.dlplib.session import OPERATORS
from tilewright.system.files import problem_of
from tilewright.system.temporary import temporary_folder

SOURCES = Path(__file__).parent / "c"
FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-fPIC", "-Wall", "-Wextra")

NAME = "libdlplib.so"

_PROTOTYPE = re.compile(r"dlpStatus dlp(\w+)\(dlpHandle handle, ([^;]+)\);")


def operator_calls(header: str) -> Iterator[str]:
    """The C of every operator that the header declares: one request, by its prototype::

        dlpStatus dlpReshape(dlpHandle handle, DLP_TENSOR(x), DLP_TENSOR(y))
        {
            return ASK(handle, "run reshape" PAIR PAIR "\\n", OF(x), OF(y));
        }

    Arguments go in the order of the call in Python, whose names they have.
    """
    for name, parameters in _PROTOTYPE.findall(header):
        operator = re.sub(r"(?<=.)(?=[A-Z])", "_", name).lower()
        if operator not in OPERATORS:
            continue
        kinds: dict[str, str] = {}
        for parameter in parameters.split(","):
            kind, argument = re.split(r"[( ]", parameter.strip(" \n)"), maxsplit=1)
            kinds[argument] = kind
        words, values = [f'"run {operator}"'], ["handle"]
        for argument, letter in OPERATORS[operator].items():
            if kinds[argument] in ("DLP_TENSOR", "DLP_FILTER"):
                words.append("PAIR")
                values.append(f"OPTIONAL({argument})" if letter == "?" else f"OF({argument})")
            elif kinds[argument].endswith("Descriptor"):
                words.append("NUMBER")
                values.append(f"{argument}.id")
            else:
                words.append('" %d"')
                values.append(f"(int){argument}")
        asked = ", ".join([values[0], " ".join([*words, '"\\n"']), *values[1:]])
        declared = f"dlpStatus dlp{name}(dlpHandle handle, {parameters})"
        yield f"{declared}\n{{\n    return ASK({asked});\n}}\n"


def write_library(directory: str | Path, python: str | None = None) -> tuple[Path, Path]:
    """Write the header and build the shared object into a directory; gives their paths.

    The object starts ``python`` (this interpreter) for every handle, unless the environment
    variable DLPLIB_PYTHON names another. Raises TilewrightError where there is no C compiler or
    the directory cannot be written.
    """
    place = Path(directory)
    interpreter = python or sys.executable
    if '"' in interpreter or "\\" in interpreter:
        raise refuse("output-failed", "its path cannot be written in C", interpreter)
    header, built = place / "dlplib.h", place / NAME
    try:
        place.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(SOURCES / header.name, header)
        with temporary_folder() as generated:
            calls = "\n".join(operator_calls(header.read_text("utf-8")))
            (generated / "operators.h").write_text(calls, "utf-8")
            flags = (*FLAGS, f'-DDLPLIB_PYTHON="{interpreter}"')
            build_library(sorted(SOURCES.glob("*.c")), built, [SOURCES, generated], flags)
    except OSError as error:
        raise TilewrightError(problem_of(error, "output-failed", str(place))) from error
    return header, built
