"""Totals over the kernels of a package and a run, for people and for machines."""

from __future__ import annotations

from typing import Any

from tilewright.runtime.manifest import KernelEntry, Manifest
from tilewright.runtime.reasons import why_low
from tilewright.targets.base import Profile


def efficiency(bound: float | None, taken: float | None) -> float | None:
    """Bound over time taken, or None if either is not known."""
    return bound / taken if bound is not None and taken else None


def _total(kernels: tuple[KernelEntry, ...], field: str) -> float | None:
    values = [getattr(kernel, field) for kernel in kernels if kernel.engine == "accelerator"]
    known = [float(value) for value in values if value is not None]
    return sum(known) if known else None


def totals(manifest: Manifest) -> dict[str, Any]:
    """Predicted cycles and bounds of the whole network."""
    return {
        "predicted_cycles": _total(manifest.kernels, "predicted_cycles"),
        "bound_cycles": _total(manifest.kernels, "physical_bound"),
        "granule_bound_cycles": _total(manifest.kernels, "granule_bound"),
        "moved_bytes": _total(manifest.kernels, "moved_bytes"),
    }


def summary(manifest: Manifest, profile: Profile | None) -> dict[str, Any]:
    """The ``profile`` object of ``tilewright run --json``."""
    whole = totals(manifest)
    measured = {} if profile is None else {k.symbol: k for k in profile.kernels}
    clock = float(manifest.machine["clock_hz"])
    if profile is not None and profile.clock_hz:
        clock = profile.clock_hz
    kernels: list[dict[str, Any]] = []
    for entry in manifest.kernels:
        row: dict[str, Any] = {
            "name": entry.name,
            "nodes": list(entry.nodes),
            "engine": entry.engine,
            "predicted_cycles": entry.predicted_cycles,
            "bound_cycles": entry.physical_bound,
            "granule_bound_cycles": entry.granule_bound,
            "schedule": entry.schedule,
        }
        if entry.reason:
            row["reason"] = entry.reason
        if (run := measured.get(entry.name)) is not None:
            row["cycles"] = run.cycles
            row["dram_bytes"] = run.dram_bytes
            if run.seconds is not None:
                row["seconds"] = run.seconds
            taken = (run.seconds or 0.0) * clock if run.cycles is None else run.cycles
            row["efficiency"] = efficiency(entry.granule_bound, taken)
            reason = why_low(
                manifest.machine,
                taken=taken,
                physical=entry.physical_bound,
                granule=entry.granule_bound,
                moved_bytes=run.dram_bytes,
                simulated=run.cycles is not None,
                schedule=entry.schedule,
            )
            if reason:
                row["why_low"] = reason
        kernels.append(row)
    result: dict[str, Any] = {
        "bound_cycles": whole["bound_cycles"],
        "granule_bound_cycles": whole["granule_bound_cycles"],
        "predicted_cycles": whole["predicted_cycles"],
        "peak_memory_bytes": manifest.peak_memory_bytes,
        "lower_bound_memory_bytes": manifest.lower_bound_memory_bytes,
        "kernels": kernels,
    }
    if profile is None:
        return result
    taken: float
    if profile.cycles is not None:
        taken = profile.cycles
        result["cycles"] = profile.cycles
    else:
        result["seconds"] = profile.seconds
        taken = (profile.seconds or 0.0) * clock
    result["clock_hz"] = clock
    result["efficiency"] = efficiency(whole["granule_bound_cycles"], taken)
    result["physical_efficiency"] = efficiency(whole["bound_cycles"], taken)
    result["dram_bytes"] = profile.dram_bytes
    result["engines"] = dict(profile.engines)
    return result


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def _machine(manifest: Manifest) -> str:
    """The target, and the machine where that has another name."""
    name = str(manifest.machine["name"])
    return manifest.target if name == manifest.target else f"{name} (target {manifest.target})"


def table(manifest: Manifest, profile: Profile | None) -> str:
    """A plain-text report: a header with totals, then a line per kernel."""
    found = summary(manifest, profile)
    taken = found.get("cycles")
    lines = [
        f"{manifest.model} on {_machine(manifest)}",
        f"  memory      {_number(manifest.peak_memory_bytes)} bytes"
        f" (at least {_number(manifest.lower_bound_memory_bytes)})",
        f"  predicted   {_number(found['predicted_cycles'])} cycles",
        f"  bounds      {_number(found['bound_cycles'])} cycles physical,"
        f" {_number(found['granule_bound_cycles'])} with the machine's rounding",
    ]
    if taken is not None:
        lines.append(
            f"  simulated   {_number(taken)} cycles"
            f" = {1e3 * taken / found['clock_hz']:.3f} ms at {found['clock_hz'] / 1e6:.0f} MHz,"
            f" efficiency {_percent(found['efficiency'])}"
        )
    elif found.get("seconds") is not None:
        lines.append(
            f"  measured    {1e3 * found['seconds']:.3f} ms,"
            f" efficiency {_percent(found['efficiency'])}"
        )
    if busy := found.get("engines"):
        lines.append("  busy        " + ", ".join(f"{n} {_percent(f)}" for n, f in busy.items()))
    for note in manifest.notes:
        lines.append(f"  note        {note}")
    lines.append(
        f"  {'kernel':<28} {'measured':>13} {'predicted':>13} {'bound':>13} {'eff.':>8}  schedule"
    )
    for row in found["kernels"]:
        if row["engine"] == "host":
            lines.append(f"  {row['name']:<28} on the host: {row.get('reason', '')}")
            continue
        measured = row.get("cycles")
        if measured is None and row.get("seconds") is not None:
            measured = row["seconds"] * float(manifest.machine["clock_hz"])
        why = f"  [{row['why_low']}]" if "why_low" in row else ""
        lines.append(
            f"  {row['name']:<28} {_number(measured):>13} {_number(row['predicted_cycles']):>13}"
            f" {_number(row['granule_bound_cycles']):>13} {_percent(row.get('efficiency')):>8}"
            f"  {row['schedule']}{why}"
        )
    return "\n".join(lines) + "\n"


def free_dims(manifest: Manifest) -> str:
    """A plain-text report of a package with free dims, before any has a size."""
    assert manifest.open_model is not None
    lines = [f"{manifest.model} on {_machine(manifest)}, compiled for each shape on its first use"]
    for dim in manifest.open_model.dims:
        places = [
            f"{tensor.name}[{axis}]"
            for tensor in manifest.inputs
            for axis, name in enumerate(tensor.shape)
            if name == dim.name
        ]
        lines.append(f"  free        {dim.name}: {dim.bounds}, in {', '.join(places)}")
    for kind, tensors in (("input", manifest.inputs), ("output", manifest.outputs)):
        for tensor in tensors:
            shape = ", ".join(map(str, tensor.shape))
            lines.append(f"  {kind:<11} {tensor.name}: {tensor.dtype or '?'}[{shape}]")
    lines += [f"  note        {note}" for note in manifest.notes]
    return "\n".join(lines) + "\n"
