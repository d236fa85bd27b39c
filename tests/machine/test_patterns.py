"""Patterns of fusion: their text, what is refused, and where they stand in machine files."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.machine.machine_parts import small_machine
from tilewright.errors import TilewrightError
from tilewright.machine import Fusion, load_machine, to_toml
from tilewright.machine.dims import DIMS
from tilewright.machine.patterns import (
    KINDS,
    PatternError,
    Predicate,
    Vertex,
    parse_pattern,
)

NPU = (Path(__file__).parents[2] / "examples" / "machines" / "small-npu.toml").read_text()


def test_a_chain() -> None:
    expected = tuple(Vertex((kind,)) for kind in ("conv", "pool", "relu"))
    assert parse_pattern("conv -> pool -> relu") == parse_pattern(" conv->pool->relu ") == expected


def test_conditions() -> None:
    found = parse_pattern("conv|depthwise [window=1, stride<=2] -> add | mul[readers>=2]")
    assert found == (
        Vertex(("conv", "depthwise"), (Predicate("window", "=", 1), Predicate("stride", "<=", 2))),
        Vertex(("add", "mul"), (Predicate("readers", ">=", 2),)),
    )
    for predicate, values in (("=", (2,)), ("<=", (1, 2)), (">=", (2, 3))):
        assert [v for v in (1, 2, 3) if Predicate("window", predicate, 2).holds(v)] == list(values)
    first, second = found
    assert first.matches("depthwise_conv", {"window": 1, "stride": 2})
    assert first.matches("conv", {"stride": 2}), "a property that it does not have is 1"
    assert not first.matches("conv", {"window": 3})
    assert not second.matches("conv", {"readers": 2})


@given(st.text("conv->[]|=<,1 windoaypl", max_size=40))
def test_any_text(text: str) -> None:
    with suppress(PatternError):
        pattern = parse_pattern(text)
        assert len(pattern) >= 2 and all(vertex.operations for vertex in pattern)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "there is no kind ''"),
        ("conv", "one operation alone is nothing to fuse"),
        ("conv ->", "there is no kind ''"),
        ("conv -> cnv", "there is no kind 'cnv'"),
        ("conv, pool", "there is no kind 'conv, pool'"),
        ("{conv, conv}", "there is no kind '{conv, conv}'"),
        ("conv[window=1 -> pool", "'conv[window=1' is no operation"),
        ("conv[window=1]] -> pool", "'conv[window=1]]' is no operation"),
        ("conv[size=1] -> pool", "there is no property 'size'"),
        ("conv[window<3] -> pool", "'window<3' is no condition"),
        ("conv[window=x] -> pool", "'window=x' is no condition"),
        ("conv[] -> pool", "'' is no condition"),
        ("conv[window<=2, window>=3] -> pool", "never matches: no window of conv"),
        ("conv[window=0] -> pool", "never matches: no window of conv"),
        ("conv[window<=0] -> pool", "never matches: no window of conv"),
        (" -> ".join(["relu"] * 9), "at most 8 vertices"),
        ("conv -> pool " * 200, "at most 1000"),
    ],
)
def test_refusals(text: str, reason: str) -> None:
    with pytest.raises(PatternError) as caught:
        parse_pattern(text)
    assert reason in str(caught.value)


def test_kinds_are_operations() -> None:
    for kind, operations in KINDS.items():
        assert set(operations) <= set(DIMS), kind


HAND_ON = """
[move.hand-on]
source = "result"
target = "feature"
engine = "store"
bytes_per_cycle = 8
"""
"""With it a kernel can read on the chip what another has made."""


def test_machine_files_list_patterns() -> None:
    text = (
        NPU
        + HAND_ON
        + '\n[fusion.conv-pool]\nquery = "conv -> pool"\nbetween = "result"\ngain = 0.9\n'
    )
    machine = load_machine(text)
    assert machine.fusions == (
        Fusion(name="conv-pool", query="conv -> pool", between="result", gain=0.9),
    )
    assert load_machine(to_toml(machine)) == machine
    assert machine.with_values({"fusion.conv-pool.gain": 0.5}).fusion("conv-pool").gain == 0.5


@pytest.mark.parametrize(
    ("lines", "where", "reason"),
    [
        ('query = "conv"', "fusion.f.query", "one operation alone"),
        ('query = "conv -> cnv"', "fusion.f.query", "there is no kind 'cnv'"),
        ('query = "conv -> attention"', "fusion.f.query", "never matches: no primitive of"),
        (
            'query = "conv -> pool"\nbetween = "result"',
            "fusion.f.query",
            "never matches: pool cannot read on the chip what conv makes",
        ),
        ('query = "conv -> add"\nbetween = "dram"', "fusion.f.between", "is main memory"),
        ('query = "conv -> add"\nbetween = "near"', "fusion.f.between", "no memory 'near'"),
        ('query = "conv -> pool"\nresidency = "whole"', "fusion.f.between", "is needed"),
        ('query = "conv -> pool"\ngain = 2', "fusion.f.gain", "less than or equal to 1"),
        ('query = "conv -> pool"\nquerry = 2', "fusion.f.querry", "unknown key"),
        ("gain = 0.5", "fusion.f.query", "is missing"),
    ],
)
def test_machine_files_refuse_patterns(lines: str, where: str, reason: str) -> None:
    with pytest.raises(TilewrightError) as caught:
        load_machine(f"{NPU}\n[fusion.f]\n{lines}\n")
    (problem,) = caught.value.problems
    assert (problem.code, problem.where) == ("machine-invalid", where)
    assert reason in problem.reason


def test_a_machine_has_its_patterns_checked() -> None:
    with pytest.raises(ValueError, match="no kind"):
        small_machine(fusions=(Fusion(name="f", query="conv -> rel"),))
