"""Language models: whole packages of C, and their use from Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.llm.model import LanguageModel, Piece

if TYPE_CHECKING:
    from tilewright.llm.package import compile_model

__all__ = ["LanguageModel", "Piece", "compile_model"]


def __getattr__(name: str) -> Any:
    """Import the compiler on first use: running a package takes a fraction of its time."""
    if name != "compile_model":
        raise AttributeError(f"module 'tilewright.llm' has no attribute {name!r}")
    from tilewright.llm.package import compile_model

    return compile_model
