"""Names of operations in the model: JAX's scopes, without those that tracing added."""

from __future__ import annotations

import re
from collections import Counter

_WRAPPED = re.compile(r"^(?:jit|pjit|jvp|vmap|remat|checkpoint|custom_[a-z_]+)\((.*)\)$")


class Labels:
    """Names of operations, each given once."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def unique(self, name: str) -> str:
        """A name, with a number if it has been given before."""
        self._counts[name] += 1
        count = self._counts[name]
        return name if count == 1 else f"{name}_{count - 1}"

    @staticmethod
    def name(location: str, operation: str, within: str) -> str:
        """Name an operation of a function (or loop) whose own name is ``within``."""
        parts = _scopes(location)
        if not within:
            # The first scope is the function that was exported.
            parts = parts[1:] or parts
        name = "/".join(parts) or operation.rpartition(".")[2]
        return f"{within}/{name}" if within else name


def _scopes(location: str) -> list[str]:
    """The parts of a location's name: ``jit(f)/Conv_0/add`` is f, Conv_0, add."""
    scopes: list[str] = []
    for part in location.rstrip(":").split("/"):
        match = _WRAPPED.match(part)
        while match:
            part = match.group(1)
            match = _WRAPPED.match(part)
        if part:
            scopes.append(part)
    return scopes
