"""Headers of a package: what is used is there, with all that it needs, and nothing else is."""

import re
import subprocess
from pathlib import Path

import pytest

import tilewright
from tests.slow import but_fast
from tilewright.codegen.c.compiler import find_compiler
from tilewright.codegen.c.prune import drop_unread, prune_folder, pruned
from tilewright.targets.cpu.headers import HEADERS, header

LENET = Path(__file__).parents[3] / "examples" / "lenet5" / "lenet5.onnx"

FIRST = """/* What all need. */
#ifndef FIRST_H
#define FIRST_H

#include <math.h>

#define INLINE static inline

/* A number, in "quotes } of a string. */
typedef float number;

#define EACH(name, function) \\
    INLINE number name(number a) { return function(a); }

EACH(root, sqrtf)
EACH(power, exp_of)

#if defined(FAST) && \\
    !defined(SLOW)
#define twice(a) ((a) + (a))
#else
INLINE number twice(number a)
{
#ifdef ODD
    return 3 * a; /* } */
#endif
    return 2 * a;
}
#endif

#endif
"""

SECOND = """#ifndef SECOND_H
#define SECOND_H

#include "first.h"

#define BOTH(T, S)                                    \\
    INLINE T least_##S(T a, T b) { return a < b ? a : b; }  \\
    INLINE T most_##S(T a, T b)                       \\
    {                                                 \\
        return least_##S(a, b) == a ? b : a;          \\
    }
BOTH(float, s)
BOTH(double, d)

static const number table[2] = {1, 2};
INLINE number far(number a) { return table[0] + twice(a); }

#endif
"""


def left(user: str, second: str = SECOND) -> dict[str, str]:
    return dict(pruned({"first.h": FIRST, "second.h": second}, [user]).texts)


def test_what_is_used_is_kept_with_what_it_needs() -> None:
    texts = left("return most_d(x, y);")
    assert "double, d" in texts["second.h"] and "float, s" not in texts["second.h"]
    assert "least_##S" in texts["second.h"] and "far" not in texts["second.h"]
    assert "table" in texts["second.h"]  # It is not understood.
    texts = left('least_s(1, 2) /* most_d(1, 2) */ "most_d"')
    assert "most_##S" not in texts["second.h"] and "double" not in texts["second.h"]
    assert texts["second.h"].count("\\\n") == 1


def test_conditions_stay_around_what_is_kept() -> None:
    second = SECOND.replace("static const number table[2] = {1, 2};\n", "")
    second = second.replace("table[0] + ", "")
    text = left("far(1)", second)["first.h"]
    assert "#if defined(FAST) && \\\n    !defined(SLOW)" in text and "3 * a" in text
    assert "typedef float number" in text and "EACH" not in text
    text = left("root(1)", second)["first.h"]
    assert "EACH(root, sqrtf)" in text and "power" not in text and "FAST" not in text


def test_a_header_that_nobody_uses_is_replaced_by_what_it_includes() -> None:
    second = SECOND.replace("static const number table[2] = {1, 2};\n", "")
    result = pruned({"first.h": FIRST, "second.h": second}, ["root(1)"])
    assert list(result.texts) == ["first.h"]
    assert result.includes["second.h"] == ('#include "first.h"',)
    result = pruned({"first.h": FIRST, "second.h": second}, ["sqrtf(1)"])
    assert not result.texts and result.includes["second.h"] == ("#include <math.h>",)


def support(*users: str) -> dict[str, str]:
    return dict(pruned({name: header(name) for name in HEADERS}, users).texts)


DEFINED = re.compile(r"^(?:INLINE|static)[\w ]*? \*?(\w+)\(|^[A-Z_]+\((\w+_[vsd]), ", re.MULTILINE)

NAMES = sorted(
    {
        name
        for file in HEADERS
        for names in DEFINED.findall(header(file))
        for name in names
        if name not in ("", "__attribute__")
    }
)
MADE = [
    *(f"{name}_{kind}" for name in ("gelu", "mod", "clip") for kind in "sd"),
    *("max_i", "gather_int8", "scatter_float16", "store_part_bfloat16", "TILE_ADD", "PIN"),
]


SIXTEEN = header("pieces.h")
"""Helpers of vectors of 16 floats alone."""


@pytest.mark.parametrize("name", but_fast([*NAMES, *MADE], ["tanh_v", "mod_d", "multiply_again"]))
def test_each_helper_has_all_that_it_needs(tmp_path: Path, name: str) -> None:
    """The compiler knows every name in what is kept for it."""
    assert len(NAMES) > 100
    texts = support(name)
    for file, text in texts.items():
        # Vectors of any length mean the same on any processor.
        (tmp_path / file).write_text(re.sub("^#error.*", "", text, flags=re.MULTILINE))
    last = [file for file in HEADERS if file in texts][-1]
    lanes = 16 if re.search(rf"\b{name}\b", SIXTEEN) else 4
    source = tmp_path / "source.c"
    source.write_text(f'#include <stdint.h>\n#define LANES {lanes}\n#include "{last}"\n')
    strict = ["-Werror=implicit-function-declaration", "-w", "-fsyntax-only", "-std=gnu99"]
    ran = subprocess.run(
        [*find_compiler(), *strict, str(source)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, f"{name}: {ran.stderr[:1000]}"


def test_a_package_has_the_helpers_that_it_calls(tmp_path: Path) -> None:
    tilewright.compile(LENET, cpu="portable", directory=tmp_path / "package")
    folder = tmp_path / "package/program/src"
    headers = {path.name: path.read_text() for path in folder.glob("*.h")}
    everything = "\n".join([*headers.values(), *(p.read_text() for p in folder.glob("*.c"))])
    functions = re.findall(r"^INLINE [\w ]*?(\w+)\(", "\n".join(headers.values()), re.MULTILINE)
    assert functions
    for name in functions:
        assert len(re.findall(rf"\b{name}\b", everything)) > 1, f"{name} is not used"
    assert sum(len(text) for text in headers.values()) < 16_000
    assert not {"lenet5_pieces.h", "lenet5_integers.h"} & headers.keys()


def test_a_folder_of_helpers_has_what_the_files_beside_it_use() -> None:
    no_table = SECOND.replace("static const number table[2] = {1, 2};\n", "")
    texts = {
        "layers/one.c": '#include "../help/second.h"\n#include "../help/own.h"\nleast_s(1, 2);',
        "help/main.c": '#include "second.h"\nroot(1);',
        "help/first.h": FIRST, "help/second.h": no_table, "help/own.h": "int own;",
        "help/deep.h": '#include "own.h"', "other/deep.h": '#include "own.h"',
    }  # fmt: skip
    drop_unread(texts, "help")
    assert "help/deep.h" not in texts and {"help/own.h", "other/deep.h"} <= texts.keys()
    prune_folder(texts, "help", ["first.h", "second.h"])
    assert "most" not in texts["help/second.h"] and "root" in texts["help/first.h"]
    texts["layers/one.c"] = '#include "../help/second.h"\ntwice(1);'
    texts |= {"help/first.h": FIRST, "help/second.h": no_table}
    prune_folder(texts, "help", ["first.h", "second.h"])
    assert texts["layers/one.c"].startswith('#include "../help/first.h"\n')
    assert texts["help/main.c"].startswith('#include "first.h"\n')
    assert "help/second.h" not in texts
