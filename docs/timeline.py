"""Draw docs/lenet5.svg, LeNet-5's run on cambricon-x by engine, from its trace: ``make docs``."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import tilewright

ROOT = Path(__file__).parent.parent
PICTURE = Path(__file__).with_name("lenet5.svg")
LEFT, WIDTH, ROW, GAP = 70, 730, 22, 6
COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2", "#9d755d", "#eeca3b")


def events() -> tuple[dict[int, str], list[dict[str, Any]]]:
    """The tracks' names and their intervals, in microseconds, of one simulated run."""
    executable = tilewright.compile(ROOT / "examples/lenet5/lenet5.onnx", "cambricon-x")
    image = np.random.default_rng(0).random((1, 1, 32, 32), np.float32)
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        executable.run({"image": image}, trace=trace)
        found = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    names = [event for event in found if event["name"] == "thread_name"]
    tracks = {event["tid"]: event["args"]["name"] for event in names}
    return tracks, [event for event in found if event["ph"] == "X"]


def draw(tracks: dict[int, str], intervals: list[dict[str, Any]]) -> str:
    """One row for each track; what an engine does has the colour of the kernel at that time."""
    end = max(event["ts"] + event["dur"] for event in intervals)
    scale = WIDTH / end
    kernels = [event for event in intervals if event["tid"] == 0]
    height = (len(tracks) + 1) * (ROW + GAP) + 2 * GAP
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 10} {height}"'
        ' font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for row, name in enumerate(tracks.values()):
        lines.append(f'<text x="4" y="{row * (ROW + GAP) + 21}">{name}</text>')
    order = list(tracks)
    for event in intervals:
        middle = event["ts"] + event["dur"] / 2
        owner = next((n for n, k in enumerate(kernels) if middle <= k["ts"] + k["dur"]), 0)
        top = order.index(event["tid"]) * (ROW + GAP) + GAP
        wide = event["dur"] * scale
        lines.append(
            f'<rect x="{LEFT + event["ts"] * scale:.1f}" y="{top}" width="{max(wide, 0.3):.1f}"'
            f' height="{ROW}" fill="{COLOURS[owner % len(COLOURS)]}"/>'
        )
        if event["tid"] == 0 and wide > 50:
            label = " + ".join(event["args"]["nodes"])
            place = f'x="{LEFT + event["ts"] * scale + 4:.1f}" y="{top + 15}"'
            lines.append(f'<text {place} fill="white">{label}</text>')
    foot = len(tracks) * (ROW + GAP) + GAP + 14
    for tick in range(0, int(end) + 1, 5):
        lines.append(f'<text x="{LEFT + tick * scale:.1f}" y="{foot}">{tick} us</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(draw(*events()), encoding="utf-8")
