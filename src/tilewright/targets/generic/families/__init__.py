"""Families of instructions, one file each: fields, meaning, and what is touched."""

from collections.abc import Mapping

from tilewright.targets.generic.families.convert import Convert
from tilewright.targets.generic.families.depthwise import Depthwise
from tilewright.targets.generic.families.gather import Gather
from tilewright.targets.generic.families.layer_norm import LayerNorm
from tilewright.targets.generic.families.normalise import Lrn, Softmax
from tilewright.targets.generic.families.ordering import Barrier, Signal, Wait
from tilewright.targets.generic.families.points import Points
from tilewright.targets.generic.families.pool import Pool
from tilewright.targets.generic.families.product import Product
from tilewright.targets.generic.families.sparse import Sparse
from tilewright.targets.generic.families.transfer import Transfer
from tilewright.targets.generic.family import Family, Part, Unit

FAMILIES: Mapping[str, Family] = {
    family.name: family
    for family in (
        *(Transfer(), Gather(), Convert(), Product(), Sparse(), Depthwise()),
        *(Pool(), Points(), Lrn(), Softmax(), LayerNorm()),
        *(Signal(), Wait(), Barrier()),
    )
}
"""Every family by name."""


def family_of(operation: str) -> Family | None:
    """The family that computes an anchor operation, or None."""
    return next((f for f in FAMILIES.values() if operation in f.operations), None)


__all__ = ["FAMILIES", "Family", "Part", "Unit", "family_of"]
