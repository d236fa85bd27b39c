"""``greedy``: node by node in the graph's order, the group that saves most from there on."""

from __future__ import annotations

from tilewright.network.fusion.search.cover import Cover, Selection


def greedy(cover: Cover) -> Selection:
    """A selection; never worse than fusing nothing.

    At each node that is still free, of the groups that begin there and hold only free nodes, the
    one that saves most is taken. It is what DNNVM (section 4.3, Fig. 8b) compares with: a first
    fusion that saves little may keep a later one from saving much.
    """
    firsts = {number: cover.groups[number].vertices[0] for number in cover.useful}
    order = sorted(cover.useful, key=lambda number: (firsts[number], -cover.gain(number), number))
    return cover.first_disjoint(order)
