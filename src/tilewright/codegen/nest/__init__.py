"""Where a tile lies in the loops of a tile program, as expressions of the C that is emitted."""
