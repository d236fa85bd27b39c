"""HLAL: table 4.6's ten layers on ACC-C (docs/papers/hlal.md)."""

from benchmarks.papers.hlal.experiments import NETWORKS, TITLE, tables

__all__ = ["NETWORKS", "TITLE", "tables"]
