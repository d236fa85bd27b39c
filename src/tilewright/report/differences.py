"""A run beside a reference, layer by layer: where they first differ, and where most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, prod
from typing import Any

import numpy as np

from tilewright.frontends import ModelNode
from tilewright.graph.dialect import KernelOp, NetworkOp
from tilewright.graph.operation import Operation
from tilewright.graph.values import value_names
from tilewright.ir import SSAValue
from tilewright.ir.types import Array, shape_of
from tilewright.report.measures import Measures, measure, plain
from tilewright.report.noise import Noise
from tilewright.runtime.model_check import ModelCheck, plain_json
from tilewright.runtime.texts import printable, table


@dataclass(frozen=True)
class Layer:
    """A value between kernels, and what the run gave for it."""

    name: str
    """The value's name in the final graph."""
    node: str
    """The model's node whose result it is, or "" for what passes added."""
    kernel: str
    """Symbol of the kernel that computes it; "" for a view."""
    engine: str
    value: SSAValue
    array: Array


@dataclass(frozen=True)
class Difference:
    """One layer beside its reference."""

    layer: Layer
    measures: Measures
    beyond: bool
    """True if the difference lies beyond the tolerance."""
    noise: Noise | None = None

    def to_json(self) -> dict[str, Any]:
        """For ``--json``; what is not finite is null."""
        row: dict[str, Any] = {
            "name": self.layer.name,
            "node": self.layer.node,
            "kernel": self.layer.kernel,
            "engine": self.layer.engine,
            "shape": list(shape_of(self.layer.value)),
            "beyond_tolerance": self.beyond,
            **_plain(self.measures),
        }
        if self.noise is not None:
            row["float32"] = _plain(self.noise.total)
            row["own"] = _plain(self.noise.added)
        return row


def _plain(measures: Measures) -> dict[str, Any]:
    values = {
        "max_abs_error": measures.max_abs,
        "max_rel_error": measures.max_rel,
        "snr_db": measures.snr,
    }
    return {
        "exact": measures.exact,
        **{key: value if isfinite(value) else None for key, value in values.items()},
    }


@dataclass(frozen=True)
class Comparison:
    """All layers that have a reference, in the order in which they ran."""

    target: str
    reference: str
    tolerance: float
    """The tolerance relative to a layer's largest magnitude; 0 asks for equality."""
    rows: tuple[Difference, ...]
    unmatched: tuple[str, ...]
    """Kernels whose result the reference does not have."""
    model: ModelCheck | None = None
    """The outputs' distance from the model as it was written, where the reference is not."""

    @property
    def passed(self) -> bool:
        """True if no layer is beyond the tolerance, nor an output beyond its bound."""
        return self.first is None and (self.model is None or self.model.passed)

    @property
    def first(self) -> Difference | None:
        """The first layer beyond the tolerance."""
        return next((row for row in self.rows if row.beyond), None)

    @property
    def worst(self) -> Difference | None:
        """The layer with the largest relative error, if any has one."""
        inexact = [row for row in self.rows if not row.measures.exact]
        return max(inexact, key=lambda row: row.measures.max_rel, default=None)

    @property
    def noisiest(self) -> Difference | None:
        """The kernel that itself adds most error, for its signal."""
        noisy = [row for row in self.rows if row.noise is not None and not row.noise.added.exact]
        return min(noisy, key=lambda row: row.noise.added.snr if row.noise else 0.0, default=None)

    def to_json(self) -> dict[str, Any]:
        """Return the differences as a JSON object."""
        return {
            "target": self.target,
            "reference": self.reference,
            "tolerance": self.tolerance,
            "values": [row.to_json() for row in self.rows],
            "first": _name(self.first),
            "worst": _name(self.worst),
            "adds_most_error": _name(self.noisiest),
            "unmatched": list(self.unmatched),
            "model": None if self.model is None else plain_json(self.model),
            "passed": self.passed,
        }

    def __str__(self) -> str:
        with_noise = any(row.noise for row in self.rows)
        heads = ["layer", "runs on", "max abs", "max rel", "SNR dB"]
        heads += ["float32 dB", "own dB"] if with_noise else []
        rows = table([heads, *(_cells(row, with_noise) for row in self.rows)], 2)
        marks = ["", *("  <" if row.beyond else "" for row in self.rows)]
        lines = [f"{self.target} beside {self.reference}, tolerance {self.tolerance:g}"]
        lines += [f"{text}{mark}" for text, mark in zip(rows, marks, strict=True)]
        first, worst, noisiest = self.first, self.worst, self.noisiest
        if first is None:
            lines.append("no layer differs beyond the tolerance")
        else:
            lines.append(f"first beyond the tolerance: {_told(first)}")
        if worst is not None:
            lines.append(f"worst: {_told(worst)}")
        if noisiest is not None and noisiest.noise is not None:
            lines.append(
                f"adds most error: {_label(noisiest.layer)}, its own signal-to-noise ratio is "
                f"{noisiest.noise.added.snr:.1f} dB"
            )
        if self.unmatched:
            lines.append(f"without a counterpart: {', '.join(self.unmatched)}")
        if self.model is not None:
            lines.append(str(self.model))
        return "\n".join(lines) + "\n"


