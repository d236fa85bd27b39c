"""From files of other tools to the text of a machine file, with what it does not say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.errors import choose, refuse
from tilewright.integrations.machines.accelforge import accelforge_hardware
from tilewright.integrations.machines.described import ELEMENTS, machine_described
from tilewright.integrations.machines.hierarchy import Hardware
from tilewright.integrations.machines.reading import CODE, read_yaml
from tilewright.integrations.machines.timeloop import timeloop_hardware
from tilewright.integrations.machines.zigzag import zigzag_hardware
from tilewright.machine.checks import shown
from tilewright.machine.load import to_toml
from tilewright.machine.model import Machine

MOST_FILES = 16

_ZIGZAG = {"memories", "operational_array"}

_BESIDE = {
    *("mapping", "variables", "workload", "problem", "mapper", "globals", "components"),
    *("architecture_constraints", "mapspace_constraints", "mapspace", "compound_components"),
}
"""Keys of files of AccelForge and Timeloop that describe something else than hardware."""


@dataclass(frozen=True)
class Imported:
    """A machine that was read from other tools' files."""

    machine: Machine
    tool: str
    lost: tuple[str, ...]
    """Facts that the machine file does not say, and assumptions made for it, in words."""

    @property
    def text(self) -> str:
        """The machine file; what was lost stands in comments at its beginning."""
        notes = [f"Imported from a file of {self.tool}. What it does not say, or assumes:"]
        notes += [f"- {line}" for line in self.lost]
        # A comment ends with its line, whatever a name holds.
        comments = [f"# {''.join(c if c.isprintable() else ' ' for c in line)}\n" for line in notes]
        return f"{''.join(comments)}fusion = {{}}\n{to_toml(self.machine)}"


def import_machine(paths: Sequence[Path], element: str = "int8") -> Imported:
    """Read one description of hardware, and mappings beside it.

    Raises TilewrightError (``machine-import``) for files of another kind, or files that say what no
    machine file can hold.
    """
    if element not in ELEMENTS:
        raise refuse(
            CODE, f"no number format {shown(element)}", "--element", choose(element, ELEMENTS)
        )
    if not 1 <= len(paths) <= MOST_FILES:
        raise refuse(CODE, f"takes 1 to {MOST_FILES} files")
    read = [(path, read_yaml(path)) for path in paths]
    mapping: list[Any] | None = None
    found: list[tuple[str, dict[str, Any]]] = []
    lost: list[str] = []
    for path, data in read:
        if isinstance(data, list) and any(
            "spatial_mapping" in e for e in data if isinstance(e, dict)
        ):
            mapping = data
        elif isinstance(data, dict) and (
            "arch" in data or "architecture" in data or set(data) >= _ZIGZAG
        ):
            found.append((shown(path), data))
        elif isinstance(data, dict) and _BESIDE & set(data):
            lost.append(f"{shown(path)}: mappings, workloads and settings beside it are not read")
        else:
            help = "ZigZag's accelerators and mappings, AccelForge's and Timeloop's architectures"
            raise refuse(CODE, "describes no hardware that is known", shown(path), help)
    if len(found) != 1:
        raise refuse(CODE, f"the files describe {len(found)} machines instead of one")
    where, data = found[0]
    hardware: Hardware
    if "memories" in data:
        hardware = zigzag_hardware(data, mapping, where)
    else:
        read_by = accelforge_hardware if "arch" in data else timeloop_hardware
        hardware = read_by(data, where)
        lost += ["a mapping of ZigZag's beside it"] if mapping else []
    hardware.lost[:0] = lost
    machine = machine_described(hardware, element)
    return Imported(machine, hardware.tool, tuple(dict.fromkeys(hardware.lost)))
