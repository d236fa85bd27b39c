"""Channel shuffle: every vector of the result is put together of the vectors that hold its lanes.

Two vectors at a time: each further one gives the lanes that are its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.codegen.c.source import Writer
from tilewright.targets.cpu.instance import Instance
from tilewright.targets.cpu.primitives.chain import Lanes
from tilewright.targets.cpu.primitives.channels import by_channels
from tilewright.targets.cpu.primitives.code import KernelCode, function, parameters, write_call


def emit(instance: Instance, code: KernelCode, writer: Writer) -> None:
    """Write the call that moves a row of points."""
    x = instance.tensor(0)
    if any(instance.size(dim) > 1 for dim in ("n", "h")):
        raise instance.cannot("tiles hold points of one row")
    each, groups = instance.extents["a"], instance.extents["b"]
    width, lanes = instance.size("w"), instance.lanes
    step = x.stride("w", width, instance.dims)
    whole = by_channels(instance, "c")
    # Blocks of lanes lie from end to end, and memory holds whole ones.
    blocks = range(0, each * groups - lanes + 1, lanes)
    whole_vectors = x.padded("a", lanes) and all(
        x.part(1, start + lane) == x.part(1, start) + lane
        for start in blocks
        for lane in range(lanes)
    )
    remark = f"{width} points of {groups} x {each} channels"
    with function(remark, parameters(instance)) as inner:
        for start in range(0, each * groups, lanes):
            count = min(lanes, each * groups - start)
            channels = range(start, start + count)
            places = [
                x.part(1, channel % groups * each + channel // groups) for channel in channels
            ]
            with inner.block(f"for (long j = 0; j < {width}; j++)"):
                inner.line(f"const {x.c_type} *p = x + j * {step};")
                if whole_vectors:
                    _write_shuffles(inner, places, lanes)
                else:
                    listed = ", ".join(f"p[{place}]" for place in places)
                    inner.line(f"const vec t = {{{listed}{', 0.0f' * (lanes - count)}}};")
                moves = [("w", width, "j")]
                Lanes(whole, "c", str(start // lanes), count, moves).finish(inner, "t")
    write_call(instance, code, writer, "shuffle_row", inner)


def _write_shuffles(writer: Writer, places: Sequence[int], lanes: int) -> None:
    """Write the vector ``t`` of the elements at ``places``, by way of the vectors they lie in."""
    starts = sorted({place - place % lanes for place in places})
    writer.line(f"vec t = load(p + {starts[0]});")
    for number, start in enumerate(starts[1:] or starts):
        lane_of: list[str] = []
        for lane, place in enumerate(places):
            if place - place % lanes == start and start != starts[0]:
                lane_of.append(str(lanes + place % lanes))
            else:
                # Of the first vector lanes change their places once, with the second one's.
                lane_of.append(str(lane if number else place % lanes))
        listed = ", ".join([*lane_of, *["0"] * (lanes - len(places))])
        writer.line(f"t = SHUFFLE(t, load(p + {start}), {listed});")
