"""torch's own exceptions, remarks and warnings become one refusal with its reason."""

from __future__ import annotations

import io
import logging
import re
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, redirect_stderr
from typing import Any

from tilewright.errors import TilewrightError, refuse

MAX_REASON = 400
"""Characters of torch's own message that a refusal repeats."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def told(code: str, where: str, subject: str, act: Callable[[], Any]) -> Any:
    """Return the result of ``act``; torch's exceptions, which are of any type, become one
    refusal."""
    try:
        with _hushed():
            return act()
    except TilewrightError:
        raise
    except Exception as error:
        raise refuse(code, f"{subject}: {reason_of(error)}", where) from error


def reason_of(error: BaseException) -> str:
    """torch's reason on one line: the innermost cause that says something, cut to a length."""
    reasons = [_line(error)]
    while error.__cause__ is not None:
        error = error.__cause__
        reasons.append(_line(error))
    reason = next((text for text in reversed(reasons) if text), "")
    named = reason if " " in reason else f"{type(error).__name__}: {reason}".rstrip(": ")
    return named if len(named) <= MAX_REASON else named[:MAX_REASON] + "..."


def listed(names: Sequence[str]) -> str:
    """Some names, and how many more there are."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(repr(name) for name in names[:3]) + more


def _line(error: BaseException) -> str:
    return " ".join(_COLOUR.sub("", str(error)).split())


@contextmanager
def _hushed() -> Generator[None]:
    """Without torch's warnings, logged remarks and printed graphs: what matters is refused."""
    loggers = [logging.getLogger(name) for name in ("torch", "torch.onnx", "onnxscript", "onnx_ir")]
    before = [logger.level for logger in loggers]
    with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.CRITICAL + 1)
        try:
            yield
        finally:
            for logger, level in zip(loggers, before, strict=True):
                logger.setLevel(level)
