"""Sequences and optionals among the inputs and outputs of a model.

A network has tensors alone. A sequence NAME of known length is as many of them, ``NAME.0``,
``NAME.1``, ...; an optional is what it holds, and no tensor where it holds nothing. Callers see
lists, and None.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from tilewright.errors import refuse

Length = Annotated[int, Meta(ge=0, le=1 << 20)]


class Lists(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The lengths of sequences by name; None for an optional that holds nothing."""

    inputs: dict[str, Length | None] = field(default_factory=dict[str, "int | None"])
    outputs: dict[str, Length | None] = field(default_factory=dict[str, "int | None"])

    def given(self, arrays: Mapping[str, Any]) -> Mapping[str, Any]:
        """Inputs of a run by the names of tensors; raises TilewrightError (``input-list``)."""
        return _tensors(self.inputs, arrays) if self.inputs else arrays

    def told(self, arrays: Mapping[str, Any]) -> Mapping[str, Any]:
        """Outputs of a run, which has returned lists, by the names of tensors."""
        return _tensors(self.outputs, arrays) if self.outputs else arrays

    def returned(self, arrays: dict[str, Any]) -> dict[str, Any]:
        """Outputs of a run as the caller sees them."""
        found = {
            name: None if length is None else [arrays.pop(f"{name}.{n}") for n in range(length)]
            for name, length in self.outputs.items()
        }
        return {**arrays, **found}

    def lengths(self) -> dict[str, int]:
        """The lengths of the inputs that are sequences."""
        return {name: length for name, length in self.inputs.items() if length is not None}

    def element(self, name: str, is_output: bool) -> str:
        """The element of a sequence that a tensor is, in words; "" for any other tensor."""
        of, _, number = name.rpartition(".")
        length = (self.outputs if is_output else self.inputs).get(of)
        return "" if length is None else f"element {number} of the {length} of {of}"


NO_LISTS = Lists()
"""Those of a model of tensors alone."""


def _tensors(lists: Mapping[str, int | None], arrays: Mapping[str, Any]) -> dict[str, Any]:
    flat = {name: array for name, array in arrays.items() if name not in lists}
    for name, length in lists.items():
        value = arrays.get(name)
        if name not in arrays or (length is None and value is None):
            continue
        if length is None:
            raise refuse(
                "input-list", "it is an optional that holds nothing, as it was compiled",
                f"input {name!r}", "give None, or compile the model with the optional",
            )  # fmt: skip
        if not isinstance(value, list | tuple) or len(value) != length:
            found = f"{len(value)}" if isinstance(value, list | tuple) else type(value).__name__
            raise refuse(
                "input-list", f"it is a sequence of {length} arrays, and {found} is given",
                f"input {name!r}", f"give a list of {length}, or {name}.0, {name}.1, ...",
            )  # fmt: skip
        flat |= {f"{name}.{number}": each for number, each in enumerate(value)}
    for name in (name for name, array in flat.items() if array is None):
        raise refuse("input-list", "None is given for an array", f"input {name!r}")
    return flat
