"""Language models in GGUF files, read as decoders."""

from tilewright.frontends.gguf.llama import decoder_of
from tilewright.frontends.gguf.reader import GgufFile, read_gguf

__all__ = ["GgufFile", "decoder_of", "read_gguf"]
