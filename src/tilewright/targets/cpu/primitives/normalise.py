"""Local response normalisation and softmax: a reduction kept whole in the tile, then a map."""

from __future__ import annotations

from dataclasses import replace

from tilewright.targets.cpu.address import Address
from tilewright.targets.cpu.instance import Instance
from tilewright.targets.cpu.primitives.chain import PositionOf, store_at, vector_at, write_chain
from tilewright.targets.cpu.primitives.code import NAME, KernelCode, call, parameters
from tilewright.targets.cpu.source import Writer, literal, plus


def _call(instance: Instance, code: KernelCode, writer: Writer, text: str) -> None:
    arguments = [plus(a.pointer, a.offset(instance.dims)) for a in instance.addresses]
    writer.line(call(code.function(f"{instance.anchor.operation}_tile", text), arguments))


def emit_lrn(instance: Instance, code: KernelCode, writer: Writer) -> None:
    """Write the call that normalises the points of one row across all channels."""
    x = instance.anchor.inputs[0]
    if not isinstance(x, Address) or any(instance.size(dim) > 1 for dim in ("n", "h")):
        raise instance.cannot("tiles hold points of one row")
    if instance.size("c") < instance.extents["c"]:
        raise instance.cannot("tiles hold all channels")
    # The point's own channels, beside the window over channels.
    x = replace(x, window=instance.anchor.result.window)
    lanes, channels = instance.lanes, instance.size("c")
    attributes = instance.anchor.attributes
    size = int(attributes["size"])
    before = (size - 1) // 2
    blocks = -(-channels // lanes)
    inner = Writer()
    inner.line(f"/* {instance.size('w')} points of {channels} channels */")
    inner.line(f"static void {NAME}({parameters(instance)})")
    # The squares of all channels of a point, with zeros before and after them.
    length = -(-(blocks * lanes + size) // lanes) * lanes

    def each(count: int, block: str) -> None:
        positions = PositionOf(instance, "c", block, [("w", instance.size("w"), "p")])
        inner.line("vec s = splat(0.0f);")
        inner.line(f"for (int j = 0; j < {size}; j++)")
        inner.line(f"    s += load(squares + {block} * {lanes} + j);")
        alpha = literal(float(attributes["alpha"]) / size)
        inner.line(f"s = s * {alpha} + {literal(float(attributes['bias']))};")
        value = vector_at(instance, x, "c", positions(x), count)
        beta = float(attributes["beta"])
        if beta == 0.75:
            inner.line("s = sqrt_v(s);")
            inner.line(f"vec t = {value} / (s * sqrt_v(s));")
        elif beta == 0.5:
            inner.line(f"vec t = {value} / sqrt_v(s);")
        else:
            inner.line(f"vec t = {value} * pow_v(s, splat({literal(-beta)}));")
        name = write_chain(inner, instance, "t", "c", positions, count)
        inner.line(store_at(instance, name, "c", positions(instance.output), count))

    def square(count: int, block: str) -> None:
        positions = PositionOf(instance, "c", block, [("w", instance.size("w"), "p")])
        if count == lanes:
            value = vector_at(instance, x, "c", positions(x), count)
        else:
            # What lies in memory past the last channel is not a channel's.
            value = f"load_part({plus('x', positions(x))}, {count})"
            if count > 1 and x.stride("c", min(channels, lanes), instance.dims) != 1:
                value = vector_at(instance, x, "c", positions(x), count)
        inner.line(f"const vec v = {value};")
        inner.line(f"store(squares + {before} + {block} * {lanes}, v * v);")

    full, rest = divmod(channels, lanes)
    with inner.block():
        inner.line(f"float squares[{length}] = {{0}};")
        with inner.block(f"for (long p = 0; p < {instance.size('w')}; p++)"):
            for write in (square, each):
                if full:
                    with inner.block(f"for (long c = 0; c < {full}; c++)"):
                        write(lanes, "c")
                if rest:
                    with inner.block():
                        write(rest, str(full))
    whole = replace(instance, steps=(replace(instance.anchor, inputs=(x,)), *instance.steps[1:]))
    _call(whole, code, writer, str(inner))


def emit_softmax(instance: Instance, code: KernelCode, writer: Writer) -> None:
    """Write the call that normalises one row along the axis."""
    x, y = instance.anchor.inputs[0], instance.output
    count = instance.size("axis")
    outer = [dim for dim in instance.dims if dim != "axis"]
    if not isinstance(x, Address) or any(instance.size(dim) > 1 for dim in outer):
        raise instance.cannot("tiles hold one row of the axis")
    inner = Writer()
    inner.line(f"/* {count} elements */")
    inner.line(f"static void {NAME}({parameters(instance)})")
    steps = [a.stride("axis", count, instance.dims) for a in (x, y)]
    lanes = instance.lanes
    with inner.block():
        single = x.element == "float32" and len(instance.steps) == 1
        if steps == [1, 1] and single and count >= lanes:
            _softmax_vectors(inner, count, lanes)
        else:
            _softmax_elements(inner, instance, x, count)
    _call(instance, code, writer, str(inner))


def _softmax_vectors(inner: Writer, count: int, lanes: int) -> None:
    full, rest = divmod(count, lanes)
    inner.line("vec m = splat(-INFINITY), s = splat(0.0f);")
    inner.line("float most, sum = 0.0f;")
    with inner.block(f"for (long i = 0; i < {full}; i++)"):
        inner.line(f"m = max_v(load(x + i * {lanes}), m);")
    inner.line("most = m[0];")
    inner.line("for (int i = 1; i < LANES; i++)")
    inner.line("    most = max_s(most, m[i]);")
    if rest:
        inner.line(f"for (long i = {full * lanes}; i < {count}; i++)")
        inner.line("    most = max_s(most, x[i]);")
    with inner.block(f"for (long i = 0; i < {full}; i++)"):
        inner.line(f"const vec e = exp_v(load(x + i * {lanes}) - most);")
        inner.line("s += e;")
        inner.line(f"store(y + i * {lanes}, e);")
    inner.line("for (int i = 0; i < LANES; i++)")
    inner.line("    sum += s[i];")
    if rest:
        with inner.block(f"for (long i = {full * lanes}; i < {count}; i++)"):
            inner.line("y[i] = expf(x[i] - most);")
            inner.line("sum += y[i];")
    inner.line(f"for (long i = 0; i < {count}; i++)")
    inner.line("    y[i] /= sum;")


def _softmax_elements(inner: Writer, instance: Instance, x: Address, count: int) -> None:
    from tilewright.targets.cpu.primitives.general import element_offset, write_scalar_chain

    at = {"axis": "i"} if count > 1 else {}
    source = f"x[{element_offset(instance, x, at)}]"
    kind, form = ("double", "d") if x.element == "float64" else ("float", "s")
    inner.line(f"{kind} most = -INFINITY, sum = 0;")
    inner.line(f"for (long i = 0; i < {count}; i++)")
    inner.line(f"    most = max_{form}(most, {source});")
    inner.line(f"for (long i = 0; i < {count}; i++)")
    inner.line(f"    sum += exp_{form}({source} - most);")
    with inner.block(f"for (long i = 0; i < {count}; i++)"):
        inner.line(f"const {kind} t = exp_{form}({source} - most) / sum;")
        name = write_scalar_chain(inner, instance, "t", at)
        inner.line(f"y[{element_offset(instance, instance.output, at)}] = {name};")
