"""Language models in GGUF files become networks."""

from tilewright.frontends.gguf.llama import Llama, chunk_network
from tilewright.frontends.gguf.reader import GgufFile, read_gguf

__all__ = ["GgufFile", "Llama", "chunk_network", "read_gguf"]
