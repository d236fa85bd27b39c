"""``tilewright asm`` and ``tilewright disasm``: text to instruction words and back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tilewright.cli import console, hlal
from tilewright.errors import TilewrightError, refuse
from tilewright.system.files import need_file, written

if TYPE_CHECKING:
    from tilewright.machine import Machine
    from tilewright.targets.base import Target


MOST_BYTES = 1 << 30
"""Largest file that is read."""

OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", help="Where to write [default: beside FILE].")
]

ListingOption = Annotated[
    Path | None,
    typer.Option("--listing", metavar="FILE", help="Write addresses, words and lines (.hlal)."),
]
TargetOption = Annotated[
    str | None,
    typer.Option(
        "--target",
        "-t",
        help="A target's name, or a machine file (.toml) [default: cambricon-x; cambricon for "
        ".hlal].",
        autocompletion=console.complete_target,
    ),
]
DEFAULT = "cambricon-x"


def asm(
    file: Annotated[Path, typer.Argument(help="Assembly text, or an HLAL program (.hlal).")],
    target: TargetOption = None,
    output: OutputOption = None,
    settings: console.SetOption = None,
    listing: ListingOption = None,
    no_barriers: hlal.NoBarriersOption = False,
    as_json: console.JsonOption = False,
) -> None:
    """Assemble text into instruction words.

    Example: tilewright asm program.asm --target cambricon-x -o program.bin
    Example: tilewright asm program.hlal --listing program.txt
    """
    if file.suffix == hlal.SUFFIX:
        with console.refusals(as_json):
            program, _ = hlal.read_program(file, target, settings, not no_barriers)
            place = output or file.with_suffix(".bin")
            _write(place, hlal.words_of(program))
            if listing is not None:
                _write(listing, hlal.listing_of(program).encode())
        count, facts = len(program.words), {"output": str(place), **hlal.summary(program)}
        console.show(as_json, facts, f"{count} instructions, {8 * count:,} bytes in {place}")
        return
    with console.refusals(as_json):
        if listing is not None or no_barriers:
            raise refuse("option-listing", "only .hlal has listings and barriers", str(file))
        chosen, machine = _described(target or DEFAULT, settings)
        try:
            text = _bytes(file).decode()
        except UnicodeDecodeError as error:
            raise refuse("input-file", str(error), str(file)) from error
        words = chosen.assemble(text, machine, str(file))
        place = output or file.with_suffix(".bin")
        _write(place, words)
        count = chosen.instruction_count(words, machine)
    facts = {"output": str(place), "bytes": len(words), "instructions": count}
    console.show(as_json, facts, f"{count} instructions, {len(words):,} bytes in {place}")


def disasm(
    file: Annotated[Path, typer.Argument(help="Instruction words, or a package.")],
    target: TargetOption = None,
    output: OutputOption = None,
    settings: console.SetOption = None,
    as_json: console.JsonOption = False,
) -> None:
    """Disassemble words or a package's program; the text assembles to the same words.

    Example: tilewright disasm package -o program.asm
    """
    with console.refusals(as_json):
        if file.is_dir():
            text = disassemble_package(file)
        else:
            text = disassemble_words(_bytes(file), target or DEFAULT, settings)
        if output is not None:
            _write(output, text.encode())
    lines = text.count("\n")
    if as_json:
        result = {"text": text} if output is None else {"output": str(output)}
        console.print_json({"lines": lines, **result})
    elif output is None:
        console.write(text)
    else:
        console.say(f"{lines:,} lines in {output}")


def disassemble_words(data: bytes, target: str, settings: list[str] | None) -> str:
    """The text of words; what is refused says whose words they were taken for."""
    chosen, machine = _described(target, settings)
    try:
        return chosen.disassemble(data, machine)
    except TilewrightError as error:
        hint = f"read as words of {target}; --target names another machine"
        raise TilewrightError(
            [replace(problem, help=problem.help or hint) for problem in error.problems]
        ) from error


def disassemble_package(directory: Path) -> str:
    """The listing of a package's program, with kernels and the model's nodes as remarks."""
    from tilewright.runtime import read_manifest
    from tilewright.runtime.executable import Executable
    from tilewright.runtime.manifest import PROGRAM
    from tilewright.targets.base import find_target

    manifest = read_manifest(directory)
    if manifest.open_model is not None:
        names = ", ".join(dim.name for dim in manifest.open_model.dims)
        raise refuse(
            "shape-open", f"the sizes of {names} are open: there is no program", str(directory),
            "compile with --shape",
        )  # fmt: skip
    package = Executable(directory, manifest=manifest)
    return find_target(manifest.target).listing(package.content / PROGRAM)


def _described(target: str, settings: list[str] | None) -> tuple[Target, Machine]:
    from tilewright.compiler.pipeline import resolve

    return resolve(target, None, console.machine_values(settings))


def _bytes(file: Path) -> bytes:
    need_file(file, "input-file")
    try:
        if file.stat().st_size > MOST_BYTES:
            raise refuse("input-file", f"is larger than {MOST_BYTES} bytes", str(file))
        return file.read_bytes()
    except OSError as error:
        raise refuse("input-file", error.strerror or str(error), str(file)) from error


def _write(path: Path, data: bytes) -> None:
    """Write a file whole or not at all."""
    with written(path) as fresh:
        fresh.write_bytes(data)
