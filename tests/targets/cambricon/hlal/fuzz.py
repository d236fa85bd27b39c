"""HLAL texts with random changes: assembled and run, or refused with a line; nothing else.

python -m tests.targets.cambricon.hlal.fuzz --count 2000 --seed 7

Texts are the examples' and the library's, of which tokens are left out, doubled, exchanged and
replaced. ``make fuzz-hlal COUNT=10000`` runs more of them.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
from tests.targets.cambricon.hlal.running import MACHINE

from tilewright.errors import TilewrightError
from tilewright.targets.cambricon.hlal.assemble import assemble
from tilewright.targets.cambricon.hlal.builtin import library_texts
from tilewright.targets.cambricon.hlal.run import execute, sizes_of

FOLDER = Path(__file__).parents[4] / "examples" / "hlal"
PROGRAMS = ("two_layers", "own_block")
TOKEN = re.compile(r"\s+|[A-Za-z_@.$][\w.]*|\d+|.", re.DOTALL)
NUMBERS = ("0", "1", "2", "3", "-1", "7", "64", "65536", "2147483647", "4294967296", "9" * 40)
LIMIT = 20_000
"""Instructions of a program."""
MOST_ELEMENTS = 1 << 22
"""Elements of the arrays of a program that is run."""


@cache
def texts() -> tuple[str, ...]:
    """What is changed: programs, and blocks of the library as a program's own with a call."""
    programs = [(FOLDER / f"{name}.hlal").read_text() for name in PROGRAMS]
    own = "\n".join(library_texts()[f"{name}.hlal"] for name in ("vector", "elementwise"))
    data = "\n.static_ro\n@tensor a, 1,5,3,40, 1,2,3,7\n.static_rw\n@tensor y, 1,5,3,40, 1,2,3,7\n"
    return (*programs, f".code\n@block_add y, a, a\n{own}{data}")


def changed(text: str, rng: random.Random) -> str:
    """A text with one to four changes."""
    tokens = TOKEN.findall(text)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(tokens))
        chosen = rng.random()
        if chosen < 0.2:
            del tokens[at : at + rng.randint(1, 3)]
        elif chosen < 0.35:
            tokens[at:at] = tokens[at : at + rng.randint(1, 6)]
        elif chosen < 0.6:
            tokens[at] = rng.choice(tokens)
        elif chosen < 0.85:
            numbers = [i for i, token in enumerate(tokens) if token.isdigit()]
            if numbers:
                tokens[rng.choice(numbers)] = rng.choice(NUMBERS)
        else:
            tokens[at] = rng.choice(["\n", ";", ",", "{", "}", "(", "é", "\0", '"', "@if", "@end"])
        if not tokens:
            return ""
    return "".join(tokens)


def judge(seed: int) -> str:
    """Assemble and run one text; the code of its refusal, "ends", or "assembles" if it is large.

    Raises AssertionError where a refusal says no line.
    """
    rng = random.Random(seed)
    text = changed(rng.choice(texts()), rng)
    try:
        program = assemble(text, "p.hlal", sizes_of(MACHINE))
    except TilewrightError as error:
        for problem in error.problems:
            assert re.search(r"p\.hlal:\d+", str(problem)), f"no line: {problem}"
        return error.problems[0].code
    arrays = program.data.arrays
    if sum(int(np.prod(array.shape)) for array in arrays) > MOST_ELEMENTS:
        return "assembles"
    values = np.random.default_rng(seed)
    given = {
        array.name: values.integers(-99, 99, array.shape).astype(array.dtype)
        for array in arrays
        if not array.writable
    }
    try:
        execute(program, MACHINE, given, check=seed % 2 == 0, limit=LIMIT)
    except TilewrightError as error:
        problem = error.problems[0]
        assert "p.hlal:" in str(problem), f"no line: {problem}"
        return problem.code
    return "ends"


def main() -> int:
    """Run and count; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    outcomes: Counter[str] = Counter()
    failures = 0
    for seed in range(options.seed, options.seed + options.count):
        try:
            outcomes[judge(seed)] += 1
        except Exception as error:  # whatever is no refusal is what is looked for
            failures += 1
            print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
    for outcome, count in outcomes.most_common():
        print(f"{count:8} {outcome}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
