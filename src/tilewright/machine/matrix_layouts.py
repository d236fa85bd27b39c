"""Layouts of matrices, as a machine file names them, for tensors of any rank."""

from __future__ import annotations


def matrix_layout(layout: str, rank: int) -> str:
    """A layout of matrices MN as one of tensors of a rank, spelled as planning/layout.py does."""
    if rank < 2:
        return ""
    known = {2: "MN", 3: "CHW", 4: "NCHW", 5: "NCDHW"}.get(rank)
    letters = known or "".join(chr(ord("A") + axis) for axis in range(rank))
    rows, columns = letters[-2:]
    named = {"M": rows, "m": rows.lower(), "N": columns, "n": columns.lower()}
    return letters[:-2] + "".join(named.get(letter, letter) for letter in layout)
