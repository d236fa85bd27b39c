"""Who is timed: ours, and each peer as its manual advises.

OpenVINO is optional (``pip install openvino``); without it, its column stays empty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[np.generic]]

OURS = "Tilewright"


@dataclass(frozen=True)
class Peer:
    """A runtime with one model loaded: ``run`` gives the outputs by name."""

    name: str
    run: Callable[[], Arrays]


def tilewright(package: Path, feeds: Arrays, threads: int) -> Peer:
    """A package of ours, as ``run`` of its C calls it: the inputs have been checked once."""
    from tilewright.runtime.executable import Executable
    from tilewright.targets.cpu.runner import CpuRunner

    runner = Executable.load(package).runner
    assert isinstance(runner, CpuRunner)
    runner.threads = threads
    found: Arrays = {info.name: np.empty(info.shape, info.dtype) for info in runner.outputs}

    def run() -> Arrays:
        runner.call("run", feeds, found)
        return found

    return Peer(OURS, run)


def onnxruntime(model: Path, feeds: Arrays, threads: int) -> Peer:
    """ONNX Runtime on the processor, all its optimisations on (its default)."""
    module: Any = import_module("onnxruntime")
    options = module.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = module.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def run() -> Arrays:
        return dict(zip(names, session.run(None, feeds), strict=True))

    return Peer(f"ONNX Runtime {module.__version__}", run)


def openvino(model: Path, feeds: Arrays, threads: int) -> Peer:
    """OpenVINO for latency, in float32 (it would take bfloat16 where the machine has it)."""
    module: Any = import_module("openvino")
    compiled = module.Core().compile_model(
        str(model),
        "CPU",
        {
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",
        },
    )
    request = compiled.create_infer_request()

    def run() -> Arrays:
        found = request.infer(feeds, share_inputs=True, share_outputs=True)
        return {port.get_any_name(): array for port, array in found.items()}

    return Peer(f"OpenVINO {module.__version__.split('-')[0]}", run)


PEERS: Mapping[str, Callable[[Path, Arrays, int], Peer]] = {
    "ONNX Runtime": onnxruntime,
    "OpenVINO": openvino,
}

MODULES = {"ONNX Runtime": "onnxruntime", "OpenVINO": "openvino"}


def installed(peer: str) -> bool:
    """Whether the peer's package is here."""
    return find_spec(MODULES[peer]) is not None
