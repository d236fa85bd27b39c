"""Packages of ACC-C: what ``emit`` writes and the runner reads.

The files are those of codegen/program/files.py, and:

program.hlal    the words as text, which the assembler accepts; kernels and nodes as comments
constants.bin   function tables, the machine's own image

In weights.bin the weights of products are laid out by segment.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tilewright.codegen.host.steps import steps_of
from tilewright.codegen.program.files import (
    Addresses,
    HeldResult,
    KernelRow,
    ProgramParts,
    check_words,
    read_program,
    write_program,
)
from tilewright.codegen.program.interface import Compilation
from tilewright.errors import Refusals
from tilewright.graph.arenas import write_value
from tilewright.graph.dialect import KernelOp, NetworkOp, WeightOp, network_of
from tilewright.graph.kernels import operand_values
from tilewright.graph.placement import WEIGHTS, placement_of
from tilewright.graph.values import value_names
from tilewright.ir.types import element_size
from tilewright.targets.cambricon.lowering.nest import nest_of
from tilewright.targets.cambricon.lowering.network import (
    CONSTANTS,
    HeldBias,
    Lowering,
    shared_weights,
)
from tilewright.targets.cambricon.statements import Words
from tilewright.targets.cambricon.statements import to_text as statements_text
from tilewright.tile.dialect import BufferOp, ProgramOp, programs_of
from tilewright.tile.passes.allocate import held

WORD_BYTES = 8


@dataclass(frozen=True)
class Package:
    """A package read from disk."""

    parts: ProgramParts
    words: Words


def write_package(compilation: Compilation, directory: Path) -> None:
    """Write the files; raises TilewrightError for what the instructions cannot say."""
    addresses = Addresses.of(compilation, CONSTANTS)
    network = network_of(compilation.network)
    programs = {
        compiled.kernel.symbol: program
        for compiled in compilation.kernels
        if compiled.program is not None
        for program in programs_of(compiled.program)
    }
    shared = shared_weights(list(programs.values()))
    lowering = Lowering(compilation.machine, addresses.bases, shared)
    lowering.hold(_held_biases(network, programs))
    steps, rows = _lower(compilation, network, programs, lowering)
    words = lowering.words()
    # These fill constants of the lowering's image, too.
    weights = _weights(compilation, network, lowering, addresses.arenas[WEIGHTS])
    (directory / "program.hlal").write_text(hlal_of(lowering))
    write_program(
        compilation,
        directory,
        addresses,
        words=words.astype("<u8").tobytes(),
        word_bytes=WORD_BYTES,
        weights=weights,
        image=bytes(lowering.image),
        kernels=rows,
        steps=steps,
    )


def hlal_of(lowering: Lowering) -> str:
    """The program as HLAL: one section of code."""
    return f".code\n{statements_text(lowering.statements)}"


def _lower(
    compilation: Compilation,
    network: NetworkOp,
    programs: dict[str, ProgramOp],
    lowering: Lowering,
) -> tuple[list[tuple[str, int]], list[KernelRow]]:
    """Lower the kernels in the network's order; the steps, and the words of each kernel."""
    kernels = {compiled.kernel.symbol: compiled for compiled in compilation.kernels}
    steps: list[tuple[str, int]] = []
    symbols: list[str] = []
    refused = Refusals()
    for number, op in steps_of(network):
        symbol = op.symbol.data if isinstance(op, KernelOp) else ""
        if symbol not in programs:
            steps.append(("host", number))
            continue
        compiled = kernels[symbol]
        with refused.of(symbol):
            lowering.kernel(
                programs[symbol],
                compiled.kernel.nodes,
                compiled.predicted_cycles,
                compiled.machine,
                compiled.keeps,
            )
        steps.append(("words", len(symbols)))
        symbols.append(symbol)
    refused.check()
    places = {
        op.symbol.data: placement_of(op.result).offset
        for op in network.block.ops
        if isinstance(op, KernelOp)
    }
    rows = [
        KernelRow(
            symbol=symbol,
            nodes=kernels[symbol].kernel.nodes,
            start=start,
            end=end,
            held=_held(programs[symbol], places[symbol]),
        )
        for symbol, (start, end) in zip(symbols, pairwise(lowering.starts), strict=True)
    ]
    return steps, rows


def _held_biases(network: NetworkOp, programs: dict[str, ProgramOp]) -> list[HeldBias]:
    """The biases that kernels find on the chip."""
    names = value_names(network)
    biases: dict[int, HeldBias] = {}
    for op in network.block.ops:
        if not isinstance(op, KernelOp) or op.symbol.data not in programs:
            continue
        values = operand_values(op, names)
        for buffer in programs[op.symbol.data].walk():
            if not isinstance(buffer, BufferOp) or not held(buffer):
                continue
            tensor = buffer.tensor_op
            if tensor.get("role") != "bias":
                continue
            size = prod(buffer.tensor_shape) * _element(buffer)
            place = placement_of(values[tensor.symbol.data])
            biases[tensor.get("offset")] = HeldBias(place.offset, tensor.get("offset"), size)
    return list(biases.values())


def _element(buffer: BufferOp) -> int:
    """Bytes of an element of a buffer's tensor."""
    return element_size(buffer.tensor_op.result.type.element_type)


def _held(program: ProgramOp, place: int) -> HeldResult | None:
    """A kernel's result that stays on the chip, as ``KernelRow`` has it."""
    output = nest_of(program).output
    if output is None or not held(output.buffer):
        return None
    tensor = output.buffer.tensor_op
    size = prod(output.buffer.tensor_shape) * _element(output.buffer)
    address = tensor.get("offset")
    return HeldResult(memory=output.buffer.memory, address=address, place=place, bytes=size)


def _weights(
    compilation: Compilation, network: NetworkOp, lowering: Lowering, size: int
) -> NDArray[np.uint8]:
    """The arena of weights."""
    arena = np.zeros(size, np.uint8)
    for op in network.block.ops:
        if not isinstance(op, WeightOp) or op.placement is None:
            continue
        values = compilation.weights.get(op.symbol.data)
        offset = placement_of(op.result).offset
        lowering.fill(offset, np.asarray(values))
        cut = lowering.segments.get(offset)
        if cut is None:
            write_value(op.result, {WEIGHTS: arena}, values)
            continue
        data = cut.relaid(np.asarray(values)).astype("<i2").view(np.uint8)
        arena[offset : offset + data.size] = data
    return arena


def read_package(directory: Path) -> Package:
    """Read the files; refuses (``package-invalid``) what is damaged or does not fit together."""
    parts = read_program(directory, CONSTANTS)
    check_words(parts, WORD_BYTES)
    return Package(parts, np.frombuffer(parts.data, "<u8").astype(np.uint64))
