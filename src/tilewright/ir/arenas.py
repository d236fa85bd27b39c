"""Names of the arenas in main memory; a memory of a machine may be called so, too."""

ACTIVATIONS = "activations"
"""Arena of all values that a run computes, and of the network's inputs and outputs."""

WEIGHTS = "weights"
"""Arena of the network's constants, packed in the layouts of their types."""
TEMPORARY = "temporary"
"""The end of the activations, where it is a space of its own: placements count from their start."""
