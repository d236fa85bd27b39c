"""Language models: whole packages of C, and their use from Python."""

from tilewright.llm.model import LanguageModel, Piece

__all__ = ["LanguageModel", "Piece"]
