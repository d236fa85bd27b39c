"""Axes that a reshape joins or splits, of which some end at sizes of a run.

A batch of ``b`` texts of ``n`` words, ``[b, n, 16]``, becomes ``[b n, 16]`` before a product and
``[b, n, 2, 8]`` after it. Rows of a joined axis that lie after an end are any numbers, as those of
``b`` and ``n`` are: an operation on one row at a time leaves them where they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Factor = tuple[int, str]
"""A part of an axis: its extent, and the size at which it ends, or ""."""

Ending = str | tuple[Factor, ...]
"""The size at which an axis ends, or the parts of one that joins several, the outermost first."""

Ends = dict[int, Ending]
"""The axes of a value that end early."""


def sizes_in(ending: Ending) -> set[str]:
    """The names of the sizes at which an axis, or a part of it, ends."""
    return {ending} if isinstance(ending, str) else {name for _, name in ending if name}


def reshaped_ends(
    source: Sequence[int], target: Sequence[int], ends: Mapping[int, Ending]
) -> Ends | None:
    """The ends of a reshaped value; None where an axis that ends would be cut in two."""
    parts: list[Factor] = []
    for axis, extent in enumerate(source):
        ending = ends.get(axis, "")
        parts += [(extent, ending)] if isinstance(ending, str) else ending
    found: Ends = {}
    for axis, extent in enumerate(target):
        taken, need = list[Factor](), extent
        while need > 1:
            part, name = parts.pop(0)
            cut = min(part, need)
            if part % cut or need % cut or (name and cut < part):
                return None
            parts[:0] = [(part // cut, "")] if cut < part else []
            taken += [(cut, name)] if cut > 1 else []
            need //= cut
        if any(name for _, name in taken):
            found[axis] = taken[0][1] if len(taken) == 1 else tuple(taken)
    return found
