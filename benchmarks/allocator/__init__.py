"""Allocation problems in the shapes of published benchmarks, and how far from the bound we are."""
