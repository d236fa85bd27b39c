"""Base registers of compiled programs: which region of main memory lies behind each."""

from tilewright.graph.placement import ACTIVATIONS, WEIGHTS

BIASES = "biases"
"""The image of biases as bytes (lowering/network.py)."""

REGISTERS = {WEIGHTS: 0, BIASES: 1, ACTIVATIONS: 2}
