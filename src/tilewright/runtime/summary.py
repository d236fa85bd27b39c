"""Totals over the kernels of a package and a run, for people and for machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tilewright.runtime.glance import target_name
from tilewright.runtime.machine_facts import check_facts
from tilewright.runtime.manifest import KernelEntry, Manifest, plan_name
from tilewright.runtime.reasons import why_low

if TYPE_CHECKING:
    from tilewright.codegen.program.interface import Profile


def efficiency(bound: float | None, taken: float | None) -> float | None:
    """Bound over time taken, or None if either is not known."""
    return bound / taken if bound is not None and taken else None


def _total(kernels: Sequence[Mapping[str, Any]], field: str) -> float | None:
    """The sum of a figure of all kernels of the accelerator; None if none has it."""
    known = [float(row[field]) for row in kernels if row[field] is not None]
    return sum(known) if known else None


def summary(manifest: Manifest, profile: Profile | None, runs: int = 0) -> dict[str, Any]:
    """The ``profile`` object of ``tilewright run --json``.

    Of every kernel ``time`` (seconds: measured, simulated, or predicted if nothing has run),
    ``share`` of all kernels' times, ``bound_time`` (granule bound, seconds) and ``of_bound``.
    ``runs`` are the runs after the first of which ``profile`` is the median; 0 for a first run.
    Part of a simulated kernel may run beside the kernels around it; its bounds are those of the
    cycles that it adds to theirs, no more than these are.
    """
    check_facts(manifest.machine)
    if profile is not None and profile.cycles is None and profile.seconds is None:
        profile = None  # a run of which no times are known
    measured = {} if profile is None else {k.symbol: k for k in profile.kernels}
    clock = float(manifest.machine["clock_hz"])
    if profile is not None and profile.clock_hz:
        clock = profile.clock_hz
    kernels: list[dict[str, Any]] = []
    for entry in manifest.kernels:
        run = measured.get(entry.name)
        entry = _in_a_row(entry, None if run is None else run.cycles)
        row: dict[str, Any] = {
            "name": entry.name,
            "nodes": list(entry.nodes),
            "engine": entry.engine,
            "predicted_cycles": entry.predicted_cycles,
            "bound_cycles": entry.physical_bound,
            "granule_bound_cycles": entry.granule_bound,
            "schedule": entry.schedule,
        }
        if entry.host_seconds is not None:
            row["seconds"] = entry.host_seconds
        if entry.energy_pj:
            row["energy_pj"] = dict(entry.energy_pj)
        if entry.rounds > 1:
            row["rounds"] = entry.rounds
        if entry.reason:
            row["reason"] = entry.reason
        if entry.slow_move:
            row["slow_move"] = entry.slow_move
        if entry.unbalanced:
            row["unbalanced"] = entry.unbalanced
        if run is not None:
            row["cycles"] = run.cycles
            row["dram_bytes"] = run.dram_bytes
            if run.seconds is not None:
                row["seconds"] = run.seconds
            taken = (run.seconds or 0.0) * clock if run.cycles is None else run.cycles
            row["efficiency"] = efficiency(entry.granule_bound, taken)
            reason = why_low(
                manifest.machine,
                entry,
                taken=taken,
                moved_bytes=run.dram_bytes,
                simulated=run.cycles is not None,
            )
            if reason:
                row["why_low"] = reason
        kernels.append(row)
    _add_times(kernels, clock, profile)
    figures = "predicted_cycles", "bound_cycles", "granule_bound_cycles"
    whole = {name: _total(kernels, name) for name in figures}
    result: dict[str, Any] = {
        "measured": profile is not None,
        "clock_hz": clock,
        **whole,
        "on_chip_bound_cycles": manifest.on_chip_bound,
        "search_cut_kernels": sum(
            not entry.complete for entry in manifest.kernels if entry.engine == "accelerator"
        ),
        "peak_memory_bytes": manifest.peak_memory_bytes,
        "lower_bound_memory_bytes": manifest.lower_bound_memory_bytes,
        "kernels": kernels,
    }
    host = manifest.machine.get("host")
    if host is not None:
        result["host"] = {"name": host["name"], "clock_hz": host["clock_hz"]}
        result["host_seconds"] = manifest.host_seconds
    if any(entry.energy_pj for entry in manifest.kernels):
        from tilewright.machine.energy import area_of, network_energy
        from tilewright.machine.forms import machine_of

        machine = machine_of(manifest.machine)
        cycles = whole["predicted_cycles"] if profile is None else profile.cycles
        energies = [entry.energy_pj for entry in manifest.kernels]
        result["energy_pj"] = network_energy(energies, machine, cycles)
        result["area_mm2"] = area_of(machine)
    if profile is None:
        return result
    result["runs"] = runs
    taken: float
    if profile.cycles is not None:
        taken = profile.cycles
        result["cycles"] = profile.cycles
        accelerator, host = profile.cycles / clock, profile.host_seconds
        result["accelerator_seconds"], result["host_seconds"] = accelerator, host
        result["elapsed_seconds"] = profile.elapsed_seconds
        both = accelerator + (host or 0.0)
        result["host_share"] = host / both if host is not None and both else None
    else:
        result["seconds"] = profile.seconds
        taken = (profile.seconds or 0.0) * clock
    result["efficiency"] = efficiency(whole["granule_bound_cycles"], taken)
    result["physical_efficiency"] = efficiency(whole["bound_cycles"], taken)
    result["dram_bytes"] = profile.dram_bytes
    result["engines"] = dict(profile.engines)
    return result


def _in_a_row(entry: KernelEntry, cycles: float | None) -> KernelEntry:
    """A kernel's entry with the bounds of the cycles that it adds to the kernels before it."""
    if cycles is None or entry.physical_bound is None or entry.granule_bound is None:
        return entry
    bounds = {
        name: min(getattr(entry, name), cycles) for name in ("physical_bound", "granule_bound")
    }
    return replace(entry, **bounds)


