"""Generators of allocation problems of the kind that MiniMalloc's benchmarks are.

The published problems (buffers of on-chip memories of real accelerators) have 150 to 450 buffers,
fill their capacity nearly whole, and mix a few long lives with many short ones. The generators make
such shapes from a seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tilewright.memory import Buffer


def cut(count: int, seed: int, width: int = 400, height: int = 1024) -> list[Buffer]:
    """A rectangle cut into pieces: it can be filled without a gap, so the bound can be reached."""
    generator = random.Random(seed)
    pieces = [(0, width, 0, height)]
    while len(pieces) < count:
        # Large pieces are cut first, so that sizes spread as those of real buffers do.
        weights = [(x1 - x0) * (y1 - y0) for x0, x1, y0, y1 in pieces]
        index = generator.choices(range(len(pieces)), weights)[0]
        x0, x1, y0, y1 = pieces.pop(index)
        if x1 - x0 > 1 and (y1 - y0 == 1 or generator.random() < 0.6):
            middle = generator.randrange(x0 + 1, x1)
            pieces += [(x0, middle, y0, y1), (middle, x1, y0, y1)]
        elif y1 - y0 > 1:
            middle = generator.randrange(y0 + 1, y1)
            pieces += [(x0, x1, y0, middle), (x0, x1, middle, y1)]
        else:
            pieces.append((x0, x1, y0, y1))
    generator.shuffle(pieces)
    return [Buffer(f"b{i}", y1 - y0, x0, x1 - 1) for i, (x0, x1, y0, y1) in enumerate(pieces)]


def prefetch(count: int, seed: int) -> list[Buffer]:
    """Layers in a row: activations from one to the next, weights fetched some layers ahead."""
    generator = random.Random(seed)
    layers = count // 3
    found: list[Buffer] = []
    for layer in range(layers):
        now = 4 * layer
        found.append(Buffer(f"a{layer}", generator.choice((8, 16, 24, 32, 48)), now, now + 5))
        ahead = 4 * generator.randrange(1, 5)
        weight = generator.choice((2, 6, 9, 12, 18, 36))
        found.append(Buffer(f"w{layer}", weight, max(now - ahead, 0), now + 3))
        found.append(Buffer(f"s{layer}", generator.choice((1, 2, 4)), now + 1, now + 2))
    return found


def branches(count: int, seed: int) -> list[Buffer]:
    """Blocks with parallel branches and shortcuts past them, as in Inception, DenseNet, U-Net."""
    generator = random.Random(seed)
    found: list[Buffer] = []
    step = 0
    skips: list[tuple[int, int]] = []
    while len(found) < count:
        wide = generator.randrange(2, 5)
        size = generator.choice((4, 8, 12, 16, 32))
        if generator.random() < 0.4:
            skips.append((step, size))
        if skips and generator.random() < 0.35:
            born, kept = skips.pop()
            found.append(Buffer(f"skip{len(found)}", kept, born, step))
        end = step + 2 * wide + 1
        for branch in range(wide):
            part = generator.choice((1, 2, 3, 4)) * size // 4
            found.append(Buffer(f"m{len(found)}", size, step + 2 * branch, step + 2 * branch + 1))
            found.append(Buffer(f"p{len(found)}", max(part, 1), step + 2 * branch + 1, end))
        step = end
    return found[:count]


def scattered(count: int, seed: int) -> list[Buffer]:
    """Lives and sizes without any order: geometric lives, sizes over three powers of ten."""
    generator = random.Random(seed)
    found: list[Buffer] = []
    for index in range(count):
        first = generator.randrange(count)
        last = first + min(int(generator.expovariate(0.12)), 60)
        found.append(Buffer(f"r{index}", int(10 ** generator.uniform(0, 3)), first, last))
    return found


SHAPES: dict[str, Callable[[int, int], list[Buffer]]] = {
    "cut": cut,
    "prefetch": prefetch,
    "branches": branches,
    "scattered": scattered,
}
"""Generators by name: number of buffers and seed to a problem."""
