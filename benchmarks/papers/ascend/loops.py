"""Three loops on an Ascend 910B, without flags: as HIVM, and as programs of our own."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.papers.ascend.injected import COSTS, HELD, LANES, VECTOR_HEAD
from tilewright.codegen.nest.value import Value, variable
from tilewright.targets.ascend.hivm.views import Text, View, dense
from tilewright.targets.ascend.program import Buffer, Command, Loop, Place, Program, Region, Tensor

ROWS, COLUMNS, TILES = 16, 128, 64
"""Of the vector loop: of a tile, and how many tiles there are."""


@dataclass(frozen=True)
class Product:
    """A loop over tiles of results, and one over the steps of their sums within."""

    m: int
    k: int
    n: int
    tiles: int
    steps: int
    slots: int
    """Of results."""


LONG = Product(128, 64, 256, 4, 12, 1)
SHORT = Product(128, 64, 128, 8, 2, 2)


def _module(body: Text, arguments: list[View], core: str) -> str:
    parameters = ", ".join(f"{one.name}: {one.type}" for one in arguments)
    constants = [f"    {name} = {value}" for value, name in body.constants.items()]
    head = (
        f"  func.func @k({parameters}) attributes {{hacc.entry, hacc.function_kind = "
        f"#hacc.function_kind<DEVICE>, hivm.func_core_type = #hivm.func_core_type<{core}>}} {{"
    )
    lines = ["module {", head, *constants, *body.lines, "    return", "  }", "}"]
    return "\n".join(lines) + "\n"


def _argument(body: Text, name: str, sizes: tuple[int, int]) -> View:
    return View(body.name(name), sizes, dense(sizes), "f16", "gm")


def _line(body: Text, name: str, source: View, target: View) -> None:
    body.line(
        f"hivm.hir.{name} ins({source.name} : {source.type}) outs({target.name} : {target.type})"
    )


def _enter(body: Text, name: str, extent: int, step: int) -> Value:
    first, end, by = (body.index(number) for number in (0, extent, step))
    body.variables[name] = body.name(name)
    body.enter(f"scf.for {body.variables[name]} = {first} to {end} step {by}")
    return variable(name)


def vector_text() -> str:
    """Tiles loaded, exponentials taken, stored; two of each buffer."""
    body = Text()
    x, y = (_argument(body, name, (ROWS * TILES, COLUMNS)) for name in "xy")
    row = _enter(body, "i", ROWS * TILES, ROWS)
    tile = (ROWS, COLUMNS)
    a = body.allocated("a", tile, "f16", "ub", 2)
    _line(body, "load", body.part(x, [row, 0], tile), a)
    b = body.allocated("b", tile, "f16", "ub", 2)
    _line(body, "vexp", a, b)
    _line(body, "store", b, body.part(y, [row, 0], tile))
    body.leave()
    return _module(body, [x, y], "AIV")


def product_text(shape: Product) -> str:
    """Operands to L1, two of each; their product; results to main memory."""
    body = Text()
    m, k, n = shape.m, shape.k, shape.n
    rows, depth = m * shape.tiles, k * shape.steps
    x, w, y = (
        _argument(body, name, sizes)
        for name, sizes in (("x", (rows, depth)), ("w", (depth, n)), ("y", (rows, n)))
    )
    row = _enter(body, "i", rows, m)
    c = body.allocated("c", (n // 16, m // 16, 16, 16), "f32", "cc", shape.slots)
    step = _enter(body, "j", depth, k)
    a = body.allocated("a", (k // 16, m // 16, 16, 16), "f16", "cbuf", 2)
    b = body.allocated("b", (n // 16, k // 16, 16, 16), "f16", "cbuf", 2)
    _line(body, "nd2nz {dst_continuous}", body.part(x, [row, step], (m, k)), a)
    _line(body, "nd2nz {dst_continuous}", body.part(w, [step, 0], (k, n)), b)
    names = [a.name, b.name, body.first([step]), *(body.index(size) for size in (m, k, n))]
    body.line(
        f"hivm.hir.mmadL1 ins({', '.join(names)} : {a.type}, {b.type}, i1, index, index, index) "
        f"outs({c.name} : {c.type})"
    )
    body.leave()
    move = (
        "fixpipe {dma_mode = #hivm.dma_mode<nz2nd>, "
        "pre_quant = #hivm.fixpipe_pre_quant_mode<F322F16>}"
    )
    _line(body, move, c, body.part(y, [row, 0], (m, n)))
    body.leave()
    return _module(body, [x, w, y], "AIC")


def _buffer(name: str, memory: str, size: int, slots: int, turn: Value, scope: Loop) -> Buffer:
    slot = turn % slots if slots > 1 else 0
    return Buffer(name, memory, 0, size, slots, slot, scope)


def vector_program() -> Program:
    """The same, for our own flags."""
    size = ROWS * COLUMNS * 2
    x, y = Tensor("x", size * TILES), Tensor("y", size * TILES, written=True)
    loop = Loop("i", TILES)
    a, b = (_buffer(name, "ub", size, 2, loop.variable, loop) for name in "ab")
    b.address = 2 * size
    place = loop.variable * size
    cycles = VECTOR_HEAD + ROWS * COLUMNS // LANES * COSTS["vexp"]
    loop.body = [
        _moved("load", "MTE2", Region(Place(x, place), size), Region(Place(a), size)),
        _moved("vexp", "V", Region(Place(a), size), Region(Place(b), size), cycles),
        _moved("store", "MTE3", Region(Place(b), size), Region(Place(y, place), size)),
    ]
    return Program("vector", (x, y), [loop], (a, b))


def _moved(name: str, pipe: str, source: Region, target: Region, cycles: int = 0) -> Command:
    return Command(name, pipe, (), (source,), (target,), None, cycles)


def product_program(shape: Product) -> Program:
    """The same, ``mmadL1`` as loads to L0 and a product."""
    m, k, n = shape.m, shape.k, shape.n
    row, sizes = k * shape.steps * 2, {"a": m * k * 2, "b": k * n * 2, "c": m * n * 4}
    x, w = Tensor("x", m * shape.tiles * row), Tensor("w", k * shape.steps * n * 2)
    y = Tensor("y", m * shape.tiles * n * 2, written=True)
    tile, step = Loop("i", shape.tiles), Loop("j", shape.steps)
    turn = step.variable + tile.variable * shape.steps
    a, b, ca, cb = (
        _buffer(name, memory, sizes[name[-1]], 2, turn, step)
        for name, memory in (("a", "cbuf"), ("b", "cbuf"), ("l0a", "ca"), ("l0b", "cb"))
    )
    b.address = 2 * sizes["a"]
    c = _buffer("c", "cc", sizes["c"], shape.slots, tile.variable, tile)
    of_x = Place(x, tile.variable * (m * row) + step.variable * (k * 2))
    of_w = Place(w, step.variable * sizes["b"])
    blocks = -(-m // 16) * -(-k // 16) * -(-n // 16)
    step.body = [
        _moved("nd2nz", "MTE2", Region(of_x, k * 2, (m,), (row,)), Region(Place(a), a.bytes)),
        _moved("nd2nz", "MTE2", Region(of_w, b.bytes), Region(Place(b), b.bytes)),
        _moved("load", "MTE1", Region(Place(a), a.bytes), Region(Place(ca), a.bytes)),
        _moved("load", "MTE1", Region(Place(b), b.bytes), Region(Place(cb), b.bytes)),
        Command(
            "mad",
            "M",
            (),
            (Region(Place(ca), a.bytes), Region(Place(cb), b.bytes)),
            (Region(Place(c), c.bytes),),
            HELD,
            blocks,
        ),
    ]
    result = Region(Place(y, tile.variable * (m * n * 2)), m * n * 2)
    # A transfer of sums takes what the halves that arrive do.
    tile.body = [step, _moved("fixpipe", "FIX", Region(Place(c), c.bytes // 2), result)]
    return Program("product", (x, w, y), [tile], (a, b, ca, cb, c))


LOOPS = {
    "exponentials": (vector_text(), vector_program()),
    "product (128, 64, 256), 12 steps": (product_text(LONG), product_program(LONG)),
    "product (128, 64, 128), 2 steps": (product_text(SHORT), product_program(SHORT)),
}
"""Name -> text in HIVM, program."""
