"""Bounds on what a model may ask for, so that a hostile file costs neither time nor memory."""

MAX_NODES = 50_000
"""xDSL handles this many operations at ease."""

MAX_OPERANDS = 1024
"""The most inputs, and the most outputs, of one node: each may become a kernel."""

MAX_DIMENSIONS = 16
"""Axes of one tensor."""

MAX_CONSTANT_ELEMENTS = 2**28
"""The most elements of one constant that nodes make."""

MAX_FOLDED_BYTES = 2**31
"""The bytes that evaluating constant nodes at import may produce in all."""

MAX_DEPTH = 16
"""The greatest depth of nested graphs: branches, loops, definitions of operators."""

MAX_TEXT = 512
"""Characters of an attribute that ONNX's own shape inference takes, as an Einsum's equation: it
needs more than linear time for it."""
