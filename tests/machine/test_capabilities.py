"""Keys that a target does not implement are refused; docs/machine-file.md lists who does."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.machine.bundled import bundled_records
from tilewright.compiler.pipeline import resolve
from tilewright.errors import TilewrightError
from tilewright.machine import Machine
from tilewright.machine.capabilities import Capability, used
from tilewright.machine.load import load_machine, to_toml
from tilewright.machine.records import (
    MachineRecord,
    MemoryRecord,
    MoveRecord,
    OperandRecord,
    PrimitiveRecord,
)
from tilewright.system.choices import target_names
from tilewright.targets.base import find_target

ROOT = Path(__file__).parents[2]
SMALL = ROOT / "examples" / "machines" / "small-npu.toml"

UNUSUAL = {
    Capability.CORES: 2,
    Capability.SYNCHRONISATION: {"style": "flags", "ids": 4},
    Capability.GRAIN: "rows",
    Capability.STALLS: False,
    Capability.HOLDS: ["weights"],
    Capability.RESIDENT: ["inputs"],
    Capability.ISSUER: "compute",
    Capability.ISSUE_CYCLES: 3,
    Capability.MEMORY_GROWTH: 2.0,
    Capability.C: {"prefix": "npu", "wait": "npu_wait", "finish": "npu_finish"},
    Capability.IN_FLIGHT: 2,
    Capability.TRANSACTION: 16,
    Capability.ELEMENT: "int8",
    Capability.TRANSFORMS: ["img2col"],
    Capability.EFFICIENCY: [[64, 0.5]],
    Capability.JOINED: "weight",
    Capability.CIRCULAR: True,
    Capability.FILLS: True,
    Capability.PADDED: True,
    Capability.AT_STORE: True,
    Capability.ISSUE: "co",
    Capability.EPILOGUE_ANY: True,
}


def plain_machine() -> dict:
    """The example's machine without keys that take a target's support."""
    data = load_machine(SMALL).to_json()
    for move in data["moves"]:
        move["in_flight"] = 1
    for primitive in data["primitives"]:
        for storage in primitive["operands"].values():
            storage["joined"] = None
    return data


def with_key(capability: Capability) -> tuple[Machine, str]:
    """The plain machine with one key set, and the place of that key."""
    data, (kind, _, field) = plain_machine(), capability.rpartition(".")
    images = (Capability.CIRCULAR, Capability.FILLS)
    role = "input" if capability in images else "bias"  # a bias has no rows and no padding
    if capability is Capability.ISSUER:  # By reply words.
        data["synchronisation"] = {"style": "replies", "ids": 4}
    part, place = {
        "": (data, ""),
        "synchronisation": (data["synchronisation"], "synchronisation."),
        "memory": (data["memories"][1], "memory.feature."),
        "move": (data["moves"][0], "move.load-feature."),
        "primitive": (data["primitives"][0], "primitive.conv."),
        "operand": (data["primitives"][0]["operands"][role], f"primitive.conv.operands.{role}."),
    }[kind]
    if capability is Capability.HOLDS:  # A memory of its own, from which moves lead.
        data["memories"].append(part := {"name": "flash"})
        place = "memory.flash."
        ways = [move for move in data["moves"] if move["target"] in ("feature", "weight")]
        data["moves"] += [
            {**way, "name": f"flash-{way['target']}", "source": "flash"} for way in ways
        ]
    if capability is Capability.ELEMENT:  # Beside float32 alone.
        data["element"] = data["accumulator"] = "float32"
    part[field] = UNUSUAL[capability]
    if capability is Capability.C:  # All parts name a function, or none does.
        for number, one in enumerate([*data["moves"], *data["primitives"]]):
            one["c"] = {"function": f"npu_{number}"}
    return Machine.from_json(data), place + field


@pytest.mark.parametrize("capability", Capability)
def test_a_key_is_refused_where_the_target_does_not_implement_it(capability, tmp_path):
    machine, place = with_key(capability)
    whole = [(Capability.SYNCHRONISATION, "synchronisation")]
    part = capability in (Capability.GRAIN, Capability.ISSUER, Capability.STALLS)
    assert list(used(machine)) == whole * part + [(capability, place)]
    file = tmp_path / "m.toml"
    file.write_text(to_toml(machine))
    if capability in find_target("generic").implements:
        assert resolve(str(file))[1] == load_machine(file, complete=True)
        return
    with pytest.raises(TilewrightError) as caught:
        resolve(str(file))
    (problem,) = caught.value.problems
    assert (problem.code, problem.where) == ("machine-capability", f"{file}: {place}")
    others = [n for n in target_names() if capability in find_target(n).implements]
    assert "leave it out" in problem.help and all(name in problem.help for name in others)


def test_values_of_a_bundled_machine_are_refused_alike():
    with pytest.raises(TilewrightError, match=r"machine-capability.*move.vload.in_flight"):
        resolve("cambricon", values={"move.vload.in_flight": 8})


@pytest.mark.parametrize("name", [name for name in target_names() if name != "generic"])
def test_targets_implement_what_their_machines_use(name):
    found, machine = resolve(name)
    asked = {capability for capability, _ in used(machine)}
    assert asked <= found.implements


def test_the_page_lists_who_implements_what():
    text = (ROOT / "docs" / "machine-file.md").read_text()
    rows = re.findall(r"^\| `([a-z_.]+)` \| ((?:`[a-z]+`(?:, )?)+) \|$", text, re.MULTILINE)
    listed = {key: set(re.findall(r"`([a-z]+)`", names)) for key, names in rows}
    families = {
        "cpu": "cpu", "cambricon": "cambricon", "dpu": "dpu-b4096", "machine": "generic",
        "sunway": "sunway", "ascend": "ascend910",
    }  # fmt: skip
    known = {
        capability.value: {
            shown for shown, name in families.items() if capability in find_target(name).implements
        }
        for capability in Capability
    }
    assert listed == known


KINDS = {
    "machine": MachineRecord, "memory": MemoryRecord, "move": MoveRecord,
    "primitive": PrimitiveRecord, "operand": OperandRecord,
}  # fmt: skip


def test_the_page_lists_the_keys_of_every_family():
    text = (ROOT / "docs" / "machine-file.md").read_text()
    rows = re.findall(r"^\| `([a-z_]+)` \| ([a-z]+) \| `([a-z_]+)` \|", text, re.MULTILINE)
    known = {
        (family, part, key)
        for part, kind in KINDS.items()
        for family, record in bundled_records(kind).items()
        for key in record.model_fields
    }
    assert set(rows) == known and len(rows) == len(known)


def test_a_fresh_process_finds_the_records_of_every_family():
    script = (
        "from tilewright.machine import records\n"
        "for name in sys.argv[1:]: print(*records.families(getattr(records, name)))"
    )
    kinds = [kind.__name__ for kind in KINDS.values()]
    command = [sys.executable, "-c", "import sys\n" + script, *kinds]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    for kind, line in zip(KINDS.values(), lines, strict=True):
        assert set(line.split()) >= bundled_records(kind).keys()
    assert "cpu" in lines[list(KINDS).index("primitive")].split()


def test_a_record_of_another_family_is_refused(tmp_path):
    data = load_machine(SMALL).to_json()
    data["own"] = {"cpu": {"pieces": "all"}}
    file = tmp_path / "m.toml"
    file.write_text(to_toml(Machine.from_json(data)))
    with pytest.raises(TilewrightError) as caught:
        resolve(str(file))
    (problem,) = caught.value.problems
    assert (problem.code, problem.where) == ("machine-capability", f"{file}: own.cpu")
    assert "targets that do: cpu" in problem.help


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"gpu": {}}, r"own: no target has keys 'gpu' of its own here \(known: .*cpu"),
        ({"cpu": {"piece": "all"}}, "own.cpu.piece: unknown key"),
        ({"cpu": {"pieces": "some"}}, "own.cpu.pieces: input should be 'windows' or 'all'"),
        ({"cpu": {"cache_costs": {"usable": 2}}}, "own.cpu.cache_costs.usable: input should be"),
        ({"cpu": {}, "gpu": {}}, "own: is of one family of targets, not of cpu, gpu"),
        (3, "own: input should be"),
    ],
)
def test_a_record_that_is_none_is_named_with_its_place(own, message):
    data = load_machine(SMALL).to_json() | {"own": own}
    with pytest.raises(TilewrightError, match=message):
        Machine.from_json(data)