def _name(row: Difference | None) -> str | None:
    return None if row is None else row.layer.name


def _label(layer: Layer) -> str:
    return printable(layer.node or layer.name)


def _told(row: Difference) -> str:
    place = f"kernel {row.layer.kernel} on the {row.layer.engine}" if row.layer.kernel else "a view"
    return (
        f"{_label(row.layer)} ({place}): max abs {row.measures.max_abs:.3g}, "
        f"max rel {row.measures.max_rel:.3g}, {_decibels(row.measures)} dB"
    )


def _decibels(measures: Measures) -> str:
    return "exact" if measures.exact else f"{measures.snr:.1f}"


def _cells(row: Difference, with_noise: bool) -> list[str]:
    measures = row.measures
    cells = [
        _label(row.layer),
        row.layer.engine,
        f"{measures.max_abs:.3g}",
        f"{measures.max_rel:.3g}",
        _decibels(measures),
    ]
    if with_noise:
        noise = row.noise
        cells += ["", ""] if noise is None else [_decibels(noise.total), _decibels(noise.added)]
    return cells


def layers_of(network: NetworkOp, seen: Mapping[str, Array]) -> list[Layer]:
    """The values outside kernels that a run has shown, with the nodes they belong to."""
    names = value_names(network)
    layers: list[Layer] = []
    for op in network.block.ops:
        if not isinstance(op, KernelOp | Operation) or names[op.result] not in seen:
            continue
        name = names[op.result]
        if isinstance(op, Operation):
            layers.append(Layer(name, op.result_node, "", "address", op.result, seen[name]))
            continue
        inner = op.computed.owner
        node = inner.result_node if isinstance(inner, Operation) else ""
        engine = "host" if op.on_host else "accelerator"
        layers.append(Layer(name, node, op.symbol.data, engine, op.result, seen[name]))
    return layers


def layer_of_node(layers: Sequence[Layer], node: str, elements: int) -> Layer | None:
    """The layer that holds a node's result: the last kernel's of that size, or the last view."""
    of_node = [
        layer for layer in layers if layer.node == node and prod(shape_of(layer.value)) == elements
    ]
    computed = [layer for layer in of_node if layer.kernel]
    return (computed or of_node or [None])[-1]


def beside_interpreter(
    layers: Sequence[Layer], want: Mapping[str, Array], tolerance: float, noise: Mapping[str, Noise]
) -> tuple[list[Difference], list[str]]:
    """The kernels' results beside the interpreter's values of the same names."""
    rows = [
        difference(layer, plain(layer.value, want[layer.name]), tolerance, noise)
        for layer in layers
        if layer.kernel
    ]
    return rows, []


def beside_model(
    layers: Sequence[Layer],
    nodes: Sequence[ModelNode],
    tensors: Mapping[str, Array],
    tolerance: float,
    noise: Mapping[str, Noise],
) -> tuple[list[Difference], list[str]]:
    """The layers beside the model's own tensors; the second list names kernels without one."""
    chosen: dict[str, Difference] = {}
    for node in nodes:
        outputs = [name for name in node.outputs if name]
        # Which of several outputs a value is, its node's name does not say.
        if len(outputs) != 1 or outputs[0] not in tensors:
            continue
        want = tensors[outputs[0]]
        layer = layer_of_node(layers, node.name, want.size)
        if layer is not None:
            chosen[layer.name] = difference(layer, want, tolerance, noise)
    rows = [chosen[layer.name] for layer in layers if layer.name in chosen]
    left = [layer.kernel for layer in layers if layer.kernel and layer.name not in chosen]
    return rows, left


def difference(
    layer: Layer, want: Array, tolerance: float, noise: Mapping[str, Noise]
) -> Difference:
    """One layer beside its reference, which may have another shape of the same size."""
    computed, wanted = plain(layer.value, layer.array).reshape(-1), np.asarray(want).reshape(-1)
    if {computed.dtype, wanted.dtype} == {np.dtype(np.int8), np.dtype(np.uint8)}:
        # Kernels take bytes of one kind: others, and their zero point, are moved by 128.
        computed = computed.astype(np.int16) + (128 if computed.dtype == np.int8 else -128)
    measures = measure(computed, wanted)
    beyond = measures.max_rel > tolerance and measures.max_abs > 1e-6 * (tolerance > 0)
    return Difference(layer, measures, beyond, noise.get(layer.kernel))
