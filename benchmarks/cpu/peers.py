"""What the cpu target is measured against: each peer runs a model file as its manual advises.

OpenVINO is optional (``pip install openvino``); without it, its column stays empty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Feeds = Mapping[str, NDArray[np.generic]]


@dataclass(frozen=True)
class Peer:
    """A runtime with one model loaded: ``run`` gives the outputs by name."""

    name: str
    version: str
    run: Callable[[], dict[str, NDArray[np.generic]]]


def onnxruntime_peer(path: Path, feeds: Feeds, threads: int) -> Peer:
    """ONNX Runtime on the processor, all its optimisations on (its default)."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def run() -> dict[str, NDArray[np.generic]]:
        return dict(zip(names, session.run(None, dict(feeds)), strict=True))

    return Peer("ONNX Runtime", onnxruntime.__version__, run)


def openvino_peer(path: Path, feeds: Feeds, threads: int) -> Peer:
    """OpenVINO for latency, in float32 (it would take bfloat16 where the machine has it)."""
    openvino: Any = import_module("openvino")
    compiled = openvino.Core().compile_model(
        str(path),
        "CPU",
        {
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",
        },
    )
    request = compiled.create_infer_request()
    inputs = dict(feeds)

    def run() -> dict[str, NDArray[np.generic]]:
        found = request.infer(inputs, share_inputs=True, share_outputs=True)
        return {port.get_any_name(): array for port, array in found.items()}

    return Peer("OpenVINO", openvino.__version__.split("-")[0], run)


PEERS: Mapping[str, Callable[[Path, Feeds, int], Peer]] = {
    "ONNX Runtime": onnxruntime_peer,
    "OpenVINO": openvino_peer,
}
"""By name; a peer whose package is missing raises ModuleNotFoundError."""


def available(path: Path, feeds: Feeds, threads: int) -> tuple[list[Peer], list[str]]:
    """The peers that are installed, with the model loaded; and a remark for each other one."""
    found: list[Peer] = []
    remarks: list[str] = []
    for name, load in PEERS.items():
        try:
            found.append(load(path, feeds, threads))
        except ModuleNotFoundError as error:
            remarks.append(f"{name} is left out: {error.name} is not installed")
    return found, remarks
