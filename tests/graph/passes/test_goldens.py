"""Each pass on a small network, text to text.

A golden file starts with ``// passes: A, B; machine: NAME``, then comes the network, then a line
``// -----``, then what the passes make of it. After a change that is meant, write what they make
now with ``pytest --bless`` and read the difference.
"""

import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.graph.passes.pass_networks import accelerator
from tilewright.graph.dialect import WeightOp
from tilewright.graph.operations import parse
from tilewright.graph.passes import PASSES
from tilewright.graph.passes.own import own_passes
from tilewright.graph.values import value_names
from tilewright.ir import ModuleOp
from tilewright.ir.passes import CompilerContext
from tilewright.ir.types import element_dtype, shape_of, tensor_type
from tilewright.machine.load import load_machine
from tilewright.targets.ascend.machine import ASCEND_910
from tilewright.targets.ascend.network import network_machine
from tilewright.targets.cambricon.machine import MACHINE as ACC_C
from tilewright.targets.cambricon_x.machine import MACHINE as CAMBRICON_X
from tilewright.targets.cpu.machine import machine as cpu
from tilewright.targets.cpu.processors import Processor

FOLDER = Path(__file__).parent / "goldens"
EXAMPLES = Path(__file__).parents[3] / "examples" / "machines"
MACHINES = {
    "cpu16": cpu(Processor(lanes=16)),
    "pairs": cpu(Processor(lanes=16, pairs_per_cycle=1.0)),
    # A last cache that is far away.
    "server": cpu(Processor(lanes=16, vectors_per_cycle=2.0, bandwidths=(80.0, 40.0, 5.0, 4.5))),
    "small": accelerator(),
    "half": accelerator().with_values(
        {"element": "float16", "accumulator": "float32", "overflow": "saturate"}
    ),
    "bytes": accelerator().with_values({"element": "int8", "accumulator": "int32"}),
    # Channels in blocks of 16.
    "blocks": network_machine(ASCEND_910),
    "mixed": load_machine(EXAMPLES / "mixed.toml"),
    "cambricon": CAMBRICON_X,
    "accc": ACC_C,
}
SEPARATOR = "// -----\n"


class TextStore:
    """Weights drawn by their symbols; new ones are called after their hints and numbered."""

    def __init__(self, module: ModuleOp) -> None:
        self.arrays: dict[str, NDArray[Any]] = {}
        for op in module.walk():
            if isinstance(op, WeightOp):
                symbol, kind = op.symbol.data, tensor_type(op.result)
                random = np.random.default_rng(zlib.crc32(symbol.encode()))
                drawn = random.uniform(0.5, 2, shape_of(op.result))
                self.arrays[symbol] = drawn.astype(element_dtype(kind.element_type))

    def get(self, symbol: str) -> NDArray[Any]:
        return self.arrays[symbol]

    def add(self, array: NDArray[Any], hint: str = "") -> str:
        symbol = f"{hint}.{len(self.arrays)}"
        self.arrays[symbol] = array
        return symbol


def transform(text: str) -> str:
    found = re.match(r"// passes: (.*); machine: (\w+)\n", text)
    assert found, "the first line says what to run"
    module = parse(text)
    ranges = dict.fromkeys(value_names(module).values(), (-3.5, 3.0))
    factors = {
        name: np.arange(1, shape_of(value)[-1] + 1, dtype=np.float32)
        for value, name in value_names(module).items()
        if shape_of(value)
    }
    ctx = CompilerContext(MACHINES[found.group(2)], TextStore(module), ranges, factors)
    for name in found.group(1).split(", "):
        (PASSES | own_passes(ctx.machine))[name]().apply(ctx, module)
        module.verify()
    return str(module) + "\n"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.mlir")), ids=lambda path: path.stem)
def test_golden(path: Path, request: pytest.FixtureRequest) -> None:
    source, expected = path.read_text().split(SEPARATOR)
    if request.config.getoption("--bless"):
        path.write_text(source + SEPARATOR + transform(source))
    else:
        assert transform(source) == expected


def test_every_pass_has_a_golden() -> None:
    first_lines = " ".join(path.read_text().split("\n")[0] for path in FOLDER.glob("*.mlir"))
    brought = {name for machine in MACHINES.values() for name in own_passes(machine)}
    assert all(name in first_lines for name in brought | set(PASSES))
