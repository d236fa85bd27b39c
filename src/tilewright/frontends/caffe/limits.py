"""Bounds on what a model may ask for, so that a hostile file costs neither time nor memory."""

MAX_TEXT_BYTES = 2**24
"""The size limit of a prototxt; the largest published ones have a few hundred kilobytes."""

MAX_WEIGHT_BYTES = 2**36
"""The size limit of a caffemodel; protobuf itself stops at 2**31 - 1."""

MAX_FIELDS = 2**20
"""Fields of a caffemodel that are looked at; arrays are one each."""

MAX_LAYERS = 20_000
"""Layers of a network, and of a caffemodel."""

MAX_BLOBS = 64
"""Parameter blobs, bottoms or tops of one layer."""

MAX_SEEDED_ELEMENTS = 2**29
"""Weights that are made up, in all, where there is no caffemodel."""
