"""swATOP: its cost model's claim, tested on this processor (docs/papers/swatop.md)."""

from benchmarks.papers.swatop.experiments import NETWORKS, OPTIONS, TITLE, tables

__all__ = ["NETWORKS", "OPTIONS", "TITLE", "tables"]
