"""What a tile program moves is what the simulator counts, and its tiles cover the kernel."""

from pathlib import Path

import numpy as np
import pytest

import tilewright
from tests.slow import but_fast
from tilewright.cli.asm import disassemble_package
from tilewright.compiler.pipeline import resolve, run_pipeline
from tilewright.tile.counts import counts_of

ROOT = Path(__file__).parents[2]
LENET = ROOT / "examples" / "lenet5" / "lenet5.onnx"


FAST = ("small-npu", "five-buffers")
SIGNALS_BETWEEN_KERNELS = {"flags": 12}
"""Words that no kernel's tile program has, at most."""


@pytest.mark.parametrize(
    "name", but_fast(["small-npu", "fused", "five-buffers", "flags", "systolic-int8"], FAST)
)
def test_counts_are_those_of_the_words(name: str, tmp_path: Path) -> None:
    target = str(ROOT / "examples" / "machines" / f"{name}.toml")
    executable = tilewright.compile(LENET, target)
    held_out = np.load(LENET.with_name("held_out.npz"))
    executable.run({"image": held_out["images"][:1].astype(np.float32) / 16})
    executable.save(tmp_path / "package")
    lines = disassemble_package(tmp_path / "package").splitlines()
    words = sum(not line.startswith(";") for line in lines)
    chosen, machine = resolve(target)
    state = run_pipeline(LENET, chosen, machine)
    planned = [item for item in state.kernels if item.schedule is not None]
    counts = [counts_of(item.programs, machine) for item in planned]
    assert len(counts) >= 4
    through_main = [m.name for m in machine.moves if machine.main in (m.source, m.target)]
    data = sum(each.moved.get(move, 0) for each in counts for move in through_main)
    simulated = sum(row.get("dram_bytes") or 0 for row in executable.summary()["kernels"])
    assert data == simulated - words * machine.instruction_bytes
    others = words - sum(each.instructions for each in counts)
    assert 0 <= others <= SIGNALS_BETWEEN_KERNELS.get(name, 0)


def test_tiles_cover_a_kernel_once() -> None:
    target, machine = resolve(str(ROOT / "examples" / "machines" / "small-npu.toml"))
    state = run_pipeline(LENET, target, machine)
    for item in state.kernels:
        if item.schedule is None:
            continue
        counts = counts_of(item.programs, machine)
        points = sum(
            count * np.prod([size for _, size in sizes], dtype=np.int64)
            for (_, sizes), count in counts.tiles.items()
        )
        assert points == item.kernel.anchor.iterations
