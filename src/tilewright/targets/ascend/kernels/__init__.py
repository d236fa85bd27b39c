"""Kernels as programs: products, changes of format, elementwise operations."""
