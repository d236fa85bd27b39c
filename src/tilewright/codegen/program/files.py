"""The files that all packages of instruction words have in common, written and read.

program.bin     the instruction words
weights.bin     the arena of weights, as in main memory
*.bin           an image of the machine's own, which follows the activations in main memory
network.mlir    the graph with placements, for what the host does
program.json    the machine, addresses, and which words belong to which kernel
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from tilewright.codegen.host.steps import emit_kernels, steps_of
from tilewright.codegen.program.interface import Compilation, CompiledKernel
from tilewright.errors import Refusals, refuse
from tilewright.graph.arenas import write_value
from tilewright.graph.dialect import KernelOp, NetworkOp, WeightOp, network_of
from tilewright.graph.operations import context as graph_context
from tilewright.graph.placement import ACTIVATIONS, WEIGHTS, placement_of
from tilewright.ir import ModuleOp, Operation, ParseError, Parser, VerifyException
from tilewright.ir.types import element_size
from tilewright.machine import Machine
from tilewright.machine.forms import first_reason, machine_of
from tilewright.memory.alignment import align_up
from tilewright.tile.dialect import BufferOp, ProgramOp

PAGE = 4096
"""Bytes to which the arenas are aligned in main memory."""

MAX_ARENA = 1 << 34
"""Bytes of an arena that a loaded package may ask for."""


class StayingResult(BaseModel):
    """A result that stays on the chip: nothing stores it."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    memory: str
    address: int = Field(ge=0)
    """Address in that memory of its first byte."""
    place: int = Field(ge=0)
    """The offset in bytes that it would have in the arena of activations."""
    bytes: int = Field(ge=0)


Lower = Callable[[ProgramOp], None]
"""Appends the code of a tile program; raises TilewrightError for what it cannot say."""


