"""From a hierarchy of memories around an array to a machine.

The outermost memory is main memory. An operand's path leads from there through every memory that
holds it and serves the whole array; where there is none, through the one of the units. Memories of
units are otherwise part of the primitive: of them energy is counted alone, for each multiply-add.
"""

from __future__ import annotations

from itertools import pairwise
from math import prod

from tilewright.errors import refuse
from tilewright.integrations.machines.hierarchy import OPERANDS, Hardware, Level, identifier
from tilewright.integrations.machines.reading import CODE
from tilewright.machine.load import load_machine
from tilewright.machine.model import Machine

UNLIMITED = 1e6
"""Bytes in a cycle of a move that no file limits."""

LARGEST = 1 << 40
"""Bytes of a memory on the chip that no file limits."""

MOST_ENGINES = 7
"""The most engines that a machine may have beside the array's."""

_SHARED = {"I": ("co", "g"), "W": ("oh", "ow", "n"), "O": ("ci", "kh", "kw")}
"""Dims whose indices, computed at once, use the same element of an operand."""

ELEMENTS = {"int8": ("int32", 1, "requantise_linear"), "fixed16": ("fixed32", 2, "requantise")}
"""Number format -> accumulator, bytes, the operation from sums to elements."""

_PRIMITIVES = """
[primitive.products]
operations = ["conv", "matmul"]
engine = "array"
cycles = "{steps}"
peak = "{work}/{multipliers}"
multiples = {{ {multiples} }}
operands = {{ {weighted} }}
epilogue = {epilogue}
{energy}
[primitive.depthwise]
operations = ["depthwise_conv"]
engine = "array"
cycles = "{depthwise}"
peak = "n*oh*ow*c*kh*kw/{wide}"
operands = {{ {weighted} }}
epilogue = {epilogue}
[primitive.pool]
operations = ["max_pool", "average_pool"]
engine = "array"
cycles = "n*oh*ow*ceil(c/{lanes})*kh*kw"
peak = "n*oh*ow*c*kh*kw/{lanes}"
operands = {{ {pooled} }}
epilogue = {epilogue}
[primitive.points]
operations = ["add", "sub", "mul", "relu", "clip", "leaky_relu", {points}]
engine = "array"
cycles = "ceil(d0*d1*d2*d3*d4*d5/{lanes})"
peak = "d0*d1*d2*d3*d4*d5/{lanes}"
operands = {{ {pooled}, weight = "{input}" }}
epilogue = {epilogue}
"""


def machine_described(hardware: Hardware, element: str) -> Machine:
    """The machine of some hardware; what was lost is appended to ``hardware.lost``.

    Raises TilewrightError (``machine-import``) if the outermost memory does not hold all operands,
    or an operand has no memory on the chip; ``machine-invalid`` for figures that no machine has.
    """
    paths = _paths(hardware)
    main = paths["I"][0]
    used = [x for x in hardware.levels if any(x in path for path in paths.values())]
    for level in hardware.levels:
        if level not in used:
            reason = "its size is no limit, its energy is counted for each multiply-add"
            hardware.lost.append(f"{level.name}: units have their own; {reason}")
        elif level.inside:
            hardware.lost.append(f"{level.name}: the memories of all units are one")
    source = f"the file of {hardware.tool} that it was imported from"
    lines = [
        f'name = "{hardware.name}"',
        f'description = "{hardware.multipliers:,} multipliers, imported from {hardware.tool}"',
        f"clock_hz = {hardware.clock_hz!r}",
        f'main = "{main.name}"',
        f'element = "{element}"',
        f'accumulator = "{ELEMENTS[element][0]}"',
        'layouts = { activation = "NHWC", weight = "OHWI" }',
        *([f'figures_source = "{source}"'] if any(x.read_pj for x in used) else ()),
        *(_memory(level, level is main) for level in used),
        *_moves(paths),
        "[engine.array]",
        _primitives(hardware, paths, element),
    ]
    hardware.lost += [
        f"number format: {element} is assumed (--element)",
        "what the array reads of its operands' memories takes no bandwidth from moves",
        "what follows a sum (activations, scales) takes no time; pools and pointwise operations "
        f"compute {hardware.lanes} elements at once",
        "depthwise convolutions compute one channel at a time, or as many as groups are unrolled",
    ]
    return load_machine("\n".join(lines))


def _paths(hardware: Hardware) -> dict[str, list[Level]]:
    """Each operand's memories from main memory, which may be added, to the array's own."""
    levels = hardware.levels
    alone = len(levels) > 0 and all(x.inside for x in levels[1:]) and levels[0].bytes is not None
    if alone and not all(any(o in x.holds for x in levels[1:]) for o in OPERANDS):
        hardware.lost.append(f"no memory lies beyond {levels[0].name}: one as fast is added")
        name = identifier("main", {level.name for level in levels})
        levels.insert(0, Level(name, None, OPERANDS, False, levels[0].read, levels[0].write))
    if not levels or levels[0].holds != OPERANDS:
        reason = "the outermost memory does not hold inputs, weights and outputs"
        raise refuse(CODE, reason, hardware.name, "a machine file has one main memory")
    paths: dict[str, list[Level]] = {}
    for operand in "IWO":
        holding = [level for level in levels[1:] if operand in level.holds]
        chain = [level for level in holding if not level.inside] or holding[:1]
        if not chain:
            raise refuse(CODE, f"operand {operand} has no memory on the chip", hardware.name)
        paths[operand] = [levels[0], *chain]
    return paths


