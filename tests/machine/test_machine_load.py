import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.machine.machine_parts import small_machine
from tilewright.errors import TilewrightError
from tilewright.machine import Machine, load_machine, to_toml
from tilewright.machine.load import MAX_FILE
from tilewright.targets.cambricon_x.machine import MACHINE
from tilewright.targets.cpu.machine import machine
from tilewright.targets.cpu.processors import Processor

EXAMPLE = Path(__file__).parents[2] / "examples" / "machines" / "small-npu.toml"
TEXT = EXAMPLE.read_text()


def problems(source):
    with pytest.raises(TilewrightError) as caught:
        load_machine(source)
    return [(problem.code, problem.where, problem.reason) for problem in caught.value.problems]


def test_the_example():
    npu = load_machine(EXAMPLE)
    assert npu == load_machine(TEXT) == load_machine(str(EXAMPLE))
    assert [memory.name for memory in npu.memories] == [
        *("dram", "feature", "weight", "result", "tables")
    ]
    assert npu.memory("weight").bytes == 128 * 1024
    assert npu.primitive("conv").operands["bias"].joined == "weight"
    assert npu.primitive("conv").operands["input"].memory == "feature"
    for operation in ("conv", "matmul", "depthwise_conv", "max_pool", "average_pool", "add"):
        assert npu.primitives_for(operation), operation
    assert len(TEXT.splitlines()) < 80


@pytest.mark.parametrize(
    "original",
    [small_machine(), MACHINE, machine(Processor()), load_machine(EXAMPLE)],
    ids=lambda m: m.name,
)
def test_round_trip(original):
    text = to_toml(original)
    assert load_machine(text) == original
    assert to_toml(load_machine(text)) == text


@settings(max_examples=60, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), st.floats(1e-3, 1e14))
def test_text_and_numbers_round_trip(description, rate):
    data = small_machine().to_json()
    data["description"] = description
    data["layouts"] = {description: description}
    data["memories"][0]["bytes_per_cycle"] = rate
    original = Machine.from_json(data)
    assert load_machine(to_toml(original)) == original


@pytest.mark.parametrize(
    ("old", "new", "where", "reason"),
    [
        ("clock_hz = 500e6", "clock = 500e6", "clock", "unknown key"),
        ("clock_hz = 500e6", "clock_hz = -1", "clock_hz", "equal to 1, but it is -1"),
        ("clock_hz = 500e6", 'clock_hz = "1"', "clock_hz", "valid number"),
        ("clock_hz = 500e6", "clock_hz = inf", "clock_hz", "finite"),
        ("queue = 4", "depth = 4", "engine.load.depth", "unknown key"),
        ("granule = 16", "granule = -16", "memory.feature.granule", "greater than 0"),
        ("131_072, granule", "131_072.5, granule", "memory.feature.bytes", "integer"),
        ("ceil(co/8)", "co.__class__", "primitive.conv.cycles", "'.' is not arithmetic"),
        ("n*g*b0", "os.system(1)+n", "primitive.conv.cycles", "'.' is not arithmetic"),
        ('input = "feature"', "input = 3", "primitive.conv.operands.input", "but it is 3"),
        ('joined = "weight"', 'join = "weight"', "primitive.conv.operands.bias.join", "unknown"),
        ("[move]", "[[move]]", "move", "must be tables by name"),
        ("memory.dram = {", "memory.dram = 3 #", "memory", "must be tables by name"),
        ("memory.dram", "memories.dram", "memories", "unknown key"),
        ("queue = 4", 'name = "x"', "engine.load.name", "name in the table's header"),
        ("clock_hz = 500e6", "clock_hz = 2020-01-01", "", "2020-01-01"),
        ("memory.tables", 'memory."a\\nb"', "memory.a?b", "is not a name"),
    ],
)
def test_problems_are_named_by_key(old, new, where, reason):
    assert old in TEXT
    found = problems(TEXT.replace(old, new, 1))
    assert any(
        code == "machine-invalid" and place == where and reason in said
        for code, place, said in found
    ), found


def test_what_was_meant_is_suggested():
    with pytest.raises(TilewrightError, match=r"memory.dram.bytes_per_cyle: .*bytes_per_cycle\?"):
        load_machine(TEXT.replace("bytes_per_cycle", "bytes_per_cyle", 1))
    with pytest.raises(TilewrightError, match=r"memori: unknown key \(did you mean memory\?\)"):
        load_machine("memori = 1\n" + TEXT)


def test_all_problems_at_once():
    text = TEXT.replace("clock_hz", "clock").replace("queue", "depth")
    places = [place for _, place, _ in problems(text)]
    for place in ("clock_hz", "clock", "engine.load.depth", "engine.compute.depth"):
        assert place in places


@pytest.mark.parametrize(
    "text",
    [
        "a = \n",
        "a = 1\na = 2\n",
        "x = " + "[" * 9000 + "\n",
        "x = " + "9" * 5000 + "\n",
        "\n" + "#" * MAX_FILE,
    ],
)
def test_what_is_not_toml(text):
    ((code, _, _),) = problems(text)
    assert code == "machine-file"


def test_files(tmp_path):
    path = tmp_path / "machine.toml"
    assert problems(path)[0][:2] == ("machine-file", str(path))
    assert problems(tmp_path)[0][0] == "machine-file"
    path.write_bytes(b"name = '\xff'\n")
    assert problems(path)[0][0] == "machine-file"
    path.write_bytes(b"#" * (MAX_FILE + 1))
    assert "larger" in problems(path)[0][2]
    assert problems("no\0file")[0][0] == "machine-file"
    path.write_text(TEXT.replace("clock_hz", "clock"))
    assert (f"{path}: clock") in [place for _, place, _ in problems(path)]


LINES = TEXT.splitlines(keepends=True)


@settings(max_examples=250, deadline=None)
@given(st.data())
def test_only_refusals_escape(data):
    lines = list(LINES)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(lines) - 1))
        what = data.draw(st.integers(0, 3))
        if what == 0:
            del lines[at]
        elif what == 1:
            lines[at] = data.draw(st.sampled_from(LINES))
        elif what == 2:
            cut = data.draw(st.integers(0, len(lines[at])))
            garbage = data.draw(
                st.one_of(
                    st.text(max_size=8),
                    st.sampled_from(
                        ["-1", "[]", "{}", "1e999", "nan", '"', "''", "=", "true", "9" * 25]
                    ),
                )
            )
            lines[at] = lines[at][:cut] + garbage + lines[at][cut:]
        else:
            old, new = data.draw(
                st.sampled_from(
                    [("= 8", "= []"), ('"', ""), ("8", "-8"), ("=", "= {} ="), ("8", "8e400")]
                )
            )
            lines[at] = lines[at].replace(old, new)
    with contextlib.suppress(TilewrightError):
        load_machine("".join(lines) + "\n")


@settings(max_examples=100, deadline=None)
@given(
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
        ),
        max_leaves=8,
    ),
    st.sampled_from(["memories", "moves", "engines", "primitives", "layouts", "name", "main", "x"]),
)
def test_only_refusals_escape_from_json(value, field):
    data = small_machine().to_json()
    data[field] = value
    with contextlib.suppress(TilewrightError):
        Machine.from_json(data)
    if isinstance(data.get("memories"), list) and data["memories"]:
        data["memories"][0] = value
        with contextlib.suppress(TilewrightError):
            Machine.from_json(data)
