"""The graph part of the pipeline in two halves, between which calibration stands."""

from __future__ import annotations

from tilewright.graph.passes import (
    address_pipeline,
    kernel_pipeline,
    layout_pipeline,
    simplify_pipeline,
)
from tilewright.ir.passes import PassEntry
from tilewright.machine import Machine


def prepare_pipeline(machine: Machine) -> list[PassEntry]:
    """The passes up to the kernels in float32: what calibration runs on."""
    return [*simplify_pipeline(machine), *kernel_pipeline(machine)]


def place_pipeline(machine: Machine) -> list[PassEntry]:
    """The passes from the kernels on: numbers, layouts, addresses."""
    return [*layout_pipeline(machine), *address_pipeline()]


def pipeline(machine: Machine) -> list[PassEntry]:
    """The graph part of the pipeline, each pass with the reason why it stands where it stands."""
    return [*prepare_pipeline(machine), *place_pipeline(machine)]
