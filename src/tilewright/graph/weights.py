"""The weight store: a network's constants by content, beside the graph.

Equal arrays are kept once. A store is saved as a safetensors file and mapped into memory when it
is loaded, so that a large network's weights are read when they are used. Views of mapped files are
kept as they are; large arrays that were computed go to a temporary file (graph/spill.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import safetensors

from tilewright.errors import refuse
from tilewright.graph.names import identifier
from tilewright.graph.spill import Spill
from tilewright.numerics.arrays import Array
from tilewright.numerics.codes import FORMATS
from tilewright.numerics.element_types import dtype_named

MOST_AXES = 32
"""Axes of an array that is read."""

_BRAIN = np.dtype(ml_dtypes.bfloat16)
"""The dtype of bfloat16, which NumPy knows by name and not by a code."""

_NAMES: dict[str, str] = {
    "F64": "<f8",
    "I64": "<i8",
    "F32": "<f4",
    "I32": "<i4",
    "U32": "<u4",
    "U64": "<u8",
    "F16": "<f2",
    "BF16": _BRAIN.name,
    "I16": "<i2",
    "U16": "<u2",
    "BOOL": "|b1",
    "I8": "|i1",
    "U8": "|u1",
}
"""Element types of the format, the widest first."""

_CODES = {np.dtype(text): code for code, text in _NAMES.items()}


class Weights:
    """Arrays by symbol; a symbol is a C identifier that ends with a hash of the content."""

    def __init__(self) -> None:
        self._arrays: dict[str, Array] = {}
        self._symbols: dict[str, str] = {}
        self._spill = Spill()

    def add(self, array: Array, hint: str = "") -> str:
        """Keep an array; returns its symbol, the same whenever the content is the same.

        ``hint`` makes the symbol of new content readable. Raises TilewrightError
        (``weights-type``) for elements that the store does not hold.
        """
        kept = np.asarray(array, order="C")
        if kept.dtype.newbyteorder("<") not in _CODES and kept.dtype.name not in FORMATS:
            raise refuse("weights-type", f"weights of {kept.dtype} are not supported", hint)
        owned = kept is not array
        kept = kept.astype(kept.dtype.newbyteorder("<"), copy=False)
        digest = digest_of(kept)
        if len(self._symbols) < len(self._arrays):  # Loaded arrays are digested when first needed.
            self._symbols = {digest_of(stored): name for name, stored in self._arrays.items()}
        if digest in self._symbols:
            return self._symbols[digest]
        if kept.flags.writeable:  # What is read-only stays, a view of a mapped file above all.
            spilled = self._spill.keep(kept)
            kept = spilled if spilled is not kept else kept if owned else kept.copy()
            kept.setflags(write=False)
        readable, length = identifier(hint, "weight")[:40].rstrip("_"), 8
        symbol = f"{readable}_{digest[:length]}"
        while symbol in self._arrays:
            length += 4
            symbol = f"{readable}_{digest[:length]}"
        self._arrays[symbol] = kept
        self._symbols[digest] = symbol
        return symbol

    def get(self, symbol: str) -> Array:
        """The array of a symbol, read-only; raises KeyError."""
        return self._arrays[symbol]

    def __contains__(self, symbol: object) -> bool:
        return symbol in self._arrays

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._arrays))

    def __len__(self) -> int:
        return len(self._arrays)

    @property
    def bytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self._arrays.values())

    def subset(self, symbols: Iterable[str]) -> Weights:
        """A store of some symbols' arrays, under the same symbols; raises KeyError."""
        kept = Weights()
        for symbol in sorted(set(symbols)):
            kept._arrays[symbol] = self._arrays[symbol]
        kept._spill = self._spill
        kept._symbols = {d: symbol for d, symbol in self._symbols.items() if symbol in kept}
        return kept

    def beside(self, arrays: Mapping[str, Array]) -> Weights:
        """A store with these arrays and further ones, by the symbols that they have already."""
        both = self.subset(self)
        both._arrays |= arrays
        for array in arrays.values():
            array.setflags(write=False)
        both._symbols = {}
        return both

    def save(self, path: Path | str) -> None:
        """Write a safetensors file; equal stores give equal bytes, whatever the order of adding."""
        order = sorted(
            self._arrays, key=lambda symbol: (-self._arrays[symbol].dtype.itemsize, symbol)
        )
        header: dict[str, Any] = {}
        offset = 0
        formats = {s: array.dtype.name for s, array in self._arrays.items()}
        if codes := {s: name for s, name in sorted(formats.items()) if name in FORMATS}:
            header["__metadata__"] = codes  # As bytes: the file's format has not all of these.
        for symbol in order:
            array = self._arrays[symbol]
            header[symbol] = {
                "dtype": "U8" if symbol in codes else _CODES[array.dtype],
                "shape": list(array.shape),
                "data_offsets": [offset, offset + array.nbytes],
            }
            offset += array.nbytes
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-(len(text) + 8) % 64)
        with Path(path).open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for symbol in order:
                file.write(_bytes_of(self._arrays[symbol]))

    @classmethod
    def load(cls, path: Path | str) -> Weights:
        """Map a file that ``save`` wrote (or any safetensors file).

        Raises TilewrightError (``weights-file``) if it is missing, cut short or not well-formed.
        """
        store = cls()
        try:
            with safetensors.safe_open(path, "numpy"):  # Checks the header, and all that it says.
                data: Array = np.memmap(path, np.uint8, "r")
            start = 8 + int.from_bytes(data[:8].tobytes(), "little")
            header: dict[str, Any] = json.loads(data[8:start].tobytes())
            codes = header.pop("__metadata__", {})
            for symbol, entry in header.items():
                first, last = (start + offset for offset in entry["data_offsets"])
                kind, shape = np.dtype(_NAMES[entry["dtype"]]), entry["shape"]
                if codes.get(symbol) in FORMATS and kind == np.uint8:
                    kind = dtype_named(codes[symbol])
                if len(shape) > MOST_AXES:
                    raise ValueError(f"{symbol!r} has {len(shape)} axes")
                store._arrays[symbol] = data[first:last].view(kind).reshape(shape)
        except OSError as error:
            reason = f"cannot be read: {error.strerror or error}"
            raise refuse("weights-file", reason, str(path)) from error
        except (safetensors.SafetensorError, ValueError, KeyError) as error:
            raise refuse("weights-file", f"is no weight store: {error}", str(path)) from error
        return store


def digest_of(array: Array) -> str:
    """SHA-256, in hexadecimal, of a C-contiguous array's dtype, shape and bytes."""
    kind = array.dtype.name if array.dtype.name in FORMATS else array.dtype.str
    state = sha256(f"{kind} {array.shape}\n".encode())
    state.update(_bytes_of(array))
    return state.hexdigest()


def _bytes_of(array: Array) -> memoryview:
    """The bytes of a C-contiguous array, of whatever elements, without a copy."""
    return array.reshape(-1).view(np.uint8).data
