"""Tiles whose channels are counted by two dims (groups, and channels of a group), seen by one."""

from __future__ import annotations

from dataclasses import replace

from tilewright.codegen.c.address import Address, Extent
from tilewright.planning.domain import Affine
from tilewright.targets.cpu.instance import Instance


def by_channels(instance: Instance, name: str) -> Instance:
    """The instance with its output's channels (axis 1) counted by the dim ``name`` alone.

    Operands that run along the output's channels follow; so do bias and weights.
    """
    channel, count = instance.output.window[1], instance.output.shape[1]
    if any(instance.size(dim) < instance.extents[dim] for dim in channel.dims):
        raise instance.cannot("tiles hold all channels")

    def seen(address: Address) -> Address:
        window = tuple(Affine(((name, 1),)) if axis == channel else axis for axis in address.window)
        return replace(address, window=window)

    steps = tuple(
        replace(
            step,
            inputs=tuple(seen(o) if isinstance(o, Address) else o for o in step.inputs),
            result=seen(step.result),
        )
        for step in instance.steps
    )
    kept = {dim: extent for dim, extent in instance.dims.items() if dim not in channel.dims}
    return replace(
        instance,
        steps=steps,
        output=seen(instance.output),
        dims={**kept, name: Extent(0, count)},
        extents={**instance.extents, name: count},
    )


def vectors_of(instance: Instance, name: str) -> list[Instance]:
    """The instance cut into single vectors of the channels that ``by_channels`` named."""
    count, lanes = instance.extents[name], instance.lanes
    return [
        replace(
            instance,
            dims={**instance.dims, name: Extent(start, min(lanes, count - start), (start,))},
        )
        for start in range(0, count, lanes)
    ]
