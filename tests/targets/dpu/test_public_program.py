"""A vendor's program runs: the file is not ours, and its path comes from TILEWRIGHT_DPU_PROGRAM.

The file is JSON of AMD's trace parser's test data (subgraph_name, mc_code_sstr.str()), for
DPUCZDX8G_ISA0_B4096_MAX_BG2: a matrix product of 2048 inputs and 1001 outputs.
"""

import json
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tilewright.codegen.words import (
    Statement,
    assemble,
    decode,
    disassemble,
    encode,
    from_bytes,
    to_bytes,
)
from tilewright.targets.dpu.core import ISA0
from tilewright.targets.dpu.execute import run
from tilewright.targets.dpu.formats import CATEGORIES
from tilewright.targets.dpu.isa import REVISION_0
from tilewright.targets.dpu.operations import operations_of, read_program
from tilewright.targets.dpu.timing import check_program, time_program
from tilewright.targets.dpu.tokens import match

FILE = os.environ.get("TILEWRIGHT_DPU_PROGRAM", "")
pytestmark = pytest.mark.skipif(not FILE, reason="TILEWRIGHT_DPU_PROGRAM names no file")

INPUTS, OUTPUTS = 2048, 1001
BIAS = 0x1F4800
"""Where the program has its biases, behind the weights."""


@pytest.fixture(scope="module")
def words():
    return bytes.fromhex(json.loads(Path(FILE).read_text())["mc_code_sstr.str()"])


def test_text_and_back(words):
    units = from_bytes(REVISION_0, words)
    text = disassemble(REVISION_0, units)
    assert to_bytes(REVISION_0, assemble(REVISION_0, text)) == words
    assert len(words) == 17456
    count = Counter(line.split()[0] for line in text.splitlines())
    assert count == {"load": 1006, "conv": 63, "convinit": 2, "save": 4, "end": 1}


def test_tokens_and_bytes(words):
    operations = read_program(ISA0, words)
    pairs = Counter(
        (operation.instruction.category, other)
        for operation in operations
        for bit, other in enumerate(CATEGORIES)
        if operation.fields["put"] >> bit & 1 and other != operation.instruction.category
    )
    assert pairs == {("load", "conv"): 63, ("conv", "load"): 47, ("conv", "save"): 4}
    matched = match(operations)
    assert not matched.starved
    assert not matched.left
    moved = Counter()
    for operation in operations:
        if operation.mnemonic in ("load", "save"):
            moved[operation.mnemonic] += operation.fields["length"] * operation.fields["channel"]
    assert moved == {"load": 2_053_097, "save": 1_001}


@pytest.mark.parametrize("seed", range(3))
def test_results(words, seed):
    rng = np.random.default_rng(seed)
    weights = rng.integers(-128, 128, (OUTPUTS, INPUTS), np.int8)
    bias = rng.integers(-128, 128, OUTPUTS, np.int8)
    x = rng.integers(-128, 128, INPUTS, np.int8)
    # The last LOAD of biases takes whole groups of 16.
    parameters = np.zeros(BIAS + 1008, np.int8)
    parameters[: weights.size] = weights.ravel()
    parameters[BIAS : BIAS + OUTPUTS] = bias
    out = np.zeros(OUTPUTS, np.int8)
    run(ISA0, read_program(ISA0, words), {0: parameters, 2: x, 3: out})
    total = 2 * (weights.astype(np.int64) @ x.astype(np.int64)) + bias.astype(np.int64) * 32
    exact = np.minimum(np.maximum((total + 256) // 512, -128), 127)
    assert np.array_equal(out, exact)
    assert len(set(exact.tolist())) > 60


def test_synchronisation_and_time(words):
    operations = read_program(ISA0, words)
    report = check_program(ISA0, operations)
    assert report.race_free
    assert not report.unwritten
    timeline = time_program(ISA0, operations)
    assert timeline.main_bytes == 2_053_097 + 1_001
    assert timeline.cycles >= 2_054_098 / 32
    assert timeline.busy[CATEGORIES.index("conv")] >= 63 * 128


def without(statements, row, field, bit):
    values = dict(statements[row].values)
    values[field] &= ~(1 << bit)
    return [*statements[:row], Statement(statements[row].mnemonic, values), *statements[row + 1 :]]


@pytest.mark.slow
def test_every_token_is_needed(words):
    """A put, a take, or both: the report names it, and where both are gone it names the race."""
    program = decode(REVISION_0, from_bytes(REVISION_0, words))
    statements = program.statements()
    queues = {}
    for row, statement in enumerate(statements):
        own = CATEGORIES.index(program.instructions.by_mnemonic[statement.mnemonic].category)
        for other in range(4):
            if other == own:
                continue
            if statement.values["put"] >> other & 1:
                queues.setdefault((own, other), ([], []))[0].append(row)
            if statement.values["take"] >> other & 1:
                queues.setdefault((other, own), ([], []))[1].append(row)
    tokens = [
        (source, target, *rows)
        for (source, target), (puts, takes) in queues.items()
        for rows in zip(puts, takes, strict=True)
    ]
    assert len(tokens) == 63 + 47 + 4
    for source, target, put, take in tokens:
        no_put = without(statements, put, "put", target)
        no_take = without(statements, take, "take", source)
        neither = without(no_put, take, "take", source)
        codes = []
        for changed in (no_put, no_take, neither):
            units = encode(REVISION_0, changed)
            report = check_program(ISA0, operations_of(decode(REVISION_0, units)))
            assert not report.race_free, (source, target, put, take)
            codes.append({problem.code for problem in report.problems})
        assert "program-deadlock" in codes[0]
        assert "program-token" in codes[1]
        assert codes[2] == {"program-race"}, (put, take)
        for race in report.races:
            assert race.where.startswith("instruction ")
            assert "and instruction " in race.reason
