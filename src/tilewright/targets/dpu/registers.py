"""Base registers of compiled programs: which region of main memory each of them addresses."""

from tilewright.graph.placement import ACTIVATIONS, WEIGHTS

BIASES = "biases"
"""The image of biases as bytes (lowering/network.py)."""

GUARD = 64
"""Bytes before the activations, and after them, that LOADs of rows with padding may reach.

What they read there is not used.
"""

REGISTERS = {WEIGHTS: 0, BIASES: 1, ACTIVATIONS: 2}
