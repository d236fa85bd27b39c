"""Rules for programs: the sizes of their machine, and the instructions that macros hold."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.targets.cambricon.isa import BY_MNEMONIC


@dataclass(frozen=True)
class Sizes:
    """The sizes that a program may ask of its machine: scratchpads in bytes, and lanes."""

    vsm_bytes: int
    msm_bytes: int
    lanes: int


def computes(mnemonic: str) -> bool:
    """Return True if an instruction runs on the vector or the matrix unit."""
    return BY_MNEMONIC[mnemonic].unit in ("vector", "matrix")


def allowed_in(mnemonic: str, kind: str) -> str:
    """The reason why a mnemonic may not stand in a macro of this kind ("C" or "IO"); "" where it
    may.

    An IO-Macro holds transfers between main memory and the scratchpads, a C-Macro computes. Scalar
    statements and branches are in both: they count addresses and sizes.
    """
    moves = BY_MNEMONIC[mnemonic].unit.endswith("dma") or mnemonic in ("SLOAD", "SSTORE")
    if kind == "C" and moves:
        return "is a transfer, and a C-Macro only computes"
    if kind == "IO" and computes(mnemonic):
        return "computes, and an IO-Macro only transfers"
    return ""
