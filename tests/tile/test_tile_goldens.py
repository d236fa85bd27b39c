"""What each pass does to small programs, as text.

A file holds the command in its first line, the input, a line of dashes, and the output.
"""

import re
from pathlib import Path

import pytest
from benchmarks.papers.dlir.passes import PASSES as DLIR_PASSES

from tilewright.compiler.pipeline import resolve
from tilewright.ir import Parser, PassPipeline, to_text
from tilewright.ir.passes import CompilerContext
from tilewright.tile.dialect import load_into
from tilewright.tile.passes import PASSES as TILE_PASSES

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent / "goldens"
DASHES = "// -----\n"
PASSES = {**TILE_PASSES, **DLIR_PASSES}
COMMAND = re.compile(r"// tilewright opt FILE -p '(\S.*)' --target (\S+)((?: --set \S+)*)\n")


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.mlir")), ids=lambda path: path.stem)
def test_golden(path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_text()
    source, _, expected = text.partition(DASHES)
    command = COMMAND.match(source)
    assert command, "the first line is the command"
    values = dict(word.split("=") for word in command.group(3).split() if "=" in word)
    target = command.group(2)
    target = str(ROOT / target) if target.endswith(".toml") else target
    context = CompilerContext(resolve(target, values=values)[1])
    load_into(context)
    module = Parser(context, source).parse_module()
    module.verify()
    assert to_text(Parser(context, to_text(module)).parse_module()) == to_text(module)
    available = {name: (lambda made=made: made) for name, made in PASSES.items()}
    for step in PassPipeline.parse_spec(available, command.group(1)).passes:
        step.apply(context, module)
        module.verify()
    result = to_text(module) + "\n"
    if request.config.getoption("--bless"):
        path.write_text(source + DASHES + result)
    else:
        assert result == expected


def test_every_pass_has_a_golden() -> None:
    commands = " ".join(path.read_text().splitlines()[0] for path in FOLDER.glob("*.mlir"))
    assert [name for name in PASSES if name not in commands] == []
