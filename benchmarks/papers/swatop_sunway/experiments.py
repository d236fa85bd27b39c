"""swatop-sunway: what swATOP's model picks on one core group of SW26010, and what it loses.

Times are those of the plans (the machine's cost model, whose tiles take what the pipeline model
says of the emitted instructions); spawning the CPEs is left out. A file of hand-written results
(inputs of swDNN: batch, Ni, No, Ro, GFLOPS a line) may be given among the networks.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from benchmarks.papers.swatop.shapes import ALIGNED, UNALIGNED, convolutions
from benchmarks.papers.swatop_sunway.chip import chip_table
from benchmarks.papers.swatop_sunway.kernels import convolution
from benchmarks.papers.swatop_sunway.kernels import product as matrix_product
from benchmarks.papers.swatop_sunway.listing import rows_of
from benchmarks.papers.swatop_sunway.methods import (
    LAYERS,
    explicit_table,
    fits,
    method_rows,
    methods_table,
)
from benchmarks.papers.swatop_sunway.products import VARIANTS, gemm_cycles
from benchmarks.report import RESULTS, Column, Table, percent, whole
from tilewright.machine import Machine
from tilewright.numerics.element_types import ElementType
from tilewright.planning import Planner
from tilewright.planning.domain import Kernel
from tilewright.planning.own import start_cycles
from tilewright.planning.planners.linear_fit import Form, fit_to
from tilewright.planning.planners.swatop import Swatop
from tilewright.targets.sunway.gemm.mesh import ROLES, role_loop
from tilewright.targets.sunway.machine import CPES, CURVES, MACHINE
from tilewright.targets.sunway.mesh import MESH
from tilewright.targets.sunway.pipeline import steady

TITLE = "swATOP's strategies on one core group of SW26010 (predicted)"

NETWORKS = ("primitives", "convolutions", "products", "chip", "methods", "explicit")
"""Parts of the page; or a file of hand-written results."""

OPTIONS = ("sample", "resume", "seconds")

KEPT = RESULTS / "swatop-sunway-listing-2.jsonl"
"""The cases of Listing 2 that were planned: ``--resume`` goes on from there."""

BATCHES = (1, 32, 128)

TOP = 16
"""Strategies of which the machine's cost model chooses."""

ELEMENTS: tuple[ElementType, ...] = ("float64", "float32")

GROUPS = 4
"""Core groups of a chip."""

PEAK_GFLOPS = 8 * CPES * 1.45
"""Of a core group's CPEs."""

PUBLISHED = {"step": 22.88, "block": 285.3, "column": 177.0, "call": 1974.0}
"""Cycles of the fit that swGEMM's tuner uses: per K step of a block of 128 x 32, per block, per 128
of N, per call."""


def tables(
    networks: Sequence[str],
    sample: int | None = None,
    resume: bool = False,
    seconds: float | None = None,
) -> list[Table]:
    """Tables of the primitives, of Listing 1, of Listing 2, and of files of results.

    ``sample`` takes so many shapes of each listing and batch at even distances. Without it Listing
    2 is kept case by case: ``resume`` leaves out what an earlier run has planned, and after
    ``seconds`` no further case of it is begun.
    """
    found: list[Table] = []
    for name in networks:
        if name == "primitives":
            found += [_primitives(), fits_table()]
        elif name == "convolutions":
            shapes = [shape.sizes for shape in convolutions()]
            rows = [
                _planned(f"{batch} {inputs}x{outputs}x{side}", batch, kernel)
                for batch in BATCHES
                for inputs, outputs, side in _sampled(shapes, sample)
                for kernel in [convolution(batch, inputs, outputs, side)]
            ]
            found += [_listed("Listing 1, 3x3, implicit", rows), _summary(rows)]
        elif name == "products":
            sizes = [s for values in (UNALIGNED, ALIGNED) for s in product(*[values] * 3)]
            if sample is not None:
                rows = [_product(own) for own in _sampled(sizes, sample)]
            else:
                rows = rows_of(sizes, _product, KEPT, resume, seconds)
            title = f"Listing 2, {len(rows)} of {len(sizes)}"
            found += [_listed(title, rows, COLUMNS[:-2]), _summary(rows)]
        elif name == "chip":
            found.append(chip_table())
        elif name == "methods":
            shapes = [shape.sizes for shape in convolutions()]
            found += methods_table(
                [
                    method_rows(f"{batch} {'x'.join(map(str, sizes))}", batch, *sizes)
                    for batch in BATCHES
                    for own in (_sampled(shapes, sample), LAYERS)
                    for sizes in own
                    if fits(batch, *sizes)
                ]
            )
        elif name == "explicit":
            found.append(explicit_table())
        elif Path(name).exists():
            found.append(_hand_written(Path(name)))
    return found


def _sampled(shapes: Sequence[Any], sample: int | None) -> list[Any]:
    """So many at even distances; all if ``sample`` is None."""
    if sample is None or sample >= len(shapes):
        return list(shapes)
    places = np.linspace(0, len(shapes) - 1, max(sample, 1)).round().astype(int)
    return [shapes[place] for place in places.tolist()]


