"""The space of schedules of a kernel: sizes, tilings, nests, and what operands take of memories."""
