"""HLAL programs on the command line: what asm, run and disasm do with them, and trace."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli import console
from tilewright.cli.inputs import InputOption, RandomOption, arrays_of_files
from tilewright.errors import refuse
from tilewright.system.files import need_file, reason_of, written

if TYPE_CHECKING:
    from tilewright.ir.types import Array
    from tilewright.machine import Machine
    from tilewright.targets.cambricon.hlal.assemble import Program
    from tilewright.targets.cambricon.hlal.run import Execution


SUFFIX = ".hlal"

MOST_BYTES = 1 << 24
"""Largest program text that is read."""

LimitOption = Annotated[
    int, typer.Option("--limit", min=1, help="End a run after this number of instructions.")
]
MOST_INSTRUCTIONS = 1 << 30


NoBarriersOption = Annotated[
    bool,
    typer.Option("--no-barriers", help="Leave @barrier to the queue's own checks (.hlal)."),
]


def _machines() -> tuple[str, ...]:
    from tilewright.targets.cambricon.hlal.machines import NAMES

    return NAMES


MachineOption = Annotated[
    str | None,
    typer.Option(
        "--target",
        "-t",
        help="A configuration of ACC-C [default: cambricon].",
        autocompletion=console.completion(_machines),
    ),
]


def read_program(
    file: Path,
    target: str | None,
    settings: list[str] | None,
    barriers: bool = True,
) -> tuple[Program, Machine]:
    """The program of a file, assembled for a machine."""
    from tilewright.targets.cambricon.hlal.assemble import assemble
    from tilewright.targets.cambricon.hlal.machines import NAMES, machine_named
    from tilewright.targets.cambricon.hlal.run import sizes_of

    machine = machine_named(target or NAMES[0], console.machine_values(settings))
    need_file(file, "input-file")
    try:
        if file.stat().st_size > MOST_BYTES:
            raise refuse("input-file", f"is larger than {MOST_BYTES} bytes", str(file))
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise refuse("input-file", reason_of(error), str(file)) from error
    sizes = sizes_of(machine)
    return assemble(text, str(file), sizes, barriers=barriers), machine


def summary(program: Program) -> dict[str, Any]:
    """Return the sizes of an assembled program, for JSON."""
    return {
        "instructions": len(program.words),
        "data_bytes": program.data.bytes,
        "vsm_bytes": program.vsm_bytes,
        "msm_bytes": program.msm_bytes,
        "relocations": list(program.relocations),
        "data": [
            {
                "name": array.name,
                "kind": array.kind,
                "address": array.address + program.base,
                "bytes": array.bytes,
                "shape": list(array.shape),
                "segments": [axis.segment for axis in array.axes],
                "layout": array.layout,
                "fraction": array.fraction,
                "writable": array.writable,
            }
            for array in program.data.arrays
        ],
    }


def words_of(program: Program) -> bytes:
    """The words as they are written to files: 8 bytes each, little-endian."""
    return program.words.astype("<u8").tobytes()


def listing_of(program: Program) -> str:
    """The listing of a program."""
    from tilewright.targets.cambricon.hlal.listing import listing

    return listing(program)


def inputs_for(program: Program, files: list[str] | None, seed: int | None) -> dict[str, Array]:
    """Arrays of ``--input``, and random ones for read-only arrays that are left over."""
    import numpy as np

    names = [array.name for array in program.data.arrays]
    arrays = arrays_of_files(names, files)
    if seed is not None:
        random = np.random.default_rng(seed)
        for array in program.data.arrays:
            if not array.writable and array.name not in arrays:
                arrays[array.name] = random.standard_normal(array.shape).astype(np.float32)
    return arrays


def run_program(
    file: Path,
    target: str | None,
    settings: list[str] | None,
    inputs: list[str] | None,
    seed: int | None,
    *,
    check: bool,
    trace: Path | None,
    output: Path | None,
    limit: int = MOST_INSTRUCTIONS,
    barriers: bool = True,
) -> tuple[Program, Machine, Execution]:
    """Assemble and run, and write what was asked for."""
    from tilewright.targets.cambricon.hlal.run import execute

    program, machine = read_program(file, target, settings, barriers)
    arrays = inputs_for(program, inputs, seed)
    execution = execute(program, machine, arrays, check=check, trace=trace is not None, limit=limit)
    if trace is not None:
        with written(trace) as fresh:
            write_timeline(fresh, program, machine, execution)
    if output is not None:
        console.save_arrays(output, execution.outputs)
    return program, machine, execution


def write_timeline(path: Path, program: Program, machine: Machine, execution: Execution) -> None:
    """Write a run's events with their lines; the scalar unit's accesses have a track of their
    own."""
    from tilewright.machine import Engine
    from tilewright.simulate import write_trace
    from tilewright.targets.cambricon.simulate.timeline import events_of

    engines = Engine(name="scalar"), *machine.engines
    shown = machine.model_copy(update={"engines": engines})
    spans, commands, label = events_of(execution.result, program.words, shown)
    words = execution.result.events[:, 0].tolist()
    write_trace(
        path, spans, commands, shown, kernels=[program.name], label=label,
        line=lambda command: program.where(words[command]),
    )  # fmt: skip


def report(
    program: Program, machine: Machine, execution: Execution, as_json: bool, check: bool
) -> None:
    """Print what a run took."""
    result = execution.result
    seconds = result.cycles / machine.clock_hz
    if as_json:
        console.print_json(
            {
                "target": machine.name,
                "outputs": console.describe(execution.outputs),
                "scalars": execution.scalars,
                "cycles": result.cycles,
                "seconds": seconds,
                "instructions": result.instructions,
                "dram_bytes": result.main_bytes,
                "busy": result.busy,
                "counts": result.counts,
                "races": [] if check else None,
            }
        )
        return
    busy = ", ".join(
        f"{unit} {100 * time / result.cycles:.0f} %" for unit, time in result.busy.items() if time
    )
    console.say(
        f"{result.instructions:,} instructions in {result.cycles:,.0f} cycles "
        f"({seconds * 1e6:,.1f} us) on {machine.name}; {result.main_bytes:,} bytes of main memory"
    )
    console.say(f"busy: {busy}")
    if check:
        console.say("no barrier is missing")
    for name, values in execution.outputs.items():
        shape = " x ".join(map(str, values.shape))
        console.say(f"{name}: {shape}, from {values.min()} to {values.max()}")
    for name, value in execution.scalars.items():
        console.say(f"{name}: {value}")


def trace_command(
    file: Annotated[Path, typer.Argument(help="An HLAL program.")],
    target: MachineOption = None,
    inputs: InputOption = None,
    random: RandomOption = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where to write [default: FILE.json].")
    ] = None,
    settings: console.SetOption = None,
    limit: LimitOption = MOST_INSTRUCTIONS,
    as_json: console.JsonOption = False,
) -> None:
    """Run an HLAL program and write its timeline for Perfetto, each instruction with its line.

    Example: tilewright trace program.hlal --random 1 -o trace.json
    """
    with console.refusals(as_json):
        place = output or file.with_suffix(".json")
        program, _, execution = run_program(
            file, target, settings, inputs, random, check=False, trace=place, output=None,
            limit=limit,
        )  # fmt: skip
        words = execution.result.events[:, 0].tolist()
        lines = Counter(program.line(word) for word in words)
    if as_json:
        console.print_json({"output": str(place), "events": len(words)})
    else:
        console.say(f"{len(words):,} events in {place}")
        for line, count in lines.most_common(5):
            console.say(f"line {line}: {count:,}")
