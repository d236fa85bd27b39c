"""Tile: one kernel as loops over tiles, buffers, moves and primitives; its passes and oracle."""
