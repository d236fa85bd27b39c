"""Refusals: a code, a place, a reason, and what would help."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

LONGEST_WORD = 256
LONGEST_TEXT = 4096
"""The most characters of a message, and of a word in it: inputs that it repeats may be of any
length."""


def shortened(text: str) -> str:
    """A text without the middles of words, and of the whole, that are longer than anyone reads."""
    text = re.sub(rf"\S{{{LONGEST_WORD + 1},}}", lambda word: _cut(word[0], LONGEST_WORD), text)
    return _cut(text, LONGEST_TEXT)


def _cut(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    end = longest // 4
    return f"{text[: longest - end - 5]} ... {text[-end:]}"


@dataclass(frozen=True)
class Problem:
    """One reason for a refusal.

    ``code`` is stable and listed in docs/errors.md (``onnx-unsupported``, ``machine-invalid``);
    ``where`` names the model's node, the file and line, or the option.
    """

    code: str
    reason: str
    where: str = ""
    help: str = ""

    def __post_init__(self) -> None:
        """Shorten what is told, wherever it comes from."""
        for name in ("reason", "where", "help"):
            object.__setattr__(self, name, shortened(getattr(self, name)))

    def __str__(self) -> str:
        place = f" {self.where}:" if self.where else ""
        hint = f" ({self.help})" if self.help else ""
        return f"[{self.code}]{place} {self.reason}{hint}"


class TilewrightError(Exception):
    """Refusal of an input; carries every problem found, in order."""

    def __init__(self, problems: Problem | Sequence[Problem]) -> None:
        self.problems = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def refuse(code: str, reason: str, where: str = "", help: str = "") -> TilewrightError:
    """The error for one problem; ``raise refuse(...)``."""
    return TilewrightError(Problem(code, reason, where, help))


def nearest(name: str, known: Iterable[str], most: int = 3) -> str:
    """Suggest the nearest of very many known names for one that is unknown; "" if none is near."""
    from difflib import get_close_matches  # What is right needs no suggestions.

    near = get_close_matches(name, list(known), most, 0.5)
    return f"did you mean {' or '.join(near)}?" if near else ""


def choose(name: str, known: Iterable[str]) -> str:
    """Suggest known names for one that is unknown: the nearest, then all of them.

    ``choose("zu3", ("zu2", "zu9"))`` is "did you mean zu2 or zu9? there are zu2, zu9".
    """
    names = list(known)
    help = (nearest(name, names), f"there are {', '.join(names)}" if names else "")
    return " ".join(part for part in help if part)


class KernelError(TilewrightError):
    """Refusal of one kernel of a network; another engine may be able to run it."""

    def __init__(
        self, symbol: str, problems: Sequence[Problem], others: Sequence[KernelError] = ()
    ) -> None:
        super().__init__(problems)
        self.symbol = symbol
        """The symbol of the kernel."""
        self.others = tuple(others)
        """Refusals of other kernels, found in the same run of the station."""


@contextmanager
def refusals_of(symbol: str) -> Generator[None]:
    """Let refusals inside name the kernel that they are of: raises KernelError for them."""
    try:
        yield
    except KernelError:
        raise
    except TilewrightError as error:
        raise KernelError(symbol, error.problems) from error


@dataclass
class Refusals:
    """The kernels that one run of a stage refuses: it goes on after each, to find them all.

    A return to the formed network repeats the whole pipeline, so there is one return for all.
    """

    errors: list[KernelError] = field(default_factory=list[KernelError])

    @contextmanager
    def of(self, symbol: str) -> Generator[None]:
        """Keep a refusal inside, as that of a kernel, and go on."""
        try:
            with refusals_of(symbol):
                yield
        except KernelError as error:
            self.errors.append(error)

    def check(self) -> None:
        """Raise the first refusal, with those of other kernels; nothing if there are none."""
        if self.errors:
            first, *others = self.errors
            raise KernelError(first.symbol, first.problems, others)
