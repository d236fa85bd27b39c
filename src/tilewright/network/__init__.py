"""Scheduling of kernels against each other: on-chip residency."""
