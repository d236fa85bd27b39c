"""Local response normalisation: a reduction kept whole in the tile, then a map."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tilewright.codegen.c.source import Writer, literal, plus
from tilewright.targets.cpu.instance import Instance
from tilewright.targets.cpu.primitives.chain import Lanes
from tilewright.targets.cpu.primitives.code import (
    KernelCode,
    function,
    parameters,
    write_call,
    write_vectors,
)

TOGETHER = 4
"""Points whose squares are made before the first is used: reading across what has just been
written waits until it is in the cache."""


def emit_lrn(instance: Instance, code: KernelCode, writer: Writer) -> None:
    """Write the call that normalises the points of one row across all channels."""
    if any(instance.size(dim) > 1 for dim in ("n", "h")):
        raise instance.cannot("tiles hold points of one row")
    if instance.size("c") < instance.extents["c"]:
        raise instance.cannot("tiles hold all channels")
    # The point's own channels, beside the window over channels.
    x = replace(instance.tensor(0), window=instance.anchor.result.window)
    lanes, channels, points = instance.lanes, instance.size("c"), instance.size("w")
    attributes = instance.anchor.attributes
    size = int(attributes["size"])
    before = (size - 1) // 2
    blocks = -(-channels // lanes)
    # The squares of all channels of a point, with zeros before and after them.
    length = -(-(blocks * lanes + size) // lanes) * lanes

    def each(inner: Writer, block: str, count: int) -> None:
        channels_of = Lanes(instance, "c", block, count, [("w", points, "p")])
        inner.line("vec s = splat(0.0f);")
        inner.line(f"UNROLL for (int j = 0; j < {size}; j++)")
        inner.line(f"    s += load(own + {block} * {lanes} + j);")
        alpha = literal(float(attributes["alpha"]) / size)
        inner.line(f"s = s * {alpha} + {literal(float(attributes['bias']))};")
        value = channels_of.load(x)
        beta = float(attributes["beta"])
        if beta == 0.75 and float(attributes["bias"]) > 0 <= float(attributes["alpha"]):
            inner.line(f"vec t = {value} * inverse_three_quarters_v(s);")
        elif beta == 0.75:
            inner.line("s = sqrt_v(s);")
            inner.line(f"vec t = {value} / (s * sqrt_v(s));")
        elif beta == 0.5:
            inner.line(f"vec t = {value} / sqrt_v(s);")
        else:
            inner.line(f"vec t = {value} * pow_v(s, splat({literal(-beta)}));")
        channels_of.finish(inner, "t")

    def square(inner: Writer, block: str, count: int) -> None:
        channels_of = Lanes(instance, "c", block, count, [("w", points, "p")])
        if count == lanes:
            value = channels_of.load(x)
        else:
            # What lies in memory past the last channel is not a channel's.
            value = f"load_part({plus('x', channels_of.place(x))}, {count})"
            if count > 1 and x.stride("c", min(channels, lanes), instance.dims) != 1:
                value = channels_of.load(x)
        inner.line(f"const vec v = {value};")
        inner.line(f"store(own + {before} + {block} * {lanes}, v * v);")

    with function(f"{points} points of {channels} channels", parameters(instance)) as inner:
        inner.line(f"float squares[{TOGETHER}][{length}] = {{{{0}}}};")
        with inner.block(f"for (long first = 0; first < {points}; first += {TOGETHER})"):
            inner.line(f"const long left = {points} - first;")
            inner.line(f"const long end = first + (left < {TOGETHER} ? left : {TOGETHER});")
            for write in (square, each):
                with inner.block("for (long p = first; p < end; p++)"):
                    inner.line("float *own = squares[p - first];")
                    write_vectors(inner, channels, lanes, partial(write, inner), name="c")
    whole = replace(instance, steps=(replace(instance.anchor, inputs=(x,)), *instance.steps[1:]))
    write_call(whole, code, writer, "lrn_tile", inner)
