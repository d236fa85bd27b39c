"""PyTorch's side: the backend of ``torch.compile``, and executables that take tensors.

    compiled = torch.compile(model, backend="tilewright")
    with torch.no_grad():
        scores = compiled(image)
    print(tilewright.integrations.torch.fallbacks())

torch is an extra: it is imported when something here is first used.
"""

from tilewright.integrations.torch.backend import backend
from tilewright.integrations.torch.records import GraphRecord, fallbacks, forget, graphs
from tilewright.integrations.torch.tensors import on_tensors

__all__ = ["GraphRecord", "backend", "fallbacks", "forget", "graphs", "on_tensors"]
