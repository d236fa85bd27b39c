"""swTVM: convolutions and fully connected layers of AlexNet and VGG-19 against its baseline."""

from __future__ import annotations

from benchmarks.papers.swtvm.experiments import NETWORKS, TITLE, tables

__all__ = ["NETWORKS", "TITLE", "tables"]
