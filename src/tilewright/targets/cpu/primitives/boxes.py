"""Non-maximum suppression: boxes of one class in order of their scores, beside those chosen."""

from __future__ import annotations

from tilewright.codegen.c.source import Writer
from tilewright.targets.cpu.instance import Instance
from tilewright.targets.cpu.primitives.code import KernelCode, function, parameters, write_call
from tilewright.targets.cpu.primitives.general import element_offset
from tilewright.targets.cpu.primitives.rows import write_merges


def emit(instance: Instance, code: KernelCode, writer: Writer) -> None:
    """Write the call of the function that chooses the boxes of one class."""
    outer = ("d0", "d1")
    whole = all(instance.size(dim) == instance.extents[dim] for dim in ("m", "s", "r"))
    if any(instance.size(dim) > 1 for dim in outer) or not whole:
        raise instance.cannot("tiles hold one class")
    count, most = instance.size("m"), instance.size("r")
    boxes, scores, threshold = instance.tensors
    center = bool(instance.anchor.attributes.get("center"))

    def side(number: int, place: str) -> str:
        index = {"s": str(number), **({"m": place} if count > 1 else {})}
        return f"{boxes.pointer}[{element_offset(instance, boxes, index)}]"

    def score(place: str) -> str:
        index = {"m": place} if count > 1 else {}
        return f"{scores.pointer}[{element_offset(instance, scores, index)}]"

    with function(f"{count} boxes", parameters(instance)) as inner:
        inner.line(f"int32_t places[2][{count}];")
        inner.line(f"float chosen[{most}][5];")
        inner.line("long here = 0, found = 0;")
        with inner.block(f"for (long i = 0; i < {count}; i++)"):
            inner.line(f"if ({score('i')} > -INFINITY)")
            inner.line("    places[0][here++] = (int32_t)i;")
        write_merges(inner, "here", f"{score('from[b]')} > {score('from[a]')}")
        with inner.block(f"for (long i = 0; i < here && found < {most}; i++)"):
            inner.line("const long p = places[now][i];")
            inner.line("float c[5];")
            for axis in range(2):
                one, other = side(axis, "p"), side(axis + 2, "p")
                if center:
                    half = f"{other} * 0.5f"
                    one, other = f"{one} - {half}", f"{one} + {half}"
                with inner.block():
                    inner.line(f"const float a = {one}, b = {other};")
                    inner.line(f"c[{axis}] = a < b ? a : b;")
                    inner.line(f"c[{axis + 2}] = a < b ? b : a;")
            inner.line("c[4] = (c[2] - c[0]) * (c[3] - c[1]);")
            inner.line("int out = 0;")
            with inner.block("for (long k = 0; k < found && !out; k++)"):
                inner.line("const float *o = chosen[k];")
                for axis, name in enumerate("hw"):
                    low = f"(o[{axis}] > c[{axis}] ? o[{axis}] : c[{axis}])"
                    high = f"(o[{axis + 2}] < c[{axis + 2}] ? o[{axis + 2}] : c[{axis + 2}])"
                    inner.line(f"float {name} = {high} - {low};")
                    inner.line(f"{name} = {name} > 0 ? {name} : 0;")
                inner.line("const float shared = h * w;")
                limit = f"{threshold.pointer}[{element_offset(instance, threshold, {})}]"
                inner.line(f"out = shared / (o[4] + c[4] - shared) > {limit};")
            with inner.block("if (!out)"):
                inner.line("for (int k = 0; k < 5; k++)")
                inner.line("    chosen[found][k] = c[k];")
                _store(inner, instance, "found++", "p")
        with inner.block(f"for (long i = found; i < {most}; i++)"):
            _store(inner, instance, "i", "-1")
    write_call(instance, code, writer, "suppressed_boxes", inner)


def _store(inner: Writer, instance: Instance, place: str, value: str) -> None:
    index = {"r": "r"} if instance.size("r") > 1 else {}
    with inner.block():
        inner.line(f"const long r = {place};")
        if not index:
            inner.line("(void)r;")
        output = instance.output
        inner.line(f"{output.pointer}[{element_offset(instance, output, index)}] = {value};")
