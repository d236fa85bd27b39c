"""Tilewright: a compiler for processors whose fast memory is managed by software."""
