"""Runs one kernel through the tile road and the C compiler, and through the graph's meaning."""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.graph.dialect import GraphOperation
from tilewright.ir import Block, SSAValue
from tilewright.machine import Machine
from tilewright.planning.domain import Kernel, Operand, Stage
from tilewright.planning.layout import Layout
from tilewright.planning.schedule import Schedule
from tilewright.targets.cpu.compiler import FLAGS, NATIVE, build_library
from tilewright.targets.cpu.package import SUPPORT
from tilewright.targets.cpu.walk import KERNEL, kernel_source
from tilewright.tile.build import build
from tilewright.tile.passes.boundary import Boundary
from tilewright.passes import CompilerContext
from tilewright.types import tensor

Array = NDArray[Any]


class Chain:
    """A kernel as graph operations on values that tests make up."""

    def __init__(self) -> None:
        self.block = Block()
        self.names: dict[SSAValue, str] = {}
        self.arrays: dict[SSAValue, Array] = {}
        self.stages: list[Stage] = []
        self.result: SSAValue | None = None

    def value(self, name: str, array: Array, layout: str = "") -> SSAValue:
        """A tensor with data."""
        value = self.block.insert_arg(tensor(array.shape, layout=layout), len(self.block.args))
        self.names[value] = name
        self.arrays[value] = array
        return value
