"""Options of the backend: ``torch.compile(model, backend="tilewright", options={...})``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tilewright.errors import Problem, TilewrightError

_COMPILE = ("target", "machine", "values", "exact_convolution", "exact_memory", "cpu")
"""Options that ``tilewright.compile`` takes as well."""

_PARAMETERS = ("versions", "values")


@dataclass(frozen=True)
class Options:
    """The options with which graphs are compiled."""

    compile: Mapping[str, Any] = field(default_factory=dict[str, Any])
    by_values: bool = False
    """True if parameters are compared with a copy before each run, instead of by versions."""

    @classmethod
    def of(cls, user_options: Mapping[str, Any] | None, others: Mapping[str, Any]) -> Options:
        """Options as torch hands them over; raises TilewrightError (``torch-option``)."""
        options = dict(user_options or {})
        problems = [
            Problem("torch-option", f"{name!r} is not an option of this backend")
            for name in (*others, *options)
            if name not in (*_COMPILE, "parameters")
        ]
        parameters = options.pop("parameters", "versions")
        if parameters not in _PARAMETERS:
            reason = f"parameters are watched by {' or '.join(_PARAMETERS)}, not {parameters!r}"
            problems.append(Problem("torch-option", reason))
        if problems:
            raise TilewrightError(problems)
        return cls(options, parameters == "values")
