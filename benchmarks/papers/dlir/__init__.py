"""DLIR: its networks on its machines, double buffering, and partitioning (docs/papers/dlir.md)."""

from benchmarks.papers.dlir.experiments import NETWORKS, OPTIONS, TITLE, tables

__all__ = ["NETWORKS", "OPTIONS", "TITLE", "tables"]
