"""``main`` of a package's C: built, called wrongly, and run on files."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from tilewright.codegen.c.compiler import find_compiler
from tilewright.codegen.c.source import Writer
from tilewright.codegen.host.main import FILES, Main
from tilewright.codegen.host.ports import Port

NAMES = ("100%s%n of \u00e4?", 'a "result" \\n */')


def port(name: str, offset: int) -> Port:
    return Port(name, (2, 3), "float32", "NC", "activations", offset, (3, 1))


@pytest.fixture(scope="module", params=["", "LAYERS"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that doubles six numbers and adds its only weight."""
    folder = tmp_path_factory.mktemp("main")
    main = Main(
        ("DEVICE", "weights.bin"),
        [port(NAMES[0], 0)],
        [port(NAMES[1], 24)],
        {"weights": 4, "activations": 48},
        last=request.param,
    )
    writer = Writer()
    writer.text(f'/* {main.usage} */\n#include "files.h"\n\n{main.declaration}\n')
    with main.write(writer):
        writer.text("float *x = activations;\nfor (int i = 0; i < 6; i++)")
        writer.line("    x[6 + i] = 2 * x[i] + *(float *)weights;")
    (folder / "main.c").write_text(str(writer))
    (folder / "files.h").write_text(FILES)
    flags = ("-std=gnu99", "-O1", "-Wall", "-Wextra", "-Werror")
    command = [*find_compiler(), *flags, "main.c", "-o", f"main{request.param}"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / f"main{request.param}"


def run(program: Path, *words: str) -> tuple[int, str]:
    ran = subprocess.run([program, *words], cwd=program.parent, capture_output=True, check=False)
    return ran.returncode, ran.stderr.decode()


def test_names_are_printed_as_they_are(program: Path) -> None:
    last = " [LAYERS]" if program.name.endswith("LAYERS") else ""
    for words in ((), ("d", "w", "x"), ("d", "w", "x", "y", "z", "more")):
        wanted = f"{program} DEVICE weights.bin {' '.join(NAMES)}{last}\n"
        assert run(program, *words) == (2, wanted)


def test_inputs_are_read_and_outputs_written(program: Path) -> None:
    folder, random = program.parent, np.random.default_rng(3)
    for more in ((), ("z",)) if program.name.endswith("LAYERS") else ((),):
        x, weight = (random.normal(size=n).astype(np.float32) for n in (6, 1))
        x.tofile(folder / "x")
        weight.tofile(folder / "w")
        assert run(program, "d", "w", "x", "y", *more) == (0, "")
        np.testing.assert_array_equal(np.fromfile(folder / "y", np.float32), 2 * x + weight)


@pytest.mark.parametrize("size", [0, 23, 25])
def test_files_of_other_sizes_are_refused(program: Path, size: int) -> None:
    (program.parent / "w").write_bytes(bytes(4))
    (program.parent / "x").write_bytes(bytes(size))
    assert run(program, "d", "w", "x", "y") == (1, "x is not a file of 24 bytes\n")
