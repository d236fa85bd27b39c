"""The functions of a layer that step to its next tile: ``next_DIM``, ``skip_DIM``, and those that
enter the domains of what a later compute reads: ``enter_DIM``."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tilewright.codegen.c.source import Writer
from tilewright.codegen.nest.nest import Domain, Loop, Nest
from tilewright.codegen.nest.value import variable


def write_steps(
    writer: Writer, nest: Nest, ahead: Sequence[Sequence[Loop | Domain]], turns: Collection[str]
) -> None:
    """Write a function for each of a layer's domains, and of its loops that have to be stepped.

    ``ahead`` has the loops and domains around each buffer that is fetched ahead; ``turns`` names
    the loops whose tiles CPEs fetch in turns.
    """
    for domain in nest.domains.values():
        _enter(writer, nest, domain)
    for scope in dict.fromkeys(scope for scopes in ahead for scope in scopes):
        scopes = next(scopes for scopes in ahead if scope in scopes)
        around = scopes[: scopes.index(scope)]
        if isinstance(scope, Loop):
            _next(writer, scope, around[-1] if around else None)
        else:
            _next_run(writer, scope, around[-1] if around else None)
        if scope.name in turns:
            _skip(writer, scope)


def first_tile(writer: Writer, scopes: Sequence[Loop | Domain], at: str) -> int:
    """Set the variables of loops and domains to those of their first run; returns the blocks that
    are open then: domains may be empty."""
    opened = 0
    for scope in scopes:
        if isinstance(scope, Loop):
            writer.line(f"{at}.{scope.name} = {scope.start(f'{at}.')};")
            writer.line(f"{at}.{scope.name}_n = {scope.size(f'{at}.')};")
        else:
            writer.line(f"if (enter_{scope.name}(&{at}) || next_{scope.name}(&{at})) {{")
            writer.depth += 1
            opened += 1
    return opened


def _enter(writer: Writer, nest: Nest, domain: Domain) -> None:
    """The function that sets a domain's variables; 0 where it is empty."""
    line, names = writer.line, ", ".join(bound.name for bound in domain.bounds)
    line(f"/* Sets {names} to what is read of them; 0 where that is nothing. */")
    with writer.block(f"static int enter_{domain.name}(struct tile *at)"):
        for bound, axis in zip(domain.bounds, nest.intervals(domain, "at->"), strict=True):
            line(f"at->{bound.name} = {axis.start};")
            size = axis.end - variable(f"at->{bound.name}") if axis.clipped else axis.size
            line(f"at->{bound.name}_n = {size};")
        line(f"return {' && '.join(f'at->{bound.name}_n > 0' for bound in domain.bounds)};")
    line()


def _next(writer: Writer, loop: Loop, around: Loop | Domain | None) -> None:
    """The function that steps to a loop's next iteration; 0 where there is none."""
    name, line = loop.name, writer.line
    line(f"/* Steps to the next iteration over {name}; 0 after the last of the part. */")
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


def _next_run(writer: Writer, domain: Domain, around: Loop | Domain | None) -> None:
    """The function that steps to a domain's next run; 0 where there is none."""
    line = writer.line
    line("/* Steps to the next tile that reads any of it; 0 after the last of the part. */")
    with writer.block(f"static int next_{domain.name}(struct tile *at)"):
        if around is None:
            line("(void)at;")
        else:
            line(f"while (next_{around.name}(at))")
            line(f"    if (enter_{domain.name}(at))")
            line("        return 1;")
        line("return 0;")
    line()


def _skip(writer: Writer, loop: Loop | Domain) -> None:
    """The function that steps a number of tiles further, where they come in turns."""
    name, line = loop.name, writer.line
    line("/* Steps over tiles that other CPEs fetch; 0 after the last one. */")
    with writer.block(f"static int skip_{name}(struct tile *at, int count)"):
        line(f"while (count > 0 && next_{name}(at))")
        line("    count--;")
        line("return count == 0;")
    line()
