"""The cost of schedules: cycles, traffic, and the bounds below them."""
