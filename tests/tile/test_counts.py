"""What a tile program moves is what the simulator counts, and its tiles cover the kernel."""

from pathlib import Path

import numpy as np
import pytest

import tilewright
from tests.slow import but_fast
from tilewright.compiler.pipeline import resolve, run_pipeline
from tilewright.tile.counts import counts_of

ROOT = Path(__file__).parents[2]
LENET = ROOT / "examples" / "lenet5" / "lenet5.onnx"


EXACT = ("small-npu", "five-buffers")


@pytest.mark.parametrize(
    "name", but_fast(["small-npu", "fused", "five-buffers", "flags", "systolic-int8"], EXACT)
)
def test_bytes_are_those_of_the_simulation(name: str) -> None:
    target = str(ROOT / "examples" / "machines" / f"{name}.toml")
    executable = tilewright.compile(LENET, target)
    held_out = np.load(LENET.with_name("held_out.npz"))
    executable.run({"image": held_out["images"][:1].astype(np.float32) / 16})
    simulated = {row["name"]: row.get("dram_bytes") for row in executable.summary()["kernels"]}
    chosen, machine = resolve(target)
    state = run_pipeline(LENET, chosen, machine)
    seen = 0
    for item in state.kernels:
        if item.schedule is None:
            continue
        counts = counts_of(item.programs, machine)
        through_main = [m.name for m in machine.moves if machine.main in (m.source, m.target)]
        data = sum(counts.moved.get(name, 0) for name in through_main)
        fetched = counts.instructions * machine.instruction_bytes
        taken = simulated[item.kernel.symbol]
        if name in EXACT:
            assert data + fetched == taken
        else:
            # Signals to the next kernel are told to either; a weight's last granule moves whole.
            few = 12 * machine.instruction_bytes
            assert data + fetched == pytest.approx(taken, rel=0.02, abs=few)
        seen += 1
    assert seen >= 4


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
