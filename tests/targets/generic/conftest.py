"""The instruction set that most tests use."""

import pytest

from tilewright.targets.cambricon_x.machine import MACHINE
from tilewright.targets.generic.isa import InstructionSet, derive


@pytest.fixture(scope="session")
def instructions() -> InstructionSet:
    return derive(MACHINE)