def _cycles(kernel: Kernel, search: Swatop, machine: Machine = MACHINE) -> tuple[float, Any]:
    found = Planner(machine, search=search).plan(kernel)
    return found.predicted_cycles - start_cycles(machine), found


def _planned(name: str, group: int, kernel: Kernel) -> dict[str, Any]:
    """The picks for one kernel, and the best of the whole space."""
    peak = _peak(kernel)
    first, picked = _cycles(kernel, Swatop(mesh=MESH))
    several, _ = _cycles(kernel, Swatop(top=TOP, mesh=MESH))
    best, box = _cycles(kernel, Swatop(measure=True, mesh=MESH))
    alone, _ = _cycles(kernel, Swatop(top=TOP))
    slow = MACHINE.model_copy(
        update={
            "moves": tuple(
                move.model_copy(update={"curve": "swcandle", "efficiency": CURVES["swcandle"]})
                for move in MACHINE.moves
            )
        }
    )
    other, _ = _cycles(kernel, Swatop(top=TOP, mesh=MESH), slow)
    return {
        "name": name,
        "group": group,
        "strategies": box.candidates,
        "cycles": several,
        "efficiency": peak / several,
        "best": peak / best,
        "swcandle": peak / other,
        "alone": peak / alone,
        "loss": first / best - 1,
        "loss_top": several / best - 1,
        "seconds": picked.seconds,
        "box_seconds": box.seconds,
    }


def _product(sizes: tuple[int, int, int]) -> dict[str, Any]:
    """One case of Listing 2, without the seconds that it took."""
    aligned = int(sizes[0] in ALIGNED)
    row = _planned("x".join(map(str, sizes)), aligned, matrix_product(*sizes))
    return {key: value for key, value in row.items() if key not in ("seconds", "box_seconds")}


def _peak(kernel: Kernel) -> float:
    """Cycles of all multiply-adds at four lanes on every CPE."""
    count = 1.0
    for extent in kernel.anchor.extents.values():
        count *= extent
    return count / (4 * CPES)


COLUMNS = (
    Column("name", "shape"),
    Column("strategies", "strategies", whole),
    Column("efficiency", f"of peak, top {TOP}", percent),
    Column("best", "of peak, black box", percent),
    Column("swcandle", "of peak, other DMA curve", percent),
    Column("alone", "of peak, nothing shared", percent),
    Column("loss", "loss of the model's first", percent),
    Column("loss_top", f"loss of its top {TOP}", percent),
    Column("seconds", "model s", lambda value: f"{value:.2f}"),
    Column("box_seconds", "black box s", lambda value: f"{value:.2f}"),
)


def _listed(
    title: str, rows: Sequence[dict[str, Any]], columns: Sequence[Column] = COLUMNS
) -> Table:
    return Table(
        f"{title}: strategies, picks, losses",
        columns,
        rows,
        (
            "Peak: 742.4 GFLOPS of the CPEs. DMA curve swgemm unless said; floats are loaded and "
            "sent by separate instructions; a core group is spawned in 15,000 cycles (an "
            "estimate), which are left out here.",
            "The black box asks the machine's cost model for every strategy; the static model is "
            "the greater of Eq. 1 and Eq. 2.",
        ),
    )


def _summary(rows: Sequence[dict[str, Any]]) -> Table:
    """Means by group."""
    lines: list[dict[str, Any]] = []
    for group in dict.fromkeys(row["group"] for row in rows):
        own = [row for row in rows if row["group"] == group]
        line: dict[str, Any] = {"name": f"{group}, {len(own)} shapes"}
        for key in ("strategies", "efficiency", "best", "swcandle", "alone", "loss", "loss_top"):
            line[key] = mean(row[key] for row in own)
        line["least"] = min(row["efficiency"] for row in own)
        line["worst"] = max(row["loss"] for row in own)
        line["worst_top"] = max(row["loss_top"] for row in own)
        lines.append(line)
    columns = (
        *COLUMNS[:6],
        Column("least", "least of peak", percent),
        *COLUMNS[6:8],
        Column("worst", "worst loss", percent),
        Column("worst_top", f"worst of top {TOP}", percent),
    )
    remarks = (
        "By batch, or aligned (1) and unaligned (0) products. The paper: implicit convolution at "
        "70 % of 3.06 TFLOPS (72 % of the CPEs'), mean loss below 2 %, worst below 8 %, spaces of "
        "353 to 454 strategies a layer.",
    )
    return Table("Means", columns, lines, remarks)


