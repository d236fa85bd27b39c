"""Cases of every primitive: odd sizes, remainders, pads, strides, groups."""

from __future__ import annotations

from tests.targets.cpu.primitive_cases.cases import Cases
from tests.targets.cpu.primitive_cases.convolutions import CONVOLUTIONS
from tests.targets.cpu.primitive_cases.methods import METHODS
from tests.targets.cpu.primitive_cases.movement import MOVEMENT
from tests.targets.cpu.primitive_cases.pointwise import POINTWISE
from tests.targets.cpu.primitive_cases.products import PRODUCTS
from tests.targets.cpu.primitive_cases.windows import WINDOWS

CASES: Cases = {
    **METHODS,
    **CONVOLUTIONS,
    **WINDOWS,
    **PRODUCTS,
    **POINTWISE,
    **MOVEMENT,
}
