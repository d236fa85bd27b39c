"""Scheduling of kernels against each other: on-chip residency, refinement of schedules."""
