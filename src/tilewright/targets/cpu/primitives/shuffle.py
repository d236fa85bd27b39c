"""Channel shuffle: every vector of the result is put together of lanes that lie apart."""

from __future__ import annotations

from tilewright.targets.cpu.address import Address
from tilewright.targets.cpu.instance import Instance
from tilewright.targets.cpu.primitives.chain import PositionOf, store_at, write_chain
from tilewright.targets.cpu.primitives.channels import by_channels
from tilewright.targets.cpu.primitives.code import NAME, KernelCode, call, parameters
from tilewright.targets.cpu.source import Writer, plus


def emit(instance: Instance, code: KernelCode, writer: Writer) -> None:
    """Write the call that moves a row of points."""
    x = instance.anchor.inputs[0]
    if not isinstance(x, Address) or any(instance.size(dim) > 1 for dim in ("n", "h")):
        raise instance.cannot("tiles hold points of one row")
    each, groups = instance.extents["a"], instance.extents["b"]
    width, lanes = instance.size("w"), instance.lanes
    step = x.stride("w", width, instance.dims)
    whole = by_channels(instance, "c")
    inner = Writer()
    inner.line(f"/* {width} points of {groups} x {each} channels */")
    inner.line(f"static void {NAME}({parameters(instance)})")
    with inner.block():
        for start in range(0, each * groups, lanes):
            count = min(lanes, each * groups - start)
            places = [
                str(x.part(1, channel % groups * each + channel // groups))
                for channel in range(start, start + count)
            ]
            listed = ", ".join(f"p[{place}]" for place in places) + ", 0.0f" * (lanes - count)
            position = PositionOf(whole, "c", str(start // lanes), [("w", width, "j")])
            with inner.block(f"for (long j = 0; j < {width}; j++)"):
                inner.line(f"const float *p = x + j * {step};")
                inner.line(f"vec t = {{{listed}}};")
                name = write_chain(inner, whole, "t", "c", position, count)
                inner.line(store_at(whole, name, "c", position(whole.output), count))
    arguments = [plus(a.pointer, a.offset(instance.dims)) for a in instance.addresses]
    writer.line(call(code.function("shuffle_row", str(inner)), arguments))
