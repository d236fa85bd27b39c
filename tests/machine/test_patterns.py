"""Patterns of fusion: their text, what is refused, and where they stand in machine files."""

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
    ONE_INPUT,
    Edge,
    PatternError,
    Predicate,
    Template,
    Vertex,
    parse_pattern,
)

NPU = (Path(__file__).parents[2] / "examples" / "machines" / "small-npu.toml").read_text()


def chain(*kinds: str) -> Template:
    edges = tuple(Edge(number, number + 1) for number in range(len(kinds) - 1))
    return Template(tuple(Vertex((kind,)) for kind in kinds), edges)


def test_a_chain() -> None:
    assert parse_pattern("conv -> pool -> relu") == chain("conv", "pool", "relu")


def test_siblings() -> None:
    found = parse_pattern("{conv, conv, pool}[bytes<=4096]")
    small = (Predicate("bytes", "<=", 4096),)
    assert found.edges == tuple(
        Edge(a, b, "shares input", small) for a, b in ((0, 1), (0, 2), (1, 2))
    )
    assert [vertex.kinds for vertex in found.vertices] == [("conv",), ("conv",), ("pool",)]


def test_names_join_clauses() -> None:
    found = parse_pattern("left: conv -> sum: add; conv -> sum; {left, pool}")
    assert found.edges == (Edge(0, 1), Edge(2, 1), Edge(0, 3, "shares input"))


def test_conditions() -> None:
    found = parse_pattern("conv|depthwise[window=1, stride<=2] -[readers=1]-> add|mul")
    assert found.vertices[0] == Vertex(
        ("conv", "depthwise"), (Predicate("window", "=", 1), Predicate("stride", "<=", 2))
    )
    assert found.edges == (Edge(0, 1, "produces", (Predicate("readers", "=", 1),)),)
    for predicate, values in (("=", (2,)), ("<=", (1, 2)), (">=", (2, 3))):
        assert [v for v in (1, 2, 3) if Predicate("window", predicate, 2).holds(v)] == list(values)


def vertices() -> st.SearchStrategy[str]:
    kinds = st.sampled_from(["conv", "add", "conv|matmul", "any", "layer_norm"])
    conditions = st.sampled_from(["", "[window<=3]", "[stride=1, channels>=8]"])
    return st.builds(str.__add__, kinds, conditions)


@given(
    st.lists(st.lists(vertices(), min_size=2, max_size=3), min_size=1, max_size=2),
    st.booleans(),
    st.booleans(),
)
def test_text_round_trips(clauses: list[list[str]], siblings: bool, condition: bool) -> None:
    texts: list[str] = []
    arrow = " -[bytes<=9]-> " if condition else " -> "
    for number, members in enumerate(clauses):
        first = "shared: " + members[0] if number == 0 else "shared"
        if siblings and number == 0:
            texts.append(f"{{{', '.join([first, *members[1:]])}}}{'[bytes<=9]' * condition}")
        else:
            texts.append(arrow.join([first, *members[1:]]))
    template = parse_pattern("; ".join(texts))
    assert parse_pattern(str(template)) == template
    assert str(parse_pattern(str(template))) == str(template)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "a kind of operation is expected, not the end"),
        ("conv", "one operation alone is nothing to fuse"),
        ("conv ->", "a kind of operation is expected, not the end"),
        ("conv -> cnv", "there is no kind 'cnv'"),
        ("conv, pool", "',' is not expected here"),
        ("conv $ pool", "'$ pool' is not expected here"),
        ("a: conv -> pool -> a", "is cyclic"),
        ("a: conv -> a", "is cyclic"),
        ("a: conv -> b: add; b -> a", "is cyclic"),
        ("conv -> add; conv -> pool", "no vertex in common"),
        ("a: conv -> p: pool; conv -> p", "never matches: pool reads one tensor"),
        ("conv[window<=2, window>=3] -> pool", "never matches: no window of conv"),
        ("conv[window=0] -> pool", "never matches: no window of conv"),
        ("conv[window<=0] -> pool", "never matches: no window of conv"),
        ("a: conv[readers=1] -> pool; a -> add", "never matches: no readers of conv"),
        ("{conv, conv}[readers=1]", "never matches: no readers of a tensor"),
        ("conv[inputs=1] -> s: add[inputs=1]; conv -> s", "never matches: no inputs of add"),
        ("conv[size=1] -> pool", "there is no property 'size'"),
        ("conv -[window=1]-> pool", "there is no property 'window'"),
        ("conv[window<3] -> pool", "'<3] -> pool' is not expected here"),
        ("conv[window=x] -> pool", "a number is expected"),
        ("conv: conv -> pool", "is a kind, and no name"),
        ("a: conv -> a: pool", "is given twice"),
        ("a: conv -> b: add; a -> b", "an edge is given twice"),
        ("{a: conv, a}", "given twice among siblings"),
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
    assert set(ONE_INPUT) <= set(DIMS)


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
        ('query = "a: conv -> pool -> a"', "fusion.f.query", "is cyclic"),
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
    with pytest.raises(ValueError, match="cyclic"):
        small_machine(fusions=(Fusion(name="f", query="a: conv -> relu -> a"),))
