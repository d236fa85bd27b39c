"""No field of the shared machine model is one family's alone: that is a record in its folder."""

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from tilewright.machine import Machine
from tilewright.machine.load import load_machine
from tilewright.machine.records import Record
from tilewright.system.choices import target_names, target_points
from tilewright.targets.base import find_target
from tilewright.targets.cpu.machine import machine as cpu
from tilewright.targets.cpu.processors import PROCESSORS

EXAMPLES = Path(__file__).parents[2] / "examples" / "machines"

FOR_MACHINE_FILES = {
    # What the generic target implements, or the compiler for every target, any file may set.
    *("Primitive.parameters", "Storage.padded", "Memory.holds", "Memory.component"),
    *("Machine.overflow", "Machine.c", "Machine.issue_cycles"),
    *("Move.c", "Move.efficiency", "Move.curves", "Move.curve", "Primitive.c"),
    *("Synchronisation.depth", "CInterface.signal", "CInterface.barrier"),
    "Synchronisation.grain",  # Passes of the tile dialect and planning ask for it, and dpu sets it.
    "Synchronisation.stalls",  # Planning asks for it, and ascend sets it.
    "Storage.at_store",  # The tile program says what reads an operand; ascend sets it.
    "Synchronisation.issuer",  # Of any core that computes itself; sunway's alone are bundled.
    "Machine.memory_growth",  # cpu implements it, too, and its default is cpu's.
    "Fusion.residency",
    *("Host.cpu", "Host.cycles", "Host.cycles_per_element", "Host.cycles_per_operation"),
    "Machine.host",  # The processor beside a machine that a file describes.
    # Figures of energy and area, which a file's author knows.
    *("Memory.read_pj", "Memory.write_pj", "Move.byte_pj", "Primitive.tile_pj"),
    *("Machine.figures_source", "Machine.leakage_mw", "Machine.area_mm2"),
    *("Memory.leakage_mw", "Memory.area_mm2", "Engine.leakage_mw", "Engine.area_mm2"),
    *("Primitive.sizes", "Primitive.blocks", "Storage.turned", "Storage.alternatives"),
    *("Machine.temporary_space", "Storage.along"),
    *("Storage.gathered", "Storage.converted", "Move.transforms", "Storage.element_bytes"),
}
"""Fields that one bundled family sets, or none: they are documented for machine files."""


def described() -> Iterator[tuple[str, Machine]]:
    """All bundled machines with their families: folders of targets, and machine files."""
    for name in target_names():
        package, _, folder = target_points()[name].module.partition(".targets.")
        if name != "generic" and package == "tilewright":  # Not one that is merely installed.
            yield folder.split(".")[0], find_target(name).machine()
    for processor in PROCESSORS.values():
        yield "cpu", cpu(processor)
    for file in EXAMPLES.glob("*.toml"):
        yield "machine files", load_machine(file)


def fields_set(part: BaseModel) -> Iterator[str]:
    """The optional fields of a part, and of what it holds, that differ from their defaults."""
    for name, field in type(part).model_fields.items():
        value = getattr(part, name)
        if isinstance(value, Record):
            continue
        if not field.is_required() and value != field.default:
            yield f"{type(part).__name__}.{name}"
        held = value.values() if isinstance(value, dict) else value
        for inner in held if isinstance(value, tuple | dict) else (value,):
            if isinstance(inner, BaseModel):
                yield from fields_set(inner)


def optional_fields() -> set[str]:
    """All optional fields of the shared models, records left out."""
    found: set[str] = set()
    pending: list[type[BaseModel]] = [Machine]
    while pending:
        model = pending.pop()
        for name, field in model.model_fields.items():
            inner = [field.annotation]
            for kind in inner:
                inner += getattr(kind, "__args__", ())
            models = [k for k in inner if isinstance(k, type) and issubclass(k, BaseModel)]
            if any(issubclass(kind, Record) for kind in models):
                continue
            pending += models
            if not field.is_required():
                found.add(f"{model.__name__}.{name}")
    return found


def test_a_field_of_the_shared_model_is_set_by_two_families() -> None:
    setting: dict[str, set[str]] = {}
    for family, machine in described():
        for field in fields_set(machine):
            setting.setdefault(field, set()).add(family)
    single = {
        field: setting.get(field, set())
        for field in optional_fields()
        if len(setting.get(field, ())) < 2
    }
    assert single.keys() >= FOR_MACHINE_FILES, "these are set by two families: off the list"
    assert {f: names for f, names in single.items() if f not in FOR_MACHINE_FILES} == {}
