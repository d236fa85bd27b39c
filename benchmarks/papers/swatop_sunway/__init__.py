"""swATOP on the machine that it is written for: Listings 1 and 2, its primitives, its model."""

from __future__ import annotations

from benchmarks.papers.swatop_sunway.experiments import NETWORKS, OPTIONS, TITLE, tables

__all__ = ["NETWORKS", "OPTIONS", "TITLE", "tables"]
