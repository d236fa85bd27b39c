"""Fusion plans as text and JSON."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.errors import TilewrightError
from tilewright.network.fusion.plan import FusedGroup, FusionPlan, StayingTensor

PLAN = FusionPlan(
    "lenet5",
    "cpu",
    "exact",
    (FusedGroup("conv-pool", ("k0_conv1", "k1_pool1"), 15530.5),),
    (("k2_conv2", 17222.0),),
    (StayingTensor('a "b"', "vb0", ("k1_pool1", "k2_conv2"), 784, 20.5),),
)
TEXT = """\
fusion plan of "lenet5" for "cpu" by exact: 32752.5 cycles
fuse conv-pool: k0_conv1, k1_pool1 (15530.5 cycles)
alone: k2_conv2 (17222.0 cycles)
stays in vb0: "a \\"b\\"" for k1_pool1, k2_conv2 (784 bytes, 20.5 cycles less)
"""

names = st.sampled_from(["cpu", "conv-pool", "A", "small_npu-2"])
symbols = st.builds("k{}_{}".format, st.integers(0, 999), st.sampled_from(["conv1", "add", ""]))
cycles = st.floats(0, 1e15)
plans = st.builds(
    FusionPlan,
    st.text(max_size=20),
    names,
    st.sampled_from(["exact", "paths", "greedy"]),
    st.lists(
        st.builds(
            FusedGroup,
            names,
            st.lists(symbols, min_size=2, max_size=4).map(tuple),
            cycles,
        ),
        max_size=3,
    ).map(tuple),
    st.lists(st.tuples(symbols, cycles), max_size=3).map(tuple),
    st.lists(
        st.builds(
            StayingTensor,
            st.text(max_size=20),
            st.sampled_from(["vb0", "maps"]),
            st.lists(symbols, min_size=2, max_size=4).map(tuple),
            st.integers(0, 10**9),
            cycles,
        ),
        max_size=2,
    ).map(tuple),
)


def test_the_text() -> None:
    assert str(PLAN) == TEXT
    assert FusionPlan.parse(TEXT) == PLAN
    assert PLAN.hash == FusionPlan.parse(TEXT).hash
    other = FusionPlan.parse(TEXT.replace("17222.0", "17223.0").replace("32752", "32753"))
    assert other.hash != PLAN.hash


@given(plans)
def test_round_trips(plan: FusionPlan) -> None:
    assert FusionPlan.parse(str(plan)) == plan
    value = json.loads(json.dumps(plan.to_json()))
    assert FusionPlan.from_json(value) == plan


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("", "line 1"),
        ("fusion plan", "line 1"),
        (TEXT + "merge: k1\n", "line 5"),
        (TEXT.replace("17222.0", "many"), ""),
        (TEXT.replace("32752.5", "1.0"), ""),
        (TEXT.replace("784 bytes", "-1 bytes"), "line 4"),
        (TEXT.replace('"a ', "'a "), "line 4"),
        (TEXT.replace('"cpu"', '"c"pu"'), ""),
        (TEXT.replace("exact", "nan nan"), "line 1"),
    ],
)
def test_other_texts_are_refused(text: str, where: str) -> None:
    with pytest.raises(TilewrightError) as caught:
        FusionPlan.parse(text)
    assert [(p.code, p.where) for p in caught.value.problems] == [("fusion-plan", where)]


@pytest.mark.parametrize(
    "change",
    [
        {"hash": "0"},
        {"groups": 1},
        {"alone": [{}]},
        {"search": "x"},
        {"stays": [{"bytes": 1}]},
        {"stays": []},
    ],
)
def test_other_objects_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(TilewrightError, match="fusion-plan"):
        FusionPlan.from_json(PLAN.to_json() | change)
    with pytest.raises(TilewrightError, match="fusion-plan"):
        FusionPlan.from_json({})
