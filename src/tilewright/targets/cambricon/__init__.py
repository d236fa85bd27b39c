"""Cambricon (ACC-C): matrix and vector instructions with scalar control flow, simulated."""
