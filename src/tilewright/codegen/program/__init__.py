"""Emitted programs: their files, the places of their tensors, and runners of their steps."""
