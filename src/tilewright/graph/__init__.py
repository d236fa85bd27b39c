"""Graph: the whole network as an xDSL dialect, its interpreter, and the passes over it."""
