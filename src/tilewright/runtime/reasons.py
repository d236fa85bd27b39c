"""Reasons for which a kernel stays far below its physical bound, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.runtime.manifest import KernelEntry

LOW = 0.9
"""Part of the physical bound below which a kernel's row says why."""

BLOCKS = 0.5
"""Part of the time beyond the granule bound from which on latencies of blocks, or the issue of
instructions, are the reason."""


def why_low(
    machine: Mapping[str, Any],
    entry: KernelEntry,
    *,
    taken: float | None,
    moved_bytes: int | None,
    simulated: bool,
) -> str:
    """The reason for a kernel that took ``taken`` cycles; "" for one that is near its bound.

    ``machine`` is its description as JSON.
    """
    physical, granule = entry.physical_bound, entry.granule_bound
    if not taken or not physical or not granule or physical / taken >= LOW:
        return ""
    reasons: list[str] = []
    if physical < 0.95 * granule:
        reasons.append(
            f"the machine's rounding of sizes costs {100 * (granule / physical - 1):.0f} %"
        )
    if granule < 0.95 * taken:
        reasons.append(_beyond_rounding(machine, entry, taken, moved_bytes, simulated))
    used = entry.schedule.partition(" ")[0]
    primitive = next((p for p in machine.get("primitives", ()) if p["name"] == used), {})
    pieces = any(name.startswith("piece_") for name in primitive.get("operations", ()))
    if primitive.get("approximate") or pieces:
        # What makes products fewer, or faster, goes before, between and after them.
        what = "splitting numbers" if pieces else "transforms"
        reasons.append(f"{what}, which the bound of the products leaves out")
    return "; ".join(reasons) or "a little of rounding, a little of start and end"


def _beyond_rounding(
    machine: Mapping[str, Any],
    entry: KernelEntry,
    taken: float,
    moved_bytes: int | None,
    simulated: bool,
) -> str:
    """Return the reason why a kernel stays below the granule bound."""
    if not simulated:
        return "memory, loops' starts and ends, or other programs"
    lost = taken - (entry.granule_bound or 0.0)
    moves: list[Mapping[str, Any]] = machine["moves"]
    latency = max((int(move["latency"]) for move in moves), default=0)
    # A kernel loads, computes and stores at least once, and each of these can begin late.
    if lost <= 6 * latency:
        return f"too short: its first load and last store, {lost:,.0f} cycles, overlap with nothing"
    if entry.block_cycles >= BLOCKS * lost:
        return f"small blocks: {entry.blocks}"
    if entry.issue_cycles - (entry.granule_bound or 0.0) >= BLOCKS * lost:
        return f"short instructions, which take {entry.issue_cycles:,} cycles to issue"
    rate = max((float(move["bytes_per_cycle"]) for move in moves), default=0.0)
    moving = (moved_bytes or 0) / rate / taken if rate else 0.0
    serial = [move["name"] for move in moves if move["in_flight"] == 1 and move["latency"]]
    if moving >= 0.4 and serial:
        return (
            f"bound by main memory, which moves bytes in {100 * moving:.0f} % of the time: each "
            f"transfer waits for the {latency} cycles of latency of its own"
        )
    if moving >= 0.4:
        return f"main memory moves bytes in {100 * moving:.0f} % of the time; the rest is edges"
    return f"small tiles: {lost:,.0f} cycles of latency, starts and edges are not hidden"