def _primitives() -> Table:
    """Loops of the eight variants."""
    rows: list[dict[str, Any]] = []
    for variant in VARIANTS:
        size = (512, 512, 512)
        peak = 512**3 / CPES / 4
        loops = {own: role_loop(variant.vectors, ROLES[-1], fused=own) for own in (True, False)}
        rows.append(
            {
                "name": variant.name,
                "step": steady(loops[True].body),
                "apart": steady(loops[False].body),
                "efficiency": peak / gemm_cycles(variant, size),
                "apart_efficiency": peak / gemm_cycles(variant, size, fused=False),
            }
        )
    columns = (
        Column("name", "variant"),
        Column("step", "cycles a step, sender", str),
        Column("apart", "the same, loads and sends apart", str),
        Column("efficiency", "of peak, 512 x 512 x 512", percent),
        Column("apart_efficiency", "the same, apart", percent),
    )
    remarks = (
        "A step is 16 multiply-adds of vectors. The paper: 16 cycles; public kernels for doubles "
        f"16 to 17, the fit of swGEMM's tuner {PUBLISHED['step']} for floats.",
    )
    return Table("The eight products over the mesh, by the pipeline model", columns, rows, remarks)


def fits_table(count: int = 120) -> Table:
    """Eq. 2 in its forms over the pipeline model: fitted to ``count`` sizes, held to as many."""
    rows: list[dict[str, Any]] = []
    random = np.random.default_rng(1)
    sizes = {
        "co": random.integers(1, 9, 2 * count) * 128,
        "m": random.integers(1, 17, 2 * count) * 32,
        "ci": random.integers(1, 65, 2 * count) * 8,
    }
    forms: tuple[Form, ...] = ("printed", "mended", "turned")
    for variant in VARIANTS:
        along_m = variant.vectors == "m"
        cycles = np.array(
            [
                gemm_cycles(
                    variant, (int(v), int(o), int(k)) if along_m else (int(o), int(v), int(k))
                )
                for v, o, k in zip(sizes["co"], sizes["m"], sizes["ci"], strict=True)
            ]
        )
        for form in forms[: 2 if variant.contiguous else 3]:
            half = {dim: column[:count].astype(float) for dim, column in sizes.items()}
            held = {dim: column[count:].astype(float) for dim, column in sizes.items()}
            own = fit_to(cycles[:count], half, form)
            errors = np.abs(own.cycles(held) / cycles[count:] - 1)
            rows.append(
                {
                    "name": f"{variant.name}, {form}",
                    "step": own.coefficients[2] * 128 * 32 / 4 if form != "printed" else None,
                    "block": own.coefficients[1] * 128 * 32 / 4 if form != "printed" else None,
                    "column": own.coefficients[0] * 128 if form != "printed" else None,
                    "turning": own.coefficients[4] * 16 if form == "turned" else None,
                    "call": own.coefficients[3],
                    "mean": float(errors.mean()),
                    "worst": float(errors.max()),
                }
            )
    rows.append({"name": "swGEMM's tuner, measured", **PUBLISHED})
    columns = (
        Column("name", "variant, form"),
        Column("step", "K step of 128 x 32", lambda v: f"{v:.2f}"),
        Column("block", "block of 128 x 32", lambda v: f"{v:.0f}"),
        Column("column", "128 of N", lambda v: f"{v:.0f}"),
        Column("turning", "64 of M by a K", lambda v: f"{v:.2f}"),
        Column("call", "call", whole),
        Column("mean", "mean error", percent),
        Column("worst", "worst error", percent),
    )
    remarks = (f"Fitted to {count} sizes, held against {count} others; loads and sends fused.",)
    return Table("Eq. 2 over the pipeline model, in cycles", columns, rows, remarks)


def _hand_written(path: Path) -> Table:
    """Our plans beside hand-written results."""
    rows: list[dict[str, Any]] = []
    for line in path.read_text().splitlines():
        if not line.strip():
            continue
        *sizes, rate = line.split()
        batch, inputs, outputs, side = map(int, sizes)
        name = f"{batch} {inputs}x{outputs}x{side}"
        row: dict[str, Any] = {"name": name, "theirs": float(rate)}
        for element in ELEMENTS:
            kernel = convolution(batch // GROUPS, inputs, outputs, side, element=element)
            cycles, _ = _cycles(kernel, Swatop(top=TOP, mesh=MESH))
            row[element] = GROUPS * PEAK_GFLOPS * _peak(kernel) / cycles
        row["ratio"] = row["float64"] / row["theirs"]
        row["efficiency"] = row["float64"] / (GROUPS * PEAK_GFLOPS)
        rows.append(row)
    columns = (
        Column("name", "batch, Ni x No x Ro"),
        Column("theirs", "GFLOPS by hand, measured", whole),
        Column("float64", "here, predicted, doubles", whole),
        Column("efficiency", "of peak", percent),
        Column("ratio", "ratio", lambda value: f"{value:.2f}"),
        Column("float32", "floats", whole),
    )
    share = mean(row["ratio"] >= 1 for row in rows)
    remarks = (
        "Doubles, on four core groups that each compute a quarter of the batch. Ours are "
        "predictions of tiles that double their bytes in LDM and in DMA; no C is emitted for them.",
        f"At least as fast on {100 * share:.0f} % of {len(rows)}, "
        f"{mean(row['ratio'] for row in rows):.2f} times in the mean.",
    )
    return Table("Results by hand (swDNN)", columns, rows, remarks)
