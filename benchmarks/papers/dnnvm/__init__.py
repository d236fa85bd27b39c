"""DNNVM (IEEE TCAD 2019) on its two devices, beside the paper (docs/papers/dnnvm.md)."""

from benchmarks.papers.dnnvm.experiments import NETWORKS, TITLE, tables

__all__ = ["NETWORKS", "TITLE", "tables"]
