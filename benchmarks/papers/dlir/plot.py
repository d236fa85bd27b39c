"""Draw results/dlir-sweeps.json: gains of double buffering against latency and bandwidth.

python -m benchmarks dlir-sweeps
python -m benchmarks.papers.dlir.plot       (extra `report`: matplotlib)
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[2] / "results"

AXES = (("latency", "latency in ns, at 128 GB/s"), ("bandwidth", "bandwidth in GB/s, at 100 ns"))


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """A row of panels for each machine; the same rows give the same bytes."""
    import matplotlib
    import matplotlib.pyplot as plt

    matplotlib.rcParams.update(
        {
            "svg.hashsalt": "dlir",
            "svg.fonttype": "none",
            "font.size": 8,
            "font.family": "sans-serif",
        }
    )
    targets = list(dict.fromkeys(row["target"] for row in rows))
    figure, panels = plt.subplots(
        len(targets), 2, figsize=(8, 2.6 * len(targets)), squeeze=False, layout="constrained"
    )
    for line, target in enumerate(targets):
        for panel, (key, label) in zip(panels[line], AXES, strict=True):
            held = ("bandwidth", 128) if key == "latency" else ("latency", 100)
            for layer in dict.fromkeys(row["layer"] for row in rows):
                mine = [
                    row
                    for row in rows
                    if (row["target"], row["layer"]) == (target, layer) and row[held[0]] == held[1]
                ]
                mine.sort(key=lambda row: row[key])
                panel.plot(
                    [row[key] for row in mine],
                    [100 * row["gain"] for row in mine],
                    marker=".",
                    label=layer,
                )
            panel.axhline(0, color="grey", linewidth=0.5)
            panel.set_title(target)
            panel.set_xlabel(label)
            panel.set_ylabel("gain in %")
            if key == "bandwidth":
                panel.set_xscale("log", base=2)
    names, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(names, labels, loc="outside upper center", ncols=len(labels))
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Read what the page kept and draw it beside."""
    try:
        import matplotlib  # noqa: F401  (asked for first, so that its absence is a clear message)
    except ModuleNotFoundError:
        sys.exit("drawing needs matplotlib: install the extra `report`")
    tables = json.loads((RESULTS / "dlir-sweeps.json").read_text())["tables"]
    draw(tables[1]["rows"], RESULTS / "dlir-sweeps.svg")


if __name__ == "__main__":
    main()