def _add_times(kernels: list[dict[str, Any]], clock: float, profile: Profile | None) -> None:
    """``time``, ``share``, ``bound_time`` and ``of_bound`` of every kernel, see ``summary``."""
    for row in kernels:
        cycles = row["predicted_cycles"] if profile is None else row.get("cycles")
        row["time"] = row.get("seconds") if cycles is None else cycles / clock
        bound = row["granule_bound_cycles"]
        row["bound_time"] = None if bound is None else bound / clock
        row["of_bound"] = efficiency(row["bound_time"], row["time"])
    whole = sum(row["time"] or 0.0 for row in kernels)
    for row in kernels:
        row["share"] = row["time"] / whole if whole and row["time"] is not None else None


def free_dims(manifest: Manifest) -> str:
    """A plain-text report of a package with free dims, before any has a size."""
    assert manifest.open_model is not None
    plans = manifest.open_model.plans
    how = "compiled for every size" if plans else "compiled for each shape on its first use"
    lines = [f"{manifest.model} on {target_name(manifest)}, {how}"]
    for dim in manifest.open_model.dims:
        places = [
            f"{tensor.name}[{axis}]"
            for tensor in manifest.inputs
            for axis, name in enumerate(tensor.shape)
            if name == dim.name
        ]
        lines.append(f"  free        {dim.name}: {dim.bounds}, in {', '.join(places)}")
    if plans:
        lines.append(f"  plans       up to {', '.join(map(plan_name, plans))}")
    for kind, tensors in (("input", manifest.inputs), ("output", manifest.outputs)):
        for tensor in tensors:
            shape = ", ".join(map(str, tensor.shape))
            lines.append(f"  {kind:<11} {tensor.name}: {tensor.dtype or '?'}[{shape}]")
    lines += [f"  note        {note}" for note in manifest.notes]
    return "\n".join(lines) + "\n"
