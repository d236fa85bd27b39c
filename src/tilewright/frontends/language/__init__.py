"""Language models from files, folders and modules, read as one record (decoder.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tilewright.frontends.language.decoder import Decoder


def open_decoder(model: Any, tokenizer: Any = None) -> Decoder:
    """The model of a GGUF file, a folder of Hugging Face, an ONNX file or a torch module.

    ``tokenizer`` is that of a module. Raises TilewrightError.
    """
    if not isinstance(model, str | Path):
        from tilewright.frontends.language.transformers import decoder_of_module

        return decoder_of_module(model, tokenizer)
    path = Path(model)
    if path.is_dir() and not any(path.glob("*.safetensors*")) and (path / "model.onnx").is_file():
        path = path / "model.onnx"
    if path.is_dir() or path.name == "config.json" or path.suffix == ".safetensors":
        from tilewright.frontends.language.transformers import decoder_of_folder

        return decoder_of_folder(path if path.is_dir() else path.parent)
    if path.suffix.lower() == ".onnx":
        from tilewright.frontends.language.onnx import decoder_of_onnx

        return decoder_of_onnx(path)
    from tilewright.frontends.gguf import decoder_of, read_gguf

    return decoder_of(read_gguf(path))
