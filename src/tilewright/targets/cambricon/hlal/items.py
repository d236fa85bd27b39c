"""Statements after preprocessing: instructions with known operands, and labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tilewright.targets.cambricon.hlal.syntax import Place
from tilewright.targets.cambricon.hlal.values import Address
from tilewright.targets.cambricon.isa import BY_MNEMONIC, Register


@dataclass(frozen=True)
class Sizes:
    """The sizes that a program may ask of its machine: scratchpads in bytes, and lanes."""

    vsm_bytes: int
    msm_bytes: int
    lanes: int


@dataclass(frozen=True)
class LabelUse:
    """The use of a label as a branch's target."""

    name: str
    at: Place


OperandValue: TypeAlias = "Register | int | Address | LabelUse"


@dataclass(frozen=True)
class Instruction:
    """An atomic statement; ``places`` leads from its own line to the program's."""

    mnemonic: str
    modifiers: tuple[tuple[str, int | None], ...]
    operands: tuple[OperandValue, ...]
    places: tuple[Place, ...]


@dataclass(frozen=True)
class LabelMark:
    """A label, by its name in the whole program."""

    name: str


Item: TypeAlias = "Instruction | LabelMark"


def computes(mnemonic: str) -> bool:
    """Return True if an instruction runs on the vector or the matrix unit."""
    return BY_MNEMONIC[mnemonic].unit in ("vector", "matrix")


def allowed_in(mnemonic: str, kind: str) -> str:
    """Why a mnemonic may not stand in a macro of this kind ("C" or "IO"); "" where it may.

    An IO-Macro holds transfers between main memory and the scratchpads, a C-Macro computes. Scalar
    statements and branches are in both: they count addresses and sizes.
    """
    moves = BY_MNEMONIC[mnemonic].unit.endswith("dma") or mnemonic in ("SLOAD", "SSTORE")
    if kind == "C" and moves:
        return "is a transfer, and a C-Macro only computes"
    if kind == "IO" and computes(mnemonic):
        return "computes, and an IO-Macro only transfers"
    return ""
