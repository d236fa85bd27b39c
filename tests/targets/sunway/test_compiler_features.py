"""What emitted C asks of a compiler: what README.md lists, and nothing else.

Words that begin with two underscores are the compiler's own; files are looked at as the
preprocessor leaves them, without what comes out of the system's headers.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tests.targets.sunway.sunway_networks import Network

import tilewright
from tilewright.runtime import Executable
from tilewright.targets.sunway.emit.package import SHIM_FLAGS

FEATURES = {"__attribute__", "__extension__", "__typeof__", "__asm__"}
ATTRIBUTES = {"vector_size", "aligned", "may_alias", "always_inline", "noinline", "unused"}
OF_MATH = {"__builtin_inff", "__builtin_inf", "__builtin_nanf", "__builtin_nan"}
"""What INFINITY and NAN of the host's math.h are."""
OF_LDM = {"__thread_local"}
"""The storage class of CPE programs."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package in which the MPE computes on floats, shorts, bytes and integers, in vectors."""
    folder = tmp_path_factory.mktemp("features")
    compiled(folder)
    return folder / "p" / "program"


def compiled(folder: Path) -> Executable:
    net = Network(1, 4, 8, 8)
    scale, zero = net.constant(np.float32(0.05)), net.constant(np.uint8(9))
    units = net.op("QuantizeLinear", "x", scale, zero)
    weights = net.constant(net.random.integers(-9, 9, size=(5, 4, 3, 3)).astype(np.int8))
    sums = net.op("ConvInteger", units, weights)
    net.op("Cast", net.op("Mul", sums, sums), to=1)
    y = net.op("DequantizeLinear", units, scale, zero)
    for kind in (10, 16, 6):
        y = net.op("Add", y, net.op("Cast", net.op("Cast", "x", to=kind), to=1))
    y = net.op("Add", y, net.op("Gather", y, net.constant(np.array([3, 2, 1, 0])), axis=1))
    y = net.op("Transpose", net.op("Sin", net.op("CumSum", y, net.constant(np.int64(1)))))
    y = net.op("Add", y, net.op("Cast", net.op("ArgMax", y, axis=2), to=1))
    model = net.save(folder / "features.onnx", y)
    return tilewright.compile(model, "sunway", directory=folder / "p")


def own_lines(program: Path, source: Path) -> str:
    """A file and what it includes of the package, without the shim."""
    command = ["cc", *SHIM_FLAGS, "-E", str(source.relative_to(program))]
    text = subprocess.run(command, cwd=program, check=True, capture_output=True, text=True).stdout
    lines, own = list[str](), False
    for line in text.splitlines():
        if marker := re.match(r'# \d+ "(.*?)"', line):
            own = marker[1].startswith(("layers/", "mpe/", "layers/../mpe/"))
        elif own:
            lines.append(line)
    return "\n".join(lines)


def words(text: str) -> set[str]:
    """Words of compilers, and of the C that came after C99."""
    after = "_Generic|_Static_assert|_Alignas|_Alignof|_Atomic|_Thread_local|_Float16"
    return set(re.findall(rf"\b(?:__\w+|asm|typeof|{after})\b", text))


def attributes(text: str) -> set[str]:
    lists = re.findall(r"__attribute__\(\((.*?)\)\)(?=[^)]|$)", text, re.MULTILINE)
    return {word for own in lists for word in re.findall(r"[a-z]\w*", own)}


def test_the_mpe_needs_what_the_page_lists(program: Path) -> None:
    sources = [p for p in sorted(program.glob("layers/*.c")) if not p.stem.endswith("_slave")]
    hosted = [p for p in sources if "mpe/" in p.read_text()]
    assert len(hosted) >= 8
    used: set[str] = set()
    for source in hosted:
        text = own_lines(program, source)
        assert len(text) > 1000
        used |= words(text)
        assert attributes(text) <= ATTRIBUTES
    assert used - OF_MATH <= FEATURES
    page = (Path(tilewright.__file__).parent / "targets/sunway/README.md").read_text()
    for feature in (*FEATURES, *ATTRIBUTES):
        assert f"`{feature}`" in page, feature


@pytest.mark.slow
def test_what_stands_for_built_ins_means_the_same(tmp_path: Path) -> None:
    executable = compiled(tmp_path)
    data = np.random.default_rng(2).normal(size=(1, 4, 8, 8)).astype(np.float32)
    inputs = {"x": data}
    assert executable.check(inputs, executable.run(inputs)).passed


def test_built_ins_are_there_before_they_are_replaced(program: Path) -> None:
    """Without plain.h the same files do use others: the test above would find them."""
    source = next(p for p in program.glob("layers/*quantize*.c") if "mpe/" in p.read_text())
    changed = source.with_name("changed.c")
    changed.write_text(source.read_text().replace('#include "../mpe/plain.h"\n', ""))
    found = words(own_lines(program, changed))
    changed.unlink()
    assert "__builtin_convertvector" in found


def test_cpe_programs_and_main_need_no_more(program: Path) -> None:
    files = [*program.glob("layers/*_slave.c"), *program.glob("slave/*.[ch]"), program / "main.c"]
    for path in (*files, program / "files.h"):
        text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)
        assert words(text) <= {"__attribute__", *OF_LDM}, path.name
        assert attributes(text) <= {"aligned", "always_inline"}, path.name


@pytest.mark.parametrize("file", ["cpe.h", "ldm_slave.c"])
def test_the_region_of_tiles_says_its_alignment(program: Path, tmp_path: Path, file: str) -> None:
    """By what the text of its declaration alone says: it is one of bytes."""
    (line,) = re.findall(r"^.*char ldm\[.*$", (program / "slave" / file).read_text(), re.MULTILINE)
    (tmp_path / "where.c").write_text(
        f"#include <stdio.h>\n#define __thread_local\n#define LDM_BYTES 57344\n{line}\n"
        'int main(void)\n{\n    printf("%d", (int)__alignof__(ldm));\n    return 0;\n}\n'
    )
    subprocess.run(["cc", "where.c", "-o", "where"], cwd=tmp_path, check=True)
    ran = subprocess.run([str(tmp_path / "where")], capture_output=True, text=True, check=True)
    assert ran.stdout == "32"