def _memory(level: Level, main: bool) -> str:
    """The table of one memory."""
    bytes = LARGEST if level.bytes is None else level.bytes
    rate = level.read if level.one_port else None
    figures = {
        "bytes": None if main else bytes,
        "bytes_per_cycle": rate,
        "read_pj": level.read_pj,
        "write_pj": level.write_pj,
    }
    lines = [f"{key} = {value!r}" for key, value in figures.items() if value is not None]
    return "\n".join([f"[memory.{level.name}]", *lines])


def _moves(paths: dict[str, list[Level]]) -> list[str]:
    """Moves for the steps of all paths, results' both ways, because sums may come back; engines."""
    steps = {(a.name, b.name): (a, b) for path in paths.values() for a, b in pairwise(path)}
    back = {(b.name, a.name): (b, a) for a, b in pairwise(paths["O"])}
    engines = {s: f"store-{s[0]}" if s in back else f"load-{s[0]}" for s in steps | back}
    if len(set(engines.values())) > MOST_ENGINES:
        engines = {step: name.partition("-")[0] for step, name in engines.items()}
    taken: set[str] = set()
    lines = [f"[engine.{name}]" for name in sorted(set(engines.values()))]
    for step, (source, target) in (steps | back).items():
        rate = min(source.read or UNLIMITED, target.write or UNLIMITED)
        lines += [
            f"[move.{identifier(f'{source.name[:22]}-to-{target.name[:22]}', taken)}]",
            f'source = "{source.name}"\ntarget = "{target.name}"\nengine = "{engines[step]}"',
            f"bytes_per_cycle = {rate!r}\nlatency = {source.latency}",
        ]
    return lines


def _primitives(hardware: Hardware, paths: dict[str, list[Level]], element: str) -> str:
    """Convolutions and products on the array, and beside it depthwise ones, pools, points."""
    unrolled = hardware.unrolled
    inner = {dim: size for dim, size in unrolled.items() if dim not in ("co", "ci", "g")}
    inner["c"] = unrolled.get("g", 1)
    at = {operand: path[-1].name for operand, path in paths.items()}
    fills = ", fills = true" if element == "int8" else ""
    finish = ELEMENTS[element][2]
    ends = '"requantise", "requantise_linear"' if element == "int8" else '"requantise"'
    linear = ', "add_linear", "mul_linear"' if element == "int8" else ""
    results = f'residual = "{at["O"]}", output = "{at["O"]}"'
    dims = ("n", "g", "b0", "b1", "m", "oh", "ow", "co", "ci", "kh", "kw")
    work, pj = "*".join(dims), hardware.mac_pj
    energy = "" if pj is None else f'tile_pj = "{work}*{_multiply_pj(hardware, pj, element):.6g}"'
    return _PRIMITIVES.format(
        steps=_steps(dims, unrolled),
        work=work,
        multipliers=hardware.multipliers,
        multiples=", ".join(f"{d} = {n}" for d, n in unrolled.items() if n > 1 and d in dims),
        weighted=f'input = {{ memory = "{at["I"]}"{fills} }}, weight = "{at["W"]}", '
        f'bias = {{ memory = "{at["W"]}", joined = "weight" }}, {results}',
        pooled=f'input = "{at["I"]}", {results}',
        input=at["I"],
        epilogue=f'[["add"], ["relu", "clip", "leaky_relu"], [{ends}]]',
        energy=energy,
        depthwise=_steps(("n", "c", "oh", "ow", "kh", "kw"), inner),
        wide=prod(inner.values()),
        lanes=max(hardware.lanes, 1),
        points=f'"{finish}"{linear}',
    )


def _steps(dims: tuple[str, ...], unrolled: dict[str, int]) -> str:
    """Formula of the steps over some dims, of which ``unrolled`` indices are computed at once."""
    return "*".join(f"ceil({d}/{unrolled[d]})" if unrolled.get(d, 1) > 1 else d for d in dims)


def _multiply_pj(hardware: Hardware, mac_pj: float, element: str) -> float:
    """Energy of a multiply-add: its own, and what it reads of each operand's innermost memory.

    Units that use the same element at once share a read of a memory that serves them all; of
    results, the units that add to the same one do.
    """
    total = mac_pj
    for operand in "IWO":
        level = next(x for x in reversed(hardware.levels) if operand in x.holds)
        shared = prod(hardware.unrolled.get(dim, 1) for dim in _SHARED[operand])
        pj = (level.read_pj or 0.0) + ((level.write_pj or 0.0) if operand == "O" else 0.0)
        size = 4 if operand == "O" else ELEMENTS[element][1]
        total += pj * size / (1 if level.inside else shared)
    return total
