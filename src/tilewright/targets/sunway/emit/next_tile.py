"""The functions of a layer that step to its next tile: ``next_DIM``, ``skip_DIM``."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tilewright.codegen.c.source import Writer
from tilewright.targets.sunway.emit.nest import Loop


def write_steps(
    writer: Writer, loops: Sequence[Loop], ahead: Sequence[Sequence[Loop]], turns: Collection[str]
) -> None:
    """Write a function for each of a layer's loops that has to be stepped.

    ``ahead`` has the loops around each buffer that is fetched ahead; ``turns`` names the loops
    whose tiles CPEs fetch in turns.
    """
    for loop in loops:
        around = next((nest[: nest.index(loop)] for nest in ahead if loop in nest), None)
        if around is not None:
            _next(writer, loop, around[-1] if around else None)
            if loop.name in turns:
                _skip(writer, loop)


def write_first(writer: Writer, loop: Loop, at: str) -> None:
    """Set a loop's variables to those of its first iteration."""
    writer.line(f"{at}{loop.name} = {loop.start(at)};")
    writer.line(f"{at}{loop.name}_n = {loop.size(at)};")


def _next(writer: Writer, loop: Loop, around: Loop | None) -> None:
    """The function that steps to a loop's next iteration; 0 where there is none."""
    name, line = loop.name, writer.line
    line(f"/* Steps to the next iteration over {name}; 0 behind the last of the part. */")
    with writer.block(f"static int next_{name}(struct tile *at)"):
        line(f"at->{name} += {loop.step};")
        with writer.block(f"if (at->{name} >= {loop.end('at->')})"):
            if around is None:
                line("return 0;")
            else:
                line(f"if (!next_{around.name}(at))")
                line("    return 0;")
                line(f"at->{name} = {loop.start('at->')};")
        line(f"at->{name}_n = {loop.size('at->')};")
        line("return 1;")
    line()


def _skip(writer: Writer, loop: Loop) -> None:
    """The function that steps a number of tiles further, where they come in turns."""
    name, line = loop.name, writer.line
    line("/* Steps over tiles that other CPEs fetch; 0 behind the last one. */")
    with writer.block(f"static int skip_{name}(struct tile *at, int count)"):
        line(f"while (count > 0 && next_{name}(at))")
        line("    count--;")
        line("return count == 0;")
    line()
