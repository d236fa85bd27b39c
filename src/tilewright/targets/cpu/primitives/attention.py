"""Attention of a block of queries of one head: scores never leave the cache.

Queries run along the lanes. Their scores against a block of keys are a register-tiled product of
the transposed queries and the keys as they lie; maxima, exponentials and sums go lane by lane; the
product with the values has one query a row again. With more keys than one block holds, earlier
blocks' results shrink as the maximum grows (Milakov and Gimelshein, "Online normalizer calculation
for softmax", 2018; Dao et al., "FlashAttention", 2022).
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from math import ceil

from tilewright.codegen.c.address import Address
from tilewright.codegen.c.source import Writer, literal, plus
from tilewright.targets.cpu.instance import Instance
from tilewright.targets.cpu.planning.blocks import register_tiles, runs_of
from tilewright.targets.cpu.primitives.block_products import register_tile, write_products
from tilewright.targets.cpu.primitives.chain import Lanes, loaded
from tilewright.targets.cpu.primitives.code import (
    KernelCode,
    call,
    function,
    parameters,
    write_call,
)

KEYS = 256
"""Most keys of a block: their scores fill the larger part of a first cache, or of a second."""


def emit(instance: Instance, code: KernelCode, writer: Writer) -> None:
    """Write the call that computes a block of queries."""
    block = _Block.of(instance)
    text = _block_text(block, code)
    more = [instance.ends["t"]] if block.ended else []
    write_call(instance, code, writer, "attention_block", text, more)


@dataclass(frozen=True)
class _Block:
    """One instance: its operands, and sizes."""

    instance: Instance
    q: Address
    k: Address
    v: Address
    mask: Address | None

    @classmethod
    def of(cls, instance: Instance) -> _Block:
        """Read an instance; a block is of one head and all its keys."""
        operands = instance.tensors
        whole = all(instance.size(dim) == instance.extents[dim] for dim in ("e", "t", "d"))
        if instance.size("b0") != 1 or instance.size("b1") != 1 or not whole:
            raise instance.cannot("a block is of one head and all its keys")
        mask = operands[3] if len(operands) > 3 else None
        return cls(instance, operands[0], operands[1], operands[2], mask)

    @property
    def ended(self) -> bool:
        """True if a run may have fewer keys."""
        return "t" in self.instance.ends

    @property
    def vectors(self) -> int:
        """The number of vectors of queries."""
        return ceil(self.instance.size("m") / self.instance.lanes)

    @property
    def width(self) -> int:
        """Queries, lanes that are left over included."""
        return self.vectors * self.instance.lanes

    @property
    def parts(self) -> int:
        """Vectors of a value."""
        return ceil(self.instance.size("e") / self.instance.lanes)

    @property
    def blocks(self) -> list[int]:
        """Keys of every block."""
        return register_tiles(self.instance.extents["t"], KEYS)

    def step(self, operand: Address, dim: str) -> int:
        """Return an operand's constant stride along a dim; refuse operands that have none."""
        return self.instance.step(operand, dim, self.instance.size(dim))

    def most(self, vectors: int) -> int:
        """Points of the largest register tile with ``vectors`` vectors."""
        # As planning counts: AVX-512 broadcasts from memory, and has 32 registers.
        count, broadcast = (32, 0) if self.instance.lanes >= 16 else (15, 1)
        return max((count - broadcast - vectors) // vectors, 1)


def _block_text(block: _Block, code: KernelCode) -> str:
    instance, width, lanes = block.instance, block.width, block.instance.lanes
    m, d, t = (instance.size(dim) for dim in ("m", "d", "t"))
    blocks = block.blocks
    q = block.q.pointer
    most = f"up to {t}" if block.ended else str(t)
    keys = ["long keys"] if block.ended else []
    with function(f"{m} queries, {most} keys", parameters(instance, keys)) as writer:
        # Queries side by side, as the lanes take them, and scaled; lanes left over are 0.
        zero = " = {0}" if width > m else ""
        writer.line(f"float queries[{d * width}]{zero};")
        writer.line(f"float scores[{max(blocks) * width}], o[{m * block.parts * lanes}];")
        writer.line(f"vec most[{block.vectors}], sum[{block.vectors}];")
        writer.line(f"for (long j = 0; j < {m}; j++)")
        at = f"{q}[j * {block.step(block.q, 'm')} + i * {block.step(block.q, 'd')}]"
        scale = literal(float(instance.anchor.attributes.get("scale", 1.0)))
        writer.line(f"    for (long i = 0; i < {d}; i++)")
        writer.line(f"        queries[i * {width} + j] = {at} * {scale};")
        start = 0
        for number, size in enumerate(blocks):
            with ExitStack() as within:
                if block.ended and start:
                    within.enter_context(writer.block(f"if (keys > {start})"))
                _write_keys(writer, block, code, number, start, size)
            start += size
        writer.line("float total[LANES];")
        for v in range(block.vectors):
            rows = min(lanes, m - v * lanes)
            writer.line(f"store(total, 1.0f / sum[{v}]);")
            with writer.block(f"for (long j = 0; j < {rows}; j++)"):
                _write_result(writer, block, f"(j + {v * lanes})" if v else "j")
    return str(writer)


def _write_result(writer: Writer, block: _Block, row: str) -> None:
    """Divide a query's row by its sum, apply the rest of the chain, write it."""
    instance, lanes = block.instance, block.instance.lanes
    for number in range(block.parts):
        count = min(lanes, instance.size("e") - number * lanes)
        lanes_of = Lanes(instance, "e", str(number), count, [("m", instance.size("m"), row)])
        with writer.block():
            at = f"o + {row} * {block.parts * lanes} + {number * lanes}"
            writer.line(f"vec t = load({at}) * total[j];")
            lanes_of.finish(writer, "t")


def _write_keys(
    writer: Writer, block: _Block, code: KernelCode, number: int, start: int, size: int
) -> None:
    """One block of keys: scores, exponentials, and the product with the values."""
    instance, width, lanes = block.instance, block.width, block.instance.lanes
    k = plus(block.k.pointer, str(start * block.step(block.k, "t")))
    v = plus(block.v.pointer, str(start * block.step(block.v, "t")))
    scores = code.function("attention_scores", _scores_text(block, size))
    writer.line(call(scores, ["queries", k, "scores"]))
    count = str(size)
    if block.ended:
        # Scores of what lies after the end are of no value: neither they nor values are read.
        count = f"count{number}"
        writer.line(f"const long {count} = keys - {start} < {size} ? keys - {start} : {size};")
    first = number == 0
    for part in range(block.vectors):
        with writer.block():
            place = f"scores + j * {width} + {part * lanes}"
            writer.line("vec top = splat(-INFINITY), s = splat(0.0f);")
            with writer.block(f"for (long j = 0; j < {count}; j++)"):
                writer.line(f"vec x = load({place});")
                if block.mask is not None:
                    writer.line(f"x += {_mask(block, part, start)};")
                    writer.line(f"store({place}, x);")
                writer.line("top = larger(x, top);")
            if not first:
                writer.line(f"top = larger(most[{part}], top);")
            # Where all is masked so far, nothing is subtracted.
            writer.line("const vec base = choose(top == -INFINITY, splat(0.0f), top);")
            with writer.block(f"for (long j = 0; j < {count}; j++)"):
                writer.line(f"const vec e = exp_low_v(load({place}) - base);")
                writer.line(f"store({place}, e);")
                writer.line("s += e;")
            if first:
                writer.line(f"sum[{part}] = s;")
            else:
                writer.line(f"const vec shrink = exp_low_v(most[{part}] - base);")
                writer.line(f"sum[{part}] = sum[{part}] * shrink + s;")
                rows = min(lanes, instance.size("m") - part * lanes)
                row = block.parts * lanes
                writer.line("float by[LANES];")
                writer.line("store(by, shrink);")
                writer.line(f"for (long j = 0; j < {rows}; j++)")
                writer.line(f"    for (long i = 0; i < {row}; i++)")
                writer.line(f"        o[(j + {part * lanes}) * {row} + i] *= by[j];")
            if number < len(block.blocks) - 1:
                writer.line(f"most[{part}] = top;")
    if number == 0 and len(block.blocks) == 1:
        writer.line("(void)most;")
    mixed = code.function("attention_values", _values_text(block, size, first))
    writer.line(call(mixed, ["scores", v, "o", *([count] if block.ended else [])]))


def _mask(block: _Block, part: int, start: int) -> str:
    """C expression of the mask's vector for key ``start + j`` and the queries of a vector."""
    instance, mask = block.instance, block.mask
    assert mask is not None
    along, across = (block.step(mask, dim) if dim in mask.dims() else 0 for dim in ("t", "m"))
    place = plus(mask.pointer, f"(j + {start}) * {along}" if along else "0")
    if not across:
        return f"splat(*({place}))"
    count = min(block.instance.lanes, instance.size("m") - part * block.instance.lanes)
    place = plus(place, str(part * block.instance.lanes * across))
    return f"gather({place}, {across}, {count})"


def _scores_text(block: _Block, size: int) -> str:
    """Scores of ``size`` keys: each key's elements against the queries."""
    width, lanes, vectors = block.width, block.instance.lanes, block.vectors
    depth = block.instance.extents["d"]
    step, inner = block.step(block.k, "t"), block.step(block.k, "d")
    remark = f"{size} keys x {vectors} vectors of queries"
    with function(remark, "const float *q, const float *k, float *s") as writer:
        for points, times, start, _ in runs_of(register_tiles(size, block.most(vectors))):
            with writer.block(f"for (long p = 0; p < {times}; p++)"):
                writer.line(f"const float *kp = k + (p * {points} + {start}) * {step};")
                writer.line(f"float *sp = s + (p * {points} + {start}) * {width};")
                places = [f"sp + j * {width} + {v * lanes}" for v in range(vectors)]
                weights = [f"load(q + i * {width} + {v * lanes})" for v in range(vectors)]
                with (
                    register_tile(writer, points, ["splat(0.0f)"] * vectors, places),
                    writer.block(f"for (long i = 0; i < {depth}; i++)"),
                ):
                    write_products(writer, points, weights, f"kp[j * {step} + i * {inner}]")
    return str(writer)


def _values_text(block: _Block, size: int, first: bool) -> str:
    """Add ``size`` keys' values, weighted by their scores, to every query's row."""
    instance, width, lanes = block.instance, block.width, block.instance.lanes
    step, row = block.step(block.v, "t"), block.parts * lanes
    inner = block.v.stride("e", min(instance.size("e"), lanes), instance.dims)
    keys, taken = ("keys", ", long keys") if block.ended else (str(size), "")
    with function(f"{size} keys", f"const float *s, const float *v, float *o{taken}") as writer:
        for begin in range(0, block.parts, 4):
            vectors = min(4, block.parts - begin)
            weights: list[str] = []
            for n in range(begin, begin + vectors):
                count = min(lanes, instance.size("e") - n * lanes)
                place = f"v + i * {step} + {n * lanes * (inner or 1)}"
                weights.append(loaded(instance, "", place, count, inner))
            for points, times, start, _ in runs_of(
                register_tiles(instance.size("m"), block.most(vectors))
            ):
                with writer.block(f"for (long p = 0; p < {times}; p++)"):
                    writer.line(f"const float *sp = s + p * {points} + {start};")
                    place = f"(p * {points} + {start}) * {row} + {begin * lanes}"
                    writer.line(f"float *op = o + {place};")
                    places = [f"op + j * {row} + {n * lanes}" for n in range(vectors)]
                    starts = ["splat(0.0f)" if first else f"load({place})" for place in places]
                    with (
                        register_tile(writer, points, starts, places),
                        writer.block(f"for (long i = 0; i < {keys}; i++)"),
                    ):
                        write_products(writer, points, weights, f"sp[i * {width} + j]")
    return str(writer)
