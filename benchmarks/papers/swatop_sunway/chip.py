"""Layers divided among the four core groups of SW26010, beside one core group."""

from __future__ import annotations

from typing import Any

from benchmarks.papers.swatop_sunway.kernels import convolution
from benchmarks.report import Column, Table, whole
from tilewright.machine import Machine
from tilewright.planning.planners.swatop import Swatop
from tilewright.targets.sunway.chip import CHIP, JOIN_CYCLES, ChipPlanner, group_machine

LAYERS = (("conv1_2", 64, 64, 224), ("conv3_2", 256, 256, 56), ("conv5_1", 512, 512, 14))
"""Of VGG: input and output channels, and the side of the result."""

BATCHES = (1, 32)


def with_curve(curve: str) -> Machine:
    """The chip with another rate of memory."""
    moves = tuple(
        move.model_copy(update={"curve": curve, "efficiency": move.curves[curve]})
        for move in CHIP.moves
    )
    return CHIP.model_copy(update={"moves": moves})


def chip_table() -> Table:
    """What the planner divides, and what it gains with memory of either rate."""
    rows: list[dict[str, Any]] = []
    for batch in BATCHES:
        for name, inputs, outputs, side in LAYERS:
            kernel = convolution(batch, inputs, outputs, side)
            alone = Swatop(top=16)(kernel, group_machine(CHIP))
            row: dict[str, Any] = {"name": f"{name}, batch {batch}"}
            row["alone"] = alone.predicted_cycles
            for curve in ("swgemm", "swgemm_half"):
                machine = with_curve(curve)
                divided = ChipPlanner(machine, lambda _, plan=alone: plan)(kernel, machine)
                row[curve] = alone.predicted_cycles / divided.predicted_cycles
                row[f"{curve}_by"] = dict(divided.schedule.options)["core_groups"]
            rows.append(row)
    columns = (
        Column("name", "layer"),
        Column("alone", "cycles, one core group", whole),
        Column("swgemm", "times faster", lambda value: f"{value:.2f}"),
        Column("swgemm_by", "core groups", str),
        Column("swgemm_half", "remote memory at half the rate", lambda value: f"{value:.2f}"),
        Column("swgemm_half_by", "core groups then", str),
    )
    remarks = (
        "Shared address space, remote bandwidth = local; at half the rate three quarters of the "
        f"bytes are another core group's. With the spawn (15,000 cycles) and {JOIN_CYCLES:,} to "
        "meet, both estimates. Planner swatop{top=16 share=none} for one core group.",
    )
    return Table("VGG layers on the chip (predicted)", columns, rows, remarks)
