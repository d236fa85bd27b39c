"""Names of the arenas in main memory; a memory of a machine may be called so, too."""

ACTIVATIONS = "activations"
"""Arena of all values that a run computes, and of the network's inputs and outputs."""

WEIGHTS = "weights"
"""Arena of the network's constants, packed in the layouts of their types."""
