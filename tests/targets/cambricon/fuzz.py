"""Random words on the simulator; ``make fuzz-cambricon COUNT=100000 SEED=7`` for more of them.

python -m tests.targets.cambricon.fuzz --count 100000 --seed 7

A program ends or is refused with a code; nothing else may happen: no crash, no byte beyond main
memory, no difference between a run at once and one word by word. Run as a program, every index of
the compiled code is checked as well.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import TilewrightError
from tilewright.targets.cambricon.isa import (
    EXCLUSIVE,
    INSTRUCTIONS,
    Immediate,
    Register,
    encode,
)
from tilewright.targets.cambricon.machine import CONFIGURATIONS, machine

GUARD = 4096
"""Bytes around main memory that must stay as they are."""

LIMIT = 3000
"""Instructions of a program."""

MACHINES = [machine(size) for size in CONFIGURATIONS]


def word(rng: random.Random) -> int:
    """A random word: nearly always an instruction, on a few registers and small numbers."""
    if rng.random() < 0.002:
        return rng.getrandbits(64)
    one = rng.choice(INSTRUCTIONS)
    if rng.random() < 0.4:
        one = rng.choice([i for i in INSTRUCTIONS if i.mnemonic in ("VLOAD", "MLOAD", "SMOVE")])
    operands: list[Register | Immediate] = []
    for operand in one.operands:
        number = operand.kind == "immediate" or (operand.has_immediate and rng.random() < 0.7)
        if not number:
            operands.append(Register(rng.randrange(8)))
        elif operand.kind == "target":
            operands.append(Immediate(rng.randint(-6, 9)))
        else:
            extreme = rng.choice([2**31 - 1, -(2**31), -1, 1 << 16])
            small = 8 * rng.randrange(200)
            operands.append(Immediate(extreme if rng.random() < 0.04 else small))
    modifiers: dict[str, int] = {}
    for modifier in one.modifiers:
        if rng.random() < 0.25:
            modifiers[modifier.name] = rng.randint(*modifier.range)
    for first, second in EXCLUSIVE:
        if modifiers.get(first) and modifiers.get(second):
            del modifiers[second]
    return encode(one.mnemonic, operands, modifiers)


def program(rng: random.Random) -> NDArray[np.uint64]:
    """Words that set registers and fill the scratchpads, then random ones."""
    words = [
        encode("SMOVE", (Register(index), Immediate(rng.choice([8, 64, 400, 512]))), {})
        for index in range(1, 6)
    ]
    everything = (Register(0), Register(6), Register(0), Immediate(0))
    words.append(encode("SMOVE", (Register(6), Immediate(8000)), {}))
    words += [encode(name, everything, {}) for name in ("VLOAD", "MLOAD")]
    table = (Register(0), Register(4), Register(0), Immediate(64))
    words += [encode("VLOAD", table, {"table": number}) for number in range(1, 16)]
    words += [word(rng) for _ in range(rng.randrange(1, 60))]
    return np.array(words, np.uint64)


def judge(seed: int) -> str:
    """Run one program; the code of its refusal, or "ends". Raises AssertionError."""
    from tilewright.targets.cambricon.simulate import Simulator

    rng = random.Random(seed)
    words, chosen = program(rng), rng.choice(MACHINES)
    values = np.random.default_rng(seed).integers(0, 256, 20000, dtype=np.uint8)
    found: list[tuple[str, bytes, bytes]] = []
    for step in (LIMIT, 40 + seed % 7):
        whole = np.full(values.size + 2 * GUARD, 0xA5, np.uint8)
        main = whole[GUARD:-GUARD]
        main[:] = values
        outcome, state = "ends", b""
        try:
            simulator = Simulator(words, chosen, main, races=seed % 3 == 0, events=seed % 2 == 0)
            simulator.run(limit=LIMIT, budget=step)
            result = simulator.result()
            assert result.cycles >= result.instructions
            assert sum(result.counts.values()) == result.instructions
            busy = max(result.busy.values())
            assert busy <= result.cycles + 1e-6
            text = f"{result.cycles} {result.registers.tolist()} {result.races} {result.bytes}"
            state = text.encode() + result.vsm.tobytes() + result.msm.tobytes()
        except TilewrightError as error:
            problem = error.problems[0]
            outcome = problem.code
            state = str(problem).encode()
        assert (whole[:GUARD] == 0xA5).all(), "bytes before main memory"
        assert (whole[-GUARD:] == 0xA5).all(), "bytes behind main memory"
        found.append((outcome, state, main.tobytes()))
    assert found[0] == found[1], "runs differ"
    return found[0][0]


def main() -> int:
    """Run and count; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.environ["NUMBA_BOUNDSCHECK"] = "1"
    with tempfile.TemporaryDirectory() as cache:  # other code than without checks
        os.environ["NUMBA_CACHE_DIR"] = cache
        return judge_all(range(options.seed, options.seed + options.count))


def judge_all(seeds: range) -> int:
    """Run and count; 1 if anything was wrong."""
    outcomes: Counter[str] = Counter()
    failures = 0
    for seed in seeds:
        try:
            outcomes[judge(seed)] += 1
        except (AssertionError, IndexError) as error:
            failures += 1
            print(f"seed {seed}: {error}", flush=True)
    for outcome, count in outcomes.most_common():
        print(f"{count:8} {outcome}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
