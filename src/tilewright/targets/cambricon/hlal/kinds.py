"""The kinds of atomic statements, and which may stand in a C-Macro and in an IO-Macro.

An IO-Macro holds transfers between main memory and the scratchpads, a C-Macro computes. Scalar
statements and branches are in both: they count addresses and sizes.
"""

from __future__ import annotations

from tilewright.targets.cambricon.isa import BY_MNEMONIC


def is_transfer(mnemonic: str) -> bool:
    """Return True if an instruction moves data between main memory and the processor."""
    return BY_MNEMONIC[mnemonic].unit.endswith("dma") or mnemonic in ("SLOAD", "SSTORE")


def computes(mnemonic: str) -> bool:
    """Return True if an instruction runs on the vector or the matrix unit."""
    return BY_MNEMONIC[mnemonic].unit in ("vector", "matrix")


def allowed_in(mnemonic: str, kind: str) -> str:
    """Why a mnemonic may not stand in a macro of this kind ("C" or "IO"); "" where it may."""
    if kind == "C" and is_transfer(mnemonic):
        return "is a transfer, and a C-Macro only computes"
    if kind == "IO" and computes(mnemonic):
        return "computes, and an IO-Macro only transfers"
    return ""
