"""Memoised methods of one integer argument, whose object keeps the results."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

Owner = TypeVar("Owner")
Answer = TypeVar("Answer")


def once(method: Callable[[Owner, int], Answer]) -> Callable[[Owner, int], Answer]:
    """Return the method memoised: its object keeps the result of each argument."""
    name = f"_{method.__name__}_known"

    @wraps(method)
    def kept(self: Owner, number: int) -> Answer:
        try:
            return getattr(self, name)[number]
        except (AttributeError, KeyError):
            answer = method(self, number)
            self.__dict__.setdefault(name, {})[number] = answer
            return answer

    return kept
