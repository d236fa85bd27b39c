"""ZigZag's cycles of a network on an accelerator of its wheel; run by the Python that has ZigZag.

    python ask_zigzag.py NETWORK.onnx ACCELERATOR FOLDER

Prints one line of JSON: cycles of all layers, those of full use of the array, seconds, and the
files of the accelerator and its mapping.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import zigzag.inputs
from zigzag.api import get_hardware_performance_zigzag


def main() -> None:
    """Run ZigZag by its interface, minimising cycles."""
    network, accelerator, folder = sys.argv[1:]
    inputs = Path(next(iter(zigzag.inputs.__path__)))
    files = {kind: inputs / kind / f"{accelerator}.yaml" for kind in ("hardware", "mapping")}
    begin = time.perf_counter()
    _, cycles, results = get_hardware_performance_zigzag(
        network,
        str(files["hardware"]),
        str(files["mapping"]),
        opt="latency",
        dump_folder=folder,
        loma_show_progress_bar=False,
    )
    layers = [result[0] for result in results[0][1]]
    print(
        json.dumps(
            {
                "cycles": float(cycles),
                "bound": sum(float(layer.ideal_cycle) for layer in layers),
                "layers": {layer.layer.name: float(layer.latency_total2) for layer in layers},
                "seconds": time.perf_counter() - begin,
                **{kind: str(path) for kind, path in files.items()},
            }
        )
    )


main()
