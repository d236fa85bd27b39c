"""Places of the arenas of loops' bodies, in packages that hold them in arenas of their own.

A loop's body is a network with arenas of its own (compiler/loops.py). In a package of C that runs
loops itself they lie in the package's: its weights after those of the network around, what it
works in after the network's, too. Loops run one after another, so that all bodies of a network
share that room.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.codegen.program.interface import ALIGNMENT, Compilation
from tilewright.graph.placement import WEIGHTS
from tilewright.memory.alignment import align_up


@dataclass(frozen=True)
class Bases:
    """The bytes at which the arenas of a network begin in those of its package."""

    weights: int = 0
    activations: int = 0

    def place(self, place: tuple[str, int]) -> tuple[str, int]:
        """A place of the network, an arena and a byte there, as one of the package."""
        arena, offset = place
        return arena, offset + (self.weights if arena == WEIGHTS else self.activations)


def _own_bytes(compilation: Compilation) -> tuple[int, int]:
    """Bytes of a network's weights and of what it works in, without those of its loops' bodies."""
    arenas = dict(compilation.arenas)
    return arenas.pop(WEIGHTS, 0), sum(arenas.values())


def package_bytes(compilation: Compilation) -> tuple[int, int]:
    """Bytes of weights, and of what runs work in, with all bodies of loops."""
    weights, working = _own_bytes(compilation)
    bodies = [package_bytes(loop.body) for loop in compilation.loops.values()]
    if not bodies:
        return weights, working
    for inner, _ in bodies:
        weights = align_up(weights, ALIGNMENT) + inner
    return weights, align_up(working, ALIGNMENT) + max(inner for _, inner in bodies)


def bases_of_bodies(compilation: Compilation, bases: Bases) -> dict[str, Bases]:
    """Bases of the arenas of loops' bodies by the loops' symbols, given the network's ``bases``."""
    weights, working = _own_bytes(compilation)
    weights = bases.weights + align_up(weights, ALIGNMENT)
    working = bases.activations + align_up(working, ALIGNMENT)
    placed: dict[str, Bases] = {}
    for symbol, loop in compilation.loops.items():
        placed[symbol] = Bases(weights, working)
        weights += align_up(package_bytes(loop.body)[0], ALIGNMENT)
    return placed


def all_constants(
    compilation: Compilation, bases: Bases = Bases()
) -> list[tuple[Compilation, int]]:
    """A network and the bodies of its loops, each with the byte of the package's weights at which
    its own begin."""
    listed = [(compilation, bases.weights)]
    for symbol, base in bases_of_bodies(compilation, bases).items():
        listed += all_constants(compilation.loops[symbol].body, base)
    return listed
