"""``tilewright replay``: one model and its inputs on every engine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tilewright.cli import console
from tilewright.cli.inputs import InputOption, RandomOption, inputs_for, read_arrays
from tilewright.errors import refuse
from tilewright.system.files import need_file

if TYPE_CHECKING:
    from tilewright.codegen.program.interface import TensorInfo


TARGETS = ("cpu", "cambricon-x")


def replay(
    model: Annotated[Path, typer.Argument(help="An ONNX file.")],
    inputs: InputOption = None,
    random: RandomOption = None,
    targets: Annotated[
        list[str] | None,
        typer.Option("--target", "-t", help=f"One or more [default: {', '.join(TARGETS)}]."),
    ] = None,
    as_json: console.JsonOption = False,
    quiet: console.QuietOption = False,
) -> None:
    """Run a model on every engine and compare the results.

    Inputs are taken from the file MODEL.npz beside MODEL.onnx, as random tests leave them, where
    no others are given. Exit status 1 says that an engine differs from the interpreter or fails.

    Example: tilewright replay build/fuzz/1f3a90c2d4e5.onnx
    """
    import onnx
    from google.protobuf.message import DecodeError

    from tilewright.report.agreement import agreement
    from tilewright.targets.base import find_target

    with console.refusals(as_json), console.progress(quiet) as progress:
        for name in targets or ():
            find_target(name)
        need_file(model, "reference-model")
        if model.suffix.lower() != ".onnx":
            raise refuse("reference-model", "only ONNX files are replayed", repr(str(model)))
        progress("import", 0, 0)
        beside = model.with_suffix(".npz")
        if inputs is None and random is None and beside.is_file():
            arrays = read_arrays(beside)
        else:
            arrays = inputs_for(_inputs(model), inputs, random)
        try:
            loaded = onnx.load(model)
        except (DecodeError, OSError, ValueError) as error:
            raise refuse("reference-model", str(error), repr(str(model))) from error
        progress("compare", 0, 0)
        result = agreement(loaded, arrays, tuple(targets or TARGETS))
    console.show(as_json, result.to_json(), result)
    if not result.passed:
        raise typer.Exit(1)


def _inputs(model: Path) -> tuple[TensorInfo, ...]:
    """Return the inputs of the model; raises TilewrightError."""
    from tilewright.codegen.program.interface import TensorInfo
    from tilewright.frontends.onnx import import_onnx
    from tilewright.graph.dialect import network_of
    from tilewright.ir.types import element_dtype, shape_of, tensor_type

    kinds = network_of(import_onnx(model).module).inputs
    return tuple(
        TensorInfo(name, shape_of(value), str(element_dtype(tensor_type(value).element_type)))
        for name, value in kinds
    )
