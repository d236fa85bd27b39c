"""The operations that are imported, and the rule of each; one file a family."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.frontends.stablehlo.lowering import Rule
from tilewright.frontends.stablehlo.operators.convolution import CONVOLUTIONS
from tilewright.frontends.stablehlo.operators.elementwise import ELEMENTWISE
from tilewright.frontends.stablehlo.operators.indexing import INDEXING
from tilewright.frontends.stablehlo.operators.movement import MOVEMENT
from tilewright.frontends.stablehlo.operators.normalisation import NORMALISATION
from tilewright.frontends.stablehlo.operators.product import PRODUCTS
from tilewright.frontends.stablehlo.operators.reductions import REDUCTIONS
from tilewright.frontends.stablehlo.operators.windows import WINDOWS

RULES: Mapping[str, Rule] = {
    **CONVOLUTIONS,
    **ELEMENTWISE,
    **INDEXING,
    **MOVEMENT,
    **NORMALISATION,
    **PRODUCTS,
    **REDUCTIONS,
    **WINDOWS,
}
"""By operation. Calls, loops, branches, tuples and sorts are taken in control.py."""
