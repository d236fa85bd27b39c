"""Options that choose numbers, and the calibration data for them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import typer

from tilewright.cli import console
from tilewright.errors import refuse
from tilewright.numerics.formats import FORMATS, OBSERVERS, Numbers, numbers_of

if TYPE_CHECKING:
    from tilewright.machine import Machine
    from tilewright.numbers.calibration import Samples


NumbersOption = Annotated[
    str | None,
    typer.Option(
        "--numbers",
        metavar="FORMAT",
        help=f"{', '.join(FORMATS)} [default: the target's own].",
        autocompletion=console.completion(lambda: FORMATS),
    ),
]
CalibrationOption = Annotated[
    Path | None,
    typer.Option(
        "--calibration",
        metavar="FILE-OR-FOLDER",
        help="Sample inputs: an .npz by input name with a leading axis, or a folder of images.",
    ),
]
PreprocessOption = Annotated[
    str | None,
    typer.Option(
        "--preprocess",
        metavar="KEY=VALUE,...",
        help="Changes to images: size=224x224,mean=124:116:104,scale=0.017,channels=bgr,fit=crop.",
    ),
]
ObserverOption = Annotated[
    str | None,
    typer.Option(
        "--observer",
        metavar="NAME",
        help=f"What chooses ranges: {', '.join(OBSERVERS)} [default: {OBSERVERS[0]}].",
        autocompletion=console.completion(lambda: OBSERVERS),
    ),
]
KeepFloatOption = Annotated[
    list[str] | None,
    typer.Option("--keep-float", metavar="NODE", help="Leave a node in float32 (repeatable)."),
]
EqualiseOption = Annotated[
    bool | None,
    typer.Option(
        "--equalise/--no-equalise",
        help="Equalise channels before they are quantised [default: in int8].",
    ),
]


def samples(path: Path | None, preprocess: str | None = None) -> Samples | None:
    """The calibration data that the options name."""
    from tilewright.numbers.calibration import calibration_of, preprocessing_of

    if path is None:
        if preprocess is not None:
            raise refuse("option-preprocess", "there are no images to preprocess", "--preprocess")
        return None
    return calibration_of(path, None if preprocess is None else preprocessing_of(preprocess))


class Chosen(TypedDict, total=False):
    """The number format that the options choose, as ``compile`` takes it."""

    numbers: str | None
    observer: str | None
    keep_float: tuple[str, ...]
    equalise: bool
    calibration: Samples | None


@dataclass(frozen=True)
class NumberOptions:
    """The options that choose number formats, and the calibration data for them."""

    format: NumbersOption = None
    calibration: CalibrationOption = None
    preprocess: PreprocessOption = None
    observer: ObserverOption = None
    keep_float: KeepFloatOption = None
    equalise: EqualiseOption = None

    @property
    def chosen(self) -> Chosen:
        """The options that are given, as ``compile`` takes them; reads calibration data."""
        options: Chosen = {}
        if self.format is not None:
            options["numbers"] = self.format
        if self.observer is not None:
            options["observer"] = self.observer
        if self.keep_float:
            options["keep_float"] = tuple(self.keep_float)
        if self.equalise is not None:
            options["equalise"] = self.equalise
        if self.calibration is not None or self.preprocess is not None:
            options["calibration"] = samples(self.calibration, self.preprocess)
        return options

    @property
    def compiling(self) -> bool:
        """True if an option is given that concerns more than the calibration data."""
        return bool(self.format or self.observer or self.keep_float) or self.equalise is not None

    def on(self, machine: Machine) -> dict[str, Any]:
        """The arguments of the stages of a compilation for a machine: numbers and samples."""
        chosen = self.chosen
        return {"numbers": numbers_on(machine, chosen), "calibration": chosen.get("calibration")}


def numbers_on(machine: Machine, choices: Chosen) -> Numbers | None:
    """The numbers that the options choose on a machine; None for its own."""
    if not choices.keys() - {"calibration"}:
        return None
    format = choices.get("numbers") or machine.element
    return numbers_of(
        format, choices.get("observer"), choices.get("keep_float", ()), choices.get("equalise")
    )