class KernelRow(BaseModel):
    """One accelerator kernel: its name, the model's nodes, and its words."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    symbol: str
    nodes: tuple[str, ...]
    start: int = Field(ge=0)
    end: int = Field(ge=0)
    stays: StayingResult | None = Field(
        default=None, validation_alias=AliasChoices("held", "stays"), serialization_alias="held"
    )
    """The result, if it stays on the chip; files have it by an older name."""


class ProgramFile(BaseModel):
    """The content of a package's ``program.json``."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")
    machine: dict[str, Any]
    word_bytes: int
    arenas: dict[str, int]
    """Bytes of each arena."""
    bases: dict[str, int]
    """Addresses of the arenas, and of the machine's own image, in main memory."""
    kernels: tuple[KernelRow, ...]
    steps: tuple[tuple[str, int], ...]
    """Steps in order: ``words K`` (kernel K) or ``host N`` (the network's N-th operation)."""
    host_seconds: dict[int, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = {}
    """Predicted seconds of the host's steps by N, where the machine describes its host."""


def weights_of(compilation: Compilation, addresses: Addresses) -> NDArray[np.uint8]:
    """The arena of weights, with every constant that has a place there."""
    weights = np.zeros(addresses.arenas[WEIGHTS], np.uint8)
    for op in network_of(compilation.network).block.ops:
        if isinstance(op, WeightOp) and op.placement is not None:
            write_value(op.result, {WEIGHTS: weights}, compilation.weights.get(op.symbol.data))
    return weights


def compiled_steps(
    compilation: Compilation,
) -> Iterator[tuple[int, Operation, CompiledKernel | None]]:
    """The network's steps in its order: the place in the block, the operation, and the kernel that
    the accelerator runs, or None for a step of the host."""
    compiled = {kernel.kernel.symbol: kernel for kernel in compilation.kernels}
    for number, op in steps_of(network_of(compilation.network)):
        kernel = compiled.get(op.symbol.data) if isinstance(op, KernelOp) else None
        yield number, op, None if kernel is None or kernel.schedule is None else kernel


def staying_result(programs: Iterable[ProgramOp], op: KernelOp) -> StayingResult | None:
    """The result of a network's kernel that its programs leave on the chip, if they do."""
    for buffer in (item for program in programs for item in program.walk()):
        if not isinstance(buffer, BufferOp) or buffer.stays is None:
            continue
        tensor = buffer.tensor_op
        if tensor.get("role") == "output":
            size = element_size(tensor.result.type.element_type)
            return StayingResult(
                memory=buffer.memory,
                address=buffer.get("address"),
                place=placement_of(op.result).offset,
                bytes=prod(buffer.tensor_shape) * size,
            )
    return None


def lower_kernels(
    compilation: Compilation,
    kernel: Lower,
    barrier: Callable[[Operation], None] = lambda _: None,
) -> tuple[list[tuple[str, int]], list[CompiledKernel]]:
    """Lower the programs of the accelerator's kernels in the network's order with ``kernel``;
    ``barrier`` is given each step of the host between them. The steps, and the kernels.

    Raises KernelError with the refusals of all kernels.
    """
    steps: list[tuple[str, int]] = []
    kernels: list[CompiledKernel] = []
    refused = Refusals()
    for number, op, compiled in compiled_steps(compilation):
        if compiled is None or compiled.program is None:
            barrier(op)
            steps.append(("host", number))
            continue
        with refused.of(compiled.kernel.symbol):
            for program in compiled.programs:
                kernel(program)
        steps.append(("words", len(kernels)))
        kernels.append(compiled)
    refused.check()
    return steps, kernels


def kernel_rows(
    compilation: Compilation,
    kernels: Sequence[CompiledKernel],
    spans: Iterable[tuple[int, int]],
) -> list[KernelRow]:
    """The rows of kernels; ``spans`` has the first word of each, and that after its last."""
    ops = {op.symbol.data: op for op in network_of(compilation.network).kernels}
    rows: list[KernelRow] = []
    for kernel, (start, end) in zip(kernels, spans, strict=True):
        symbol = kernel.kernel.symbol
        stays = staying_result(kernel.programs, ops[symbol])
        nodes = kernel.kernel.nodes
        rows.append(KernelRow(symbol=symbol, nodes=nodes, start=start, end=end, stays=stays))
    return rows


@dataclass(frozen=True)
class Addresses:
    """The sizes and base addresses of the arenas in main memory."""

    arenas: Mapping[str, int]
    """Bytes of each arena, by name."""
    bases: Mapping[str, int]
    """Addresses of the arenas, and of the image after them."""

    @classmethod
    def of(cls, compilation: Compilation, image: str) -> Addresses:
        """Weights first, activations after them, then the image, each on a page of its own; weights
        in a memory of their own lie at its start."""
        arenas = {name: int(compilation.arenas.get(name, 0)) for name in (WEIGHTS, ACTIVATIONS)}
        bases: dict[str, int] = {}
        offset = 0
        for name, size in arenas.items():
            bases[name] = offset
            if name != WEIGHTS or len(compilation.machine.homes) == 1:
                offset += align_up(size, PAGE)
        bases[image] = offset
        return cls(arenas, bases)


@dataclass(frozen=True)
class ProgramParts:
    """A package read from disk, its words not yet decoded."""

    file: ProgramFile
    machine: Machine
    data: bytes
    """The instruction words, as bytes."""
    network: NetworkOp
    module: ModuleOp
    """The module that owns the network."""
    weights: NDArray[np.uint8]
    """Mapped: it may be large and is only read."""
    image: NDArray[np.uint8]
    directory: Path


def write_program(
    compilation: Compilation,
    directory: Path,
    addresses: Addresses,
    *,
    words: bytes,
    word_bytes: int,
    weights: NDArray[np.uint8],
    image: bytes,
    kernels: Sequence[KernelRow],
    steps: Sequence[tuple[str, int]],
) -> None:
    """Write the files; the image goes into ``NAME.bin`` by the name that it has in addresses."""
    (name,) = set(addresses.bases) - set(addresses.arenas)
    file = ProgramFile(
        machine=compilation.machine.model_dump(mode="json", exclude_none=True),
        word_bytes=word_bytes,
        arenas=dict(addresses.arenas),
        bases=dict(addresses.bases),
        kernels=tuple(kernels),
        steps=tuple(steps),
        host_seconds=dict(compilation.host_seconds),
    )
    (directory / "program.bin").write_bytes(words)
    (directory / f"{name}.bin").write_bytes(image)
    weights.tofile(directory / "weights.bin")
    (directory / "network.mlir").write_text(compilation.text)
    emit_kernels(compilation, directory)
    (directory / "program.json").write_text(file.model_dump_json(indent=1, by_alias=True) + "\n")


def read_program(directory: Path, image: str) -> ProgramParts:
    """Read the files; refuses (``package-invalid``) what is damaged or does not fit together."""
    try:
        text = (directory / "program.json").read_text()
        file = ProgramFile.model_validate_json(text)
        machine = machine_of(file.machine, str(directory / "program.json"))
        data = (directory / "program.bin").read_bytes()
        source = (directory / "network.mlir").read_text()
        weights = _mapped(directory / "weights.bin")
        image_data = np.frombuffer((directory / f"{image}.bin").read_bytes(), np.uint8).copy()
    except (OSError, ValidationError, UnicodeDecodeError) as error:
        raise refuse("package-invalid", first_reason(error), str(directory)) from None
    try:
        module = Parser(graph_context(), source).parse_module()
        module.verify()
        network = network_of(module)
        for kernel in network.kernels:
            for value in (*kernel.inputs, kernel.result):
                placement_of(value)  # Raises where there is none.
    except (ParseError, VerifyException) as error:
        raise refuse("package-invalid", str(error)[:300], str(directory / "network.mlir")) from None
    symbols = {op.symbol.data for op in network.kernels}
    _check(file, image, weights.size, symbols, directory, machine)
    return ProgramParts(file, machine, data, network, module, weights, image_data, directory)


def check_words(parts: ProgramParts, word_bytes: int) -> None:
    """Refuse (``package-invalid``) words of another size than the machine's, or too few."""
    last = max((row.end for row in parts.file.kernels), default=0)
    if parts.file.word_bytes != word_bytes or len(parts.data) % word_bytes:
        raise refuse("package-invalid", "the words have another size", str(parts.directory))
    if last * word_bytes > len(parts.data):
        raise refuse("package-invalid", "words are missing", str(parts.directory))


def remarks_of(rows: Sequence[KernelRow]) -> list[tuple[int, str]]:
    """Return the listing's remark before each kernel's first instruction, with its place."""
    return [
        (row.start, f"kernel {row.symbol}: {', '.join(row.nodes)}".rstrip(": ")) for row in rows
    ]


def _mapped(path: Path) -> NDArray[np.uint8]:
    if path.stat().st_size == 0:
        return np.zeros(0, np.uint8)
    return np.memmap(path, np.uint8, mode="r")


def _check(
    file: ProgramFile,
    image: str,
    weights: int,
    symbols: Set[str],
    directory: Path,
    machine: Machine,
) -> None:
    rooms = {m.name: m.bytes or 0 for m in machine.memories if "results" in m.resident}
    staying = [row.stays for row in file.kernels if row.stays is not None]
    order = (WEIGHTS, ACTIVATIONS, image)
    bases = [file.bases.get(name, -1) for name in order]
    sizes = [file.arenas.get(name, -1) for name in (WEIGHTS, ACTIVATIONS)]
    problems = [
        (set(file.arenas) != {WEIGHTS, ACTIVATIONS}, "the arenas are not those of a package"),
        (set(file.bases) != set(order), "the addresses are incomplete"),
        (min(bases) < 0 or max(bases) > 4 * MAX_ARENA, "the addresses are out of range"),
        (sizes[0] != weights, "weights.bin has another size"),
        (not 0 <= sizes[1] <= MAX_ARENA, "the activations are too large"),
        (len(machine.homes) == 1 and bases[1] < bases[0] + sizes[0], "the arenas overlap"),
        (bases[2] < bases[1] + sizes[1], "the arenas overlap"),
        (
            not {row.symbol for row in file.kernels} <= symbols,
            "a kernel is not in the network",
        ),
        (any(row.end < row.start for row in file.kernels), "a kernel ends before it starts"),
        (
            any(
                each.address + each.bytes > rooms.get(each.memory, -1)
                or each.place + each.bytes > sizes[1]
                for each in staying
            ),
            "a result stays where it finds no room",
        ),
        (
            not all(_is_step(kind, number, len(file.kernels)) for kind, number in file.steps),
            "a step is unknown",
        ),
    ]
    for wrong, reason in problems:
        if wrong:
            raise refuse("package-invalid", reason, str(directory))


def _is_step(kind: str, number: int, kernels: int) -> bool:
    return number >= 0 and (kind == "host" or (kind == "words" and number < kernels))
