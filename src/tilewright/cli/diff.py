"""``tilewright diff``: a run beside a reference, layer by layer."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tilewright.cli import console, numbers
from tilewright.cli.groups import ModelOptions, grouped
from tilewright.cli.inputs import InputOption, RandomOption, inputs_for
from tilewright.cli.numbers import NumberOptions
from tilewright.cli.sizes import bound_model
from tilewright.errors import refuse

if TYPE_CHECKING:
    from tilewright.ir.types import Array
    from tilewright.machine import Machine
    from tilewright.report.differences import Layer
    from tilewright.report.noise import Noise
    from tilewright.runtime import Executable
    from tilewright.runtime.model_check import ModelCheck


FLOAT_TOLERANCE = {"interpreter": 1e-4, "onnxruntime": 1e-3}
"""The allowed error of each reference where a machine computes in float32, as a part of a layer's
largest magnitude."""

FIXED_TOLERANCE = {"interpreter": 0.0, "onnxruntime": 0.05}
"""The allowed error where a machine computes in fixed point: the interpreter has the same
integers."""

COARSE_TOLERANCE = {"interpreter": 0.02, "onnxruntime": 0.1}
"""The allowed error for numbers that were asked for: the last bit of a sum may round an integer
up."""

ROUNDED_TOLERANCE = 1e-3
"""The allowed error where the host computes in float32 on the way: its last bit may round a 16-bit
integer up."""


class Reference(StrEnum):
    """The reference with which a run is compared."""

    interpreter = "interpreter"
    onnxruntime = "onnxruntime"


@grouped
def diff(
    model: Annotated[Path, typer.Argument(help="A model file.")],
    *,
    target: console.TargetOption = "cpu",
    reference: Annotated[
        Reference,
        typer.Option(
            "--reference",
            help="The graph interpreter on the final graph, or ONNX Runtime on the model itself.",
        ),
    ] = Reference.interpreter,
    inputs: InputOption = None,
    random: RandomOption = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            "--tolerance",
            min=0.0,
            help="Relative to a layer's largest magnitude [default: by machine].",
        ),
    ] = None,
    with_float: Annotated[
        bool,
        typer.Option(
            "--float/--no-float", help="On fixed-point machines, also tell each layer's own error."
        ),
    ] = True,
    save: Annotated[
        Path | None, typer.Option("--save", metavar="FILE.npz", help="Save both sides' tensors.")
    ] = None,
    formats: NumberOptions,
    options: ModelOptions,
    as_json: console.JsonOption = False,
    quiet: console.QuietOption = False,
) -> None:
    """Compare a model with a reference, layer by layer.

    With the interpreter, it also prints the outputs' errors against the model as it was written.
    Exit status 1 says that a layer differs beyond the tolerance, or an output beyond the bound.

    Example: tilewright diff resnet50.onnx --target cpu --reference onnxruntime --random 1
    """
    from tilewright import frontends
    from tilewright.compiler.api import compile
    from tilewright.compiler.pipeline import resolve, run_pipeline
    from tilewright.graph.dialect import network_of
    from tilewright.report.differences import (
        Comparison,
        beside_interpreter,
        beside_model,
        layers_of,
    )
    from tilewright.report.measures import plain
    from tilewright.report.noise import noise
    from tilewright.report.onnx_reference import onnx_tensors

    with console.refusals(as_json), console.progress(quiet) as progress:
        chosen_target, machine = resolve(target, None, options.values)
        choices = formats.chosen
        chosen = numbers.numbers_on(machine, choices)
        progress("import", 0, 0)
        source, shapes = bound_model(model, options, inputs, progress)
        imported = (
            source.load(shapes, loops=chosen_target.takes_loops(machine))
            if isinstance(source, frontends.Opened)
            else frontends.load(model, shapes=shapes, caffemodel=options.caffemodel)
        )
        executable = compile(imported, chosen_target, machine=machine, progress=progress, **choices)
        arrays = inputs_for(executable.inputs, inputs, random)
        progress("run", 0, 0)
        seen: dict[str, Array] = {}
        beside: ModelCheck | None = None  # ONNX Runtime evaluates the model itself.
        outputs = executable.run(arrays, observe=seen.__setitem__)
        layers = layers_of(network_of(executable.graph), seen)
        shares: dict[str, Noise] = {}
        if with_float and machine.fixed_bits:
            state = run_pipeline(
                imported, chosen_target, machine, numbers=chosen, progress=progress,
                until="kernels", loops=True,
            )  # fmt: skip
            results = {row.kernel: plain(row.value, row.array) for row in layers if row.kernel}
            shares = noise(state.network, state.weights, arrays, results)
        progress("reference", 0, 0)
        allowed = tolerance
        if allowed is None:
            coarse = chosen is not None and not chosen.format.is_plain
            allowed = _tolerance(machine, coarse, reference, executable)
        if reference is Reference.interpreter:
            want = _interpreted(executable, arrays)
            rows, left = beside_interpreter(layers, want, allowed, shares)
            beside = executable.beside_model(arrays, outputs)
        else:
            if model.suffix.lower() != ".onnx":
                raise refuse("reference-model", "ONNX Runtime reads only ONNX models", str(model))
            names = [name for node in imported.nodes for name in node.outputs]
            want = onnx_tensors(model, arrays, names)
            rows, left = beside_model(layers, imported.nodes, want, allowed, shares)
        compared = Comparison(
            chosen_target.name, reference.value, allowed, tuple(rows), tuple(left), beside
        )
        if save is not None:
            _save(save, layers, want)
    console.show(as_json, compared.to_json(), compared)
    if not compared.passed:
        raise typer.Exit(1)


def _tolerance(
    machine: Machine, coarse: bool, reference: Reference, executable: Executable
) -> float:
    """The default tolerance; ``coarse`` says that numbers other than float32 were asked for."""
    if machine.number.is_short_float or (machine.computes_as_given and coarse):
        return COARSE_TOLERANCE[reference.value]
    if machine.computes_as_given:
        return FLOAT_TOLERANCE[reference.value]
    if reference is Reference.interpreter and not executable.runner.exact:
        return ROUNDED_TOLERANCE
    return FIXED_TOLERANCE[reference.value]


def _interpreted(executable: Executable, arrays: Mapping[str, Array]) -> dict[str, Array]:
    want: dict[str, Array] = {}
    executable.reference(arrays, want.__setitem__)
    return want


def _save(path: Path, layers: list[Layer], want: Mapping[str, Array]) -> None:
    """Both sides' tensors: ``run/NAME`` and ``reference/NAME``, whole or not at all."""
    from tilewright.graph.names import Namer

    arrays = {f"run/{layer.name}": layer.array for layer in layers}
    # A model's names may hold anything; as paths in an archive they must not.
    namer = Namer()
    arrays |= {f"reference/{namer.unique(name)}": array for name, array in want.items()}
    console.save_arrays(path, arrays)
