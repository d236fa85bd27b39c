"""Kernels of a network as launches: CCE C functions in their order, and what each is given."""
