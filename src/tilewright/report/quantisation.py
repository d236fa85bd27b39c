"""The error that each layer adds when a network's numbers change, worst first."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any, Unpack

from tilewright.compiler.pipeline import Model, Options, run_pipeline
from tilewright.compiler.quantise import check_numbers
from tilewright.machine import Machine
from tilewright.numerics.formats import Numbers
from tilewright.report.measures import Measures
from tilewright.report.variants import FixedVariants, QuantisedVariants, Variants
from tilewright.runtime.texts import printable, table
from tilewright.system.choices import SAMPLES
from tilewright.targets.base import Target


@dataclass(frozen=True)
class LayerError:
    """The error that one layer alone adds, all others being float32."""

    node: str
    operator: str
    layer: Measures
    """Errors of the layer's own result, rounded as its readers read it."""
    network: Measures
    """Errors of the network's outputs."""

    def to_json(self) -> dict[str, Any]:
        """Return the errors of the layer as a JSON object."""
        return {
            "node": self.node,
            "operator": self.operator,
            "layer": _numbers(self.layer),
            "network": _numbers(self.network),
        }


@dataclass(frozen=True)
class QuantisationReport:
    """The errors of all layers, worst at the network's outputs first, and of all together."""

    model: str
    target: str
    numbers: Numbers
    samples: int
    layers: tuple[LayerError, ...]
    together: Measures
    """Errors of the network's outputs with everything quantised but what is kept in float32."""

    def to_json(self) -> dict[str, Any]:
        """Return the errors as a JSON object."""
        return {
            "model": self.model,
            "target": self.target,
            "numbers": self.numbers.format.name,
            "observer": self.numbers.observer if self.numbers.needs_ranges else None,
            "keep_float": list(self.numbers.keep_float),
            "samples": self.samples,
            "layers": [row.to_json() for row in self.layers],
            "together": _numbers(self.together),
        }

    def __str__(self) -> str:
        heads = ["layer", "operator", "own SNR dB", "own error", "output SNR dB", "output error"]
        rows = [
            [printable(row.node), row.operator, *_cells(row.layer), *_cells(row.network)]
            for row in self.layers
        ]
        chosen = self.numbers
        how = f", observer {chosen.observer}" if chosen.needs_ranges else ""
        lines = [f"{self.model} in {chosen.format.name} on {self.target}{how}"]
        lines.append("each layer alone, all others in float32; worst at the outputs first")
        lines += table([heads, *rows], 2)
        kept = f" ({len(chosen.keep_float)} kept in float32)" if chosen.keep_float else ""
        signal, error = _cells(self.together)
        lines.append(
            f"all layers together{kept}: output SNR {signal} dB, error {error}; "
            f"{self.samples} samples"
        )
        return "\n".join(lines) + "\n"


def _numbers(measures: Measures) -> dict[str, float | None]:
    """For ``--json``; a ratio that is not finite (nothing differs, or all is lost) is null."""
    ratio = measures.snr if isfinite(measures.snr) else None
    relative = measures.relative if isfinite(measures.relative) else None
    return {"snr_db": ratio, "relative_rms_error": relative}


def _cells(measures: Measures) -> list[str]:
    if measures.exact:
        return ["exact", "0"]
    return [f"{measures.snr:.1f}", f"{measures.relative:.2g}"]


def quantisation_report(
    model: Model,
    target: Target,
    machine: Machine,
    numbers: Numbers,
    *,
    samples: int = SAMPLES,
    **options: Unpack[Options],
) -> QuantisationReport:
    """Quantise a network layer by layer and as a whole, and measure what that changes.

    Errors are relative root mean squares over the first ``samples`` of the calibration data
    (random ones where a format needs none and none are given), run by the graph interpreter,
    whose integers are the machine's own. Raises TilewrightError as a compilation does.
    """
    state = run_pipeline(model, target, machine, numbers=numbers, until="graph passes", **options)
    check_numbers(state)
    kind = FixedVariants if machine.fixed_bits else QuantisedVariants
    variants: Variants = kind(state, samples)
    operators = {node.name: node.operator for node in state.nodes}
    rows: list[LayerError] = []
    nodes = [node for node in variants.layers if node not in numbers.keep_float]
    for number, node in enumerate(nodes):
        state.progress("quantise each layer", number, len(nodes))
        layer, outputs = variants.alone(node)
        rows.append(LayerError(node, operators.get(node, ""), layer, outputs))
    state.progress("quantise all layers", 0, 0)
    together = variants.together()
    rows.sort(key=lambda row: (-row.network.relative, -row.layer.relative))
    count = len(variants.samples)
    return QuantisationReport(state.name, target.name, numbers, count, tuple(rows), together)
