"""What tiles ask for ahead of time: every line of the next block of weights, once, by some call."""

from pathlib import Path

import numpy as np
import pytest
from tests.targets.cpu.kernel_harness import PLAIN, Maker
from tests.targets.cpu.primitive_cases.methods import winograd

from tilewright.targets.cpu.primitives.ahead import Ahead, Runs
from tilewright.targets.cpu.target import CpuTarget


def asked(runs: Runs) -> set[int]:
    """Lines, counted from the next block's begin, that all calls together ask for."""
    share = runs.share()
    lines: set[int] = set()
    for call in range(runs.calls):
        text = runs.place(str(call)).replace("/", "//")
        start = int(eval(text))
        for step in range(runs.steps):
            for run in range(share.runs):
                for number in range(share.lines):
                    at = start + run * share.between + step * share.step + number * share.line
                    lines.add(at // share.line)
    return lines


@pytest.mark.parametrize("seed", range(40))
def test_calls_together_ask_for_the_whole_block(seed: int) -> None:
    random = np.random.default_rng(seed)
    vectors, steps = int(random.integers(1, 9)), int(random.integers(1, 700))
    calls = int(random.integers(1, 60))
    apart = bool(random.integers(2))
    between = steps * 16 + 16 * int(random.integers(0, 3)) if apart else 16
    runs = Runs(steps, 16, vectors, between, calls, 4)
    found = asked(runs)
    starts = [v * between for v in range(vectors)] if apart and vectors > 1 else [0]
    length = steps * 16 * (1 if apart and vectors > 1 else vectors)
    wanted = {(start + at) // 16 for start in starts for at in range(0, length, 16)}
    assert wanted <= found
    # What a step asks for is rounded up, to elements or to lines: so much is asked for beyond.
    beyond = steps // 16 if runs.share().lines == 1 else steps
    assert len(found) <= len(wanted) + len(starts) * (beyond + 2)


def test_few_steps_ask_for_several_lines_each() -> None:
    share = Runs(steps=10, vector=16, vectors=4, between=16, calls=2, element_bytes=4).share()
    assert share == Ahead(step=32, lines=2, line=16)
    half = Runs(steps=256, vector=16, vectors=1, between=0, calls=8, element_bytes=2).share()
    assert half == Ahead(step=2, lines=1, line=32)


@pytest.mark.parametrize(
    ("images", "block", "near"), [(1, (4, 4, 2), False), (1, (2, 4, 2), True), (2, (4, 4, 2), True)]
)
def test_weights_that_blocks_read_again_come_to_the_first_cache(
    images: int, block: tuple[int, int, int], near: bool, tmp_path: Path
) -> None:
    """Those of a single block come from main memory, for which the second cache waits."""
    m = Maker(PLAIN)
    m.finish(winograd(m, (images, 8, 14, 14), 16, 4, block, pads=(1, 1, 1, 1)))
    CpuTarget().emit(m.compilation(), tmp_path)
    text = next(tmp_path.glob("src/*_k00_*.c")).read_text()
    assert ("fetch_near(ahead" in text, "fetch(ahead" in text) == (near, not near)
