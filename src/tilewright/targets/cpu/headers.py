"""The headers of the emitted C, of which every package has what it uses."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from tilewright.numerics.operators import FUNCTIONS, Function

SUPPORT = Path(__file__).parent
"""The folder of the headers."""

KERNEL_HEADERS = (
    *("scalars.h", "vectors.h", "integers.h"),
    *("quantised.h", "shorts.h", "blocks.h", "pieces.h"),
)
"""The headers of kernels; none includes a later one."""

HEADERS = (*KERNEL_HEADERS, "team.h", "checksum.h")
"""All headers of a package; none includes a later one."""


@cache
def header(name: str) -> str:
    """The text of a header, in which FUNCTIONS stands for the functions of one number."""
    lines = (SUPPORT / name).read_text().splitlines(keepends=True)
    mark = next((n for n, line in enumerate(lines) if "/* FUNCTIONS" in line), None)
    if mark is not None:
        text = "".join(lines)
        lines[mark : mark + 1] = (
            [_scalar(*item) for item in FUNCTIONS.items()]
            if name == "scalars.h"
            else [
                _vector(*item)
                for item in FUNCTIONS.items()
                if not re.search(rf"\b{item[0]}_v[(,]", text)
            ]
        )
    return "".join(lines)


def _scalar(name: str, function: Function) -> str:
    """A line of the macro that defines functions for several types."""
    parameters = "".join(f", T {parameter}" for parameter in function.parameters)
    line = f"    INLINE T {name}_##S(T a{parameters}) {{ return {function.c}; }}"
    return f"{line:<98}\\\n"


def _vector(name: str, function: Function) -> str:
    """A function of vectors that computes one element after another."""
    parameters = "".join(f", float {parameter}" for parameter in function.parameters)
    arguments = "".join(f", {parameter}" for parameter in function.parameters)
    return f"""\
INLINE vec {name}_v(vec a{parameters})
{{
    vec r;
    for (int i = 0; i < LANES; i++)
        r[i] = {name}_s(a[i]{arguments});
    return r;
}}
"""
