"""Requests of a C program to the library, one at a time: names, numbers, bytes.

A request is a line of words; ``write`` is followed by bytes. An answer is a status (0 is success),
the number of bytes that follow, and numbers, or a message where the status is not 0. Descriptors
are numbers that are given once, so that a destroyed one is noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, get_type_hints

from tilewright.errors import TilewrightError, refuse
from tilewright.integrations.dlplib import operators
from tilewright.integrations.dlplib.descriptors import (
    DataFormat,
    Descriptor,
    FilterDescriptor,
    Kind,
    NumericType,
    Shape,
    TensorDescriptor,
)
from tilewright.integrations.dlplib.handle import Handle, Operand, Ran
from tilewright.integrations.dlplib.operators.elementwise import VectorOperation
from tilewright.integrations.dlplib.operators.settings import (
    ACTIVATIONS,
    Activation,
    ActivationDescriptor,
    BatchNormDescriptor,
    ConvolutionDescriptor,
    LrnDescriptor,
    PoolingDescriptor,
)

STATUS = {
    "dlp-handle": 1,
    "dlp-descriptor": 2,
    "dlp-parameter": 3,
    "dlp-shape": 4,
    "dlp-type": 5,
    "dlp-memory": 6,
    "dlp-capacity": 7,
    "dlp-mismatch": 8,
}
"""Status by code; dlplib.h names them."""

REFUSED = 9
"""Every other refusal: an unknown target, a layer that the machine cannot run."""

FORMATS: tuple[DataFormat, ...] = ("NCHW", "NHWC")
KINDS: tuple[Kind, ...] = ("float32", "fixed16", "fixed32")
POOLS = ("max", "average")
VECTORS = ("add", "sub", "mul")
"""Enumerations in the order of dlplib.h."""

LONGEST_MESSAGE = 1000

DESCRIPTORS: dict[str, type[Descriptor[Any]]] = {
    "tensor": TensorDescriptor,
    "filter": FilterDescriptor,
    "convolution": ConvolutionDescriptor,
    "pooling": PoolingDescriptor,
    "lrn": LrnDescriptor,
    "activation": ActivationDescriptor,
    "batch_norm": BatchNormDescriptor,
}

LETTERS: dict[object, str] = {
    Operand: "o",
    Operand | None: "?",
    bool: "i",
    Activation: "a",
    VectorOperation: "v",
    **dict.fromkeys(DESCRIPTORS.values(), "d"),
}
"""An argument by its type: d a descriptor, o an operand (descriptor and address), ? one that may be
missing (0 0), i a number, a an activation, v a vector operation."""


def _signature(name: str) -> dict[str, str]:
    """The arguments of an operator after the handle, a letter each; none of what is no operator."""
    types = get_type_hints(getattr(operators, name))
    kinds = {key: kind for key, kind in types.items() if key not in ("handle", "return")}
    is_plain = types["return"] is Ran and all(kind in LETTERS for kind in kinds.values())
    return {key: LETTERS[kind] for key, kind in kinds.items()} if is_plain else {}


OPERATORS = {name: letters for name in operators.__all__ if (letters := _signature(name))}
"""Operators that one kind of request calls, and their arguments by name."""


@dataclass(frozen=True)
class Answer:
    """A status, numbers or a message, and bytes."""

    status: int
    text: str = ""
    data: bytes = b""

    def encode(self) -> bytes:
        """As it is sent."""
        return f"{self.status} {len(self.data)} {self.text}\n".encode() + self.data


class Session:
    """One handle, opened by the first request, and the descriptors of its program."""

    def __init__(self) -> None:
        self.handle: Handle | None = None
        self._descriptors: dict[int, Descriptor[Any]] = {}
        self._count = 0
        self._verbs: dict[str, Callable[[list[str], bytes], Sequence[int] | bytes]] = {
            "open": self._open,
            "close": self._close,
            "create": self._create,
            "set": self._set,
            "get": self._get,
            "destroy": self._destroy,
            "malloc": lambda words, _: [self._device().malloc(*_integers(words, 1))],
            "free": lambda words, _: self._device().free(*_integers(words, 1)) or [],
            "read": lambda words, _: self._device().memcpy_to_host(*_integers(words, 2)),
            "write": self._write,
            "copy": lambda words, _: self._device().memcpy_on_device(*_integers(words, 3)) or [],
            "run": self._run,
            "concat": self._concat,
            "cycles": lambda _, __: [self._device().cycles],
        }

    def answer(self, line: str, data: bytes = b"") -> Answer:
        """Do what a request asks; a refusal becomes a status and a message."""
        words = line.split()
        try:
            verb = self._verbs.get(words[0]) if words else None
            if verb is None:
                raise refuse("dlp-parameter", f"no request {line[:40]!r}")
            result = verb(words[1:], data)
        except TilewrightError as error:
            problem = error.problems[0]
            message = " ".join(str(error).split())[:LONGEST_MESSAGE]
            return Answer(STATUS.get(problem.code, REFUSED), message)
        if isinstance(result, bytes):
            return Answer(0, "", result)
        return Answer(0, " ".join(map(str, result)))

    def _device(self) -> Handle:
        if self.handle is None:
            raise refuse("dlp-handle", "there is no handle")
        return self.handle

    def _open(self, words: list[str], _: bytes) -> list[int]:
        if self.handle is not None or len(words) != 1:
            raise refuse("dlp-handle", "a session opens one handle")
        self.handle = Handle(words[0])
        return [int(self.handle.is_fixed)]

    def _close(self, _: list[str], __: bytes) -> list[int]:
        self._device().destroy()
        return []

    def _write(self, words: list[str], data: bytes) -> list[int]:
        address, _ = _integers(words, 2)
        self._device().memcpy_to_device(address, data)
        return []

    def _create(self, words: list[str], _: bytes) -> list[int]:
        self._device()
        if len(words) != 1 or words[0] not in DESCRIPTORS:
            raise refuse("dlp-parameter", f"no descriptor {words}")
        self._count += 1
        self._descriptors[self._count] = DESCRIPTORS[words[0]]()
        return [self._count]

    def _set(self, words: list[str], _: bytes) -> list[int]:
        descriptor = self._descriptor(words[:1], words[1:2])
        values = words[2:]
        if isinstance(descriptor, TensorDescriptor | FilterDescriptor):
            order, kind, fraction, *dims = _integers(values, 7)
            numbers = NumericType(_one_of(KINDS, kind), fraction)
            descriptor.set(dims, numbers, _one_of(FORMATS, order))
        elif isinstance(descriptor, ConvolutionDescriptor):
            n = _integers(values, 8)
            descriptor.set(n[0:2], n[2:4], n[4:6], n[6], _one_of(ACTIVATIONS, n[7]))
        elif isinstance(descriptor, PoolingDescriptor):
            n = _integers(values, 9)
            pads = n[5:7]
            counted = pads if n[7] else (0, 0)
            descriptor.set(_one_of(POOLS, n[0]), n[1:3], n[3:5], pads, counted, bool(n[8]))
        elif isinstance(descriptor, LrnDescriptor):
            if len(values) != 4:
                raise refuse("dlp-parameter", f"{len(values)} numbers instead of 4")
            (size,) = _integers(values[:1], 1)
            descriptor.set(size, *(_real(value) for value in values[1:]))
        elif isinstance(descriptor, ActivationDescriptor):
            descriptor.set(_one_of(ACTIVATIONS, *_integers(values, 1)))
        elif isinstance(descriptor, BatchNormDescriptor):
            descriptor.set(bool(*_integers(values, 1)))
        return []

    def _get(self, words: list[str], _: bytes) -> list[int]:
        shape = self._descriptor(words[:1], words[1:2]).get()
        if not isinstance(shape, Shape):
            raise refuse("dlp-descriptor", "only tensors' and filters' descriptors are read")
        kind = KINDS.index(shape.type.kind)
        return [FORMATS.index(shape.format), kind, shape.type.fraction, *shape.dims, shape.bytes]

    def _destroy(self, words: list[str], _: bytes) -> list[int]:
        self._descriptor(words[:1], words[1:2]).destroy()
        return []

    def _run(self, words: list[str], _: bytes) -> list[int]:
        if not words or words[0] not in OPERATORS:
            raise refuse("dlp-parameter", f"no operator {words[:1]}")
        signature = "".join(OPERATORS[words[0]].values())
        numbers = iter(_integers(words[1:], len(signature) + sum(c in "o?" for c in signature)))
        arguments: list[Any] = []
        for letter in signature:
            number = next(numbers)
            if letter == "d":
                arguments.append(self._numbered(number))
            elif letter in "o?":
                address = next(numbers)
                missing = letter == "?" and not number and not address
                arguments.append(None if missing else self._operand(number, address))
            elif letter == "a":
                arguments.append(_one_of(ACTIVATIONS, number))
            elif letter == "v":
                arguments.append(_one_of(VECTORS, number))
            else:
                arguments.append(bool(number))
        ran = getattr(operators, words[0])(self._device(), *arguments)
        return [ran.cycles or 0]

    def _concat(self, words: list[str], _: bytes) -> list[int]:
        arguments = _integers(words, len(words))
        axis, numbers = sum(arguments[:1]), arguments[1:]
        if len(numbers) < 4 or len(numbers) % 2:
            raise refuse("dlp-parameter", f"{len(words)} numbers for a concatenation")
        parts = [self._operand(*numbers[i : i + 2]) for i in range(0, len(numbers), 2)]
        ran = operators.concat(self._device(), axis, parts[:-1], parts[-1])
        return [ran.cycles or 0]

    def _operand(self, number: int, address: int) -> Operand:
        descriptor = self._numbered(number)
        if not isinstance(descriptor, TensorDescriptor | FilterDescriptor):
            raise refuse("dlp-descriptor", f"a {descriptor.label} describes no operand")
        return Operand(descriptor, address)

    def _numbered(self, number: int) -> Descriptor[Any]:
        descriptor = self._descriptors.get(number)
        if descriptor is None:
            raise refuse("dlp-descriptor", f"there is no descriptor {number}")
        return descriptor

    def _descriptor(self, kind: list[str], number: list[str]) -> Descriptor[Any]:
        descriptor = self._numbered(*_integers(number, 1))
        if not kind or type(descriptor) is not DESCRIPTORS.get(kind[0]):
            raise refuse("dlp-descriptor", f"it is a {descriptor.label}")
        return descriptor


def _integers(words: Sequence[str], count: int) -> tuple[int, ...]:
    try:
        numbers = tuple(int(word) for word in words)
    except ValueError:
        raise refuse("dlp-parameter", f"{list(words)[:8]} are no integers") from None
    if len(numbers) != count or any(abs(number) >= 1 << 63 for number in numbers):
        raise refuse("dlp-parameter", f"{len(numbers)} numbers instead of {count}")
    return numbers


def _real(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise refuse("dlp-parameter", f"{word!r} is no number") from None


def _one_of(names: Sequence[Any], index: int) -> Any:
    if not 0 <= index < len(names):
        raise refuse("dlp-parameter", f"{index} is none of {', '.join(names)}")
    return names[index]
