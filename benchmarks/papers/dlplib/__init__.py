"""DLPlib: table 3.5's nine benchmarks on Cambricon-X (docs/papers/dlplib.md)."""

from benchmarks.papers.dlplib.experiments import NETWORKS, TITLE, tables

__all__ = ["NETWORKS", "TITLE", "tables"]
