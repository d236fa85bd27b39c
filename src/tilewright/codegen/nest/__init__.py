"""The position of a tile in a tile program's loops, as expressions of the emitted C."""
