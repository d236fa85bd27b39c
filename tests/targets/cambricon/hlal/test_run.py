"""Programs that run, and programs that must not: each refusal names the line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.targets.cambricon.hlal.running import MACHINE, Array, arrays, build, outputs

from tilewright.cli.hlal import write_timeline
from tilewright.errors import TilewrightError
from tilewright.numerics import fixed
from tilewright.targets.cambricon.hlal.listing import listing
from tilewright.targets.cambricon.hlal.run import execute
from tilewright.targets.cambricon.simulate.simulator import run

EXAMPLES = Path(__file__).parents[4] / "examples" / "hlal"


def dense(given: dict[str, Array], x: Array, weight: str, bias: str | None = None) -> Array:
    """A fully connected layer with 8 fraction bits everywhere."""
    sums = given[weight].reshape(-1, x.size).astype(np.int64) @ x.reshape(-1).astype(np.int64)
    if bias is not None:
        sums = sums + given[bias].reshape(-1).astype(np.int64) * 256
    return fixed.requantise(sums, 16, 8)


def test_listing_4_1_of_the_thesis() -> None:
    text = (EXAMPLES / "two_layers.hlal").read_text()
    given = arrays(build(text), np.random.default_rng(1), 300)
    found = outputs(text, given)
    hidden = dense(given, given["fc1_input"], "fc1_weight", "fc1_bias")
    np.testing.assert_array_equal(found["fc1_out"].reshape(-1), hidden)
    expected = dense(given, hidden, "fc2_weight", "fc2_bias")
    np.testing.assert_array_equal(found["fc2_out"].reshape(-1), expected)


def test_listing_4_1_is_15_lines_and_one_that_it_lacks() -> None:
    lines = (EXAMPLES / "two_layers.hlal").read_text().splitlines()
    assert len([line for line in lines if line.strip() and not line.startswith(";;")]) == 15 + 1


def test_listing_4_2_of_the_thesis() -> None:
    text = (EXAMPLES / "own_block.hlal").read_text()
    given = arrays(build(text), np.random.default_rng(2), 300)
    expected = dense(given, given["input"], "weight")
    np.testing.assert_array_equal(outputs(text, given)["output"].reshape(-1), expected)


def test_data_lie_where_words_are_relocated_to() -> None:
    program = build((EXAMPLES / "own_block.hlal").read_text())
    given = arrays(program, np.random.default_rng(3), 300)
    here = execute(program, MACHINE, given).outputs["output"]
    array = next(a for a in program.data.arrays if a.name == "output")
    main = np.zeros(program.data.bytes + 4096, np.uint8)
    for item in program.data.arrays:
        if item.name in given:
            at = item.address + 4096
            main[at : at + item.bytes] = item.pack(given[item.name])
    run(program.at(4096), MACHINE, main)
    at = array.address + 4096
    np.testing.assert_array_equal(array.unpack(main[at : at + array.bytes]), here)


def test_scalars_of_data_sections() -> None:
    program = build(
        ".code\n smove $R1, three\n sload $R2, $R1, #0\n sadd $R2, $R2, #4\n smove $R1, result\n"
        " sstore $R2, $R1, #0\n.static_ro\n @fix16 three 3\n.static_rw\n @fix32 result\n"
    )
    assert execute(program, MACHINE, {}).scalars == {"result": 7}


def test_floats_are_taken_with_the_fraction_bits() -> None:
    text = ".code\n @block_fw_relu y, x\n.static_ro\n @tensor x, 1, 3, 1, 3, Q4\n"
    text += ".static_rw\n @tensor y, 1, 3, 1, 3, Q4\n"
    found = outputs(text, {"x": np.array([[-1.0, 0.5, 99999.0]])})
    assert found["y"].reshape(-1).tolist() == [0, 8, 32767]


ONE = "smove $R1, #64\n smove $R2, x\n smove $R3, #0\n"
DATA = ".static_ro\n @tensor x, 64, 64\n.static_rw\n @tensor y, 64, 64\n"


@pytest.mark.parametrize(
    ("code", "refusal", "line"),
    [
        (f"{ONE} smove $R3, #65536\n vload $R3, $R1, $R2, #0\n", "program-bounds", 6),
        (f"{ONE} vload $R3, $R1, $R2, #100000\n", "program-bounds", 5),
        (f"{ONE} smove $R3, #1\n vav $R3, $R1, $R3, $R3\n", "program-alignment", 6),
        (f"{ONE} vav $R3, $R1, $R3, $R3\n", "program-uninitialised", 5),
        (f"{ONE} j $R1\n", "program-branch", 5),
        (f"{ONE} again: j again\n", "program-endless", 5),
        (f"{ONE} again: sadd $R1, #1\n cb again, $R1\n", "program-endless", 5),
        (f"{ONE} smove $R1, #-1\n vload $R3, $R1, $R2, #0\n", "program-size", 6),
        (f"{ONE} vload $R3, $R1, $R2, #0\n vav $R3, $R1, $R3, $R3\n", "hlal-race", 6),
        (
            f"{ONE} vload $R3, $R1, $R2, #0\n@barrier\n vav $R3, $R1, $R3, $R3\n@barrier\n"
            " vstore $R3, $R1, $R2, #0\n",
            "hlal-read-only",
            None,
        ),
    ],
)
def test_what_runs_wrong_is_refused_with_its_line(
    code: str, refusal: str, line: int | None
) -> None:
    program = build(".code\n " + code + DATA)
    values = {"x": np.arange(64)}
    with pytest.raises(TilewrightError) as caught:
        execute(program, MACHINE, values, check=True, limit=10000)
    (problem,) = caught.value.problems
    assert problem.code == refusal
    assert line is None or problem.where.startswith(f"p.hlal:{line}:")


def test_a_race_names_both_lines() -> None:
    program = build(".code\n " + ONE + "vload $R3,$R1,$R2,#0\n vav $R3,$R1,$R3,$R3\n" + DATA)
    with pytest.raises(TilewrightError, match=r"p.hlal:6:2.*p.hlal:5:1.*byte 0 of vsm"):
        execute(program, MACHINE, {"x": np.arange(64)}, check=True)


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({}, "read-only"),
        ({"x": np.zeros(63)}, "shape"),
        ({"x": np.zeros(64), "z": np.zeros(1)}, "no such"),
        ({"x": np.full(64, np.nan)}, "no number"),
        ({"x": np.full(64, 40000)}, "16 bits"),
        ({"x": np.full(64, "a")}, "type"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(given: dict[str, Array], word: str) -> None:
    with pytest.raises(TilewrightError, match=word) as caught:
        execute(build(".code\n" + DATA), MACHINE, given)
    assert {problem.code for problem in caught.value.problems} == {"hlal-input"}


def test_without_barriers_results_are_the_same_and_no_slower() -> None:
    from tilewright.targets.cambricon.hlal.assemble import assemble
    from tilewright.targets.cambricon.hlal.run import sizes_of

    text = (EXAMPLES / "two_layers.hlal").read_text()
    given = arrays(build(text), np.random.default_rng(4), 300)
    with_them = execute(build(text), MACHINE, given)
    bare = assemble(text, "p.hlal", sizes_of(MACHINE), barriers=False)
    without = execute(bare, MACHINE, given)
    np.testing.assert_array_equal(with_them.outputs["fc2_out"], without.outputs["fc2_out"])
    assert without.result.cycles <= with_them.result.cycles
    assert len(bare.words) < len(build(text).words)


def test_the_trace_names_lines(tmp_path: Path) -> None:
    program = build((EXAMPLES / "own_block.hlal").read_text())
    given = arrays(program, np.random.default_rng(5), 300)
    found = execute(program, MACHINE, given, trace=True)
    write_timeline(tmp_path / "t.json", program, MACHINE, found)
    events = [
        e for e in json.loads((tmp_path / "t.json").read_text())["traceEvents"] if e["ph"] == "X"
    ]
    events = [e for e in events if "command" in e["args"]]
    moved = sum(e["args"]["bytes"] for e in events)
    assert len(events) == len(found.result.events) and moved > 0
    assert all("p.hlal:" in e["args"]["line"] for e in events)


def test_listings_show_data_and_words() -> None:
    program = build((EXAMPLES / "two_layers.hlal").read_text())
    text = listing(program)
    assert "@filter fc1_weight, 256 x 1 x 1 x 1024" in text
    assert text.count("\n") > len(program.words)
    assert f"{int(program.words[-1]):016x}" in text


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 2**64 - 1), max_size=6), st.randoms())
def test_random_words_run_or_are_refused(words: list[int], random: object) -> None:
    opcodes = [0x01, 0x02, *range(0x10, 0x19), *range(0x20, 0x26), *range(0x30, 0x46)]
    made = [(opcodes[word % len(opcodes)] << 56) | (word & (1 << 56) - 1) for word in words]
    for program in (words, made):
        try:
            run(np.array(program, np.uint64), MACHINE, np.zeros(256, np.uint8), limit=1000)
        except TilewrightError as error:
            assert error.problems
