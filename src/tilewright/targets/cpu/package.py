"""The files of a package: header, kernels, the network's steps, a main, a Makefile, weights."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.errors import refuse
from tilewright.graph.dialect import NetworkOp, WeightOp, network_of
from tilewright.graph.names import identifier
from tilewright.graph.placement import WEIGHTS, placement_of
from tilewright.ir import SSAValue
from tilewright.planning.layout import Layout
from tilewright.targets.base import Compilation, CompiledKernel
from tilewright.targets.cpu.compiler import FLAGS, NATIVE
from tilewright.targets.cpu.source import Writer, comment, string
from tilewright.targets.cpu.walk import KERNEL, KernelSource, kernel_source
from tilewright.tile.dialect import programs_of
from tilewright.types import element_dtype, layout_of, shape_of, tensor_type

SUPPORT = Path(__file__).parent / "support"
"""C files that every package includes as they are."""

MANIFEST = "program.json"
ALIGNMENT = 64
"""Bytes to which both arenas are aligned."""

_C_OF_DTYPE = {"float32": "float", "int16": "int16_t", "int32": "int32_t", "int8": "int8_t"}


@dataclass(frozen=True)
class Port:
    """An input or output of the network: where its tensor lies in the workspace."""

    name: str
    identifier: str
    shape: tuple[int, ...]
    dtype: str
    layout: str
    arena: str
    offset: int
    strides: tuple[int, ...]

    @classmethod
    def of(cls, name: str, value: SSAValue) -> Port:
        """The port of a network's value that has a placement."""
        place = placement_of(value)
        kind = tensor_type(value)
        return cls(
            name,
            identifier(name, "port"),
            shape_of(value),
            str(element_dtype(kind.element_type)),
            layout_of(value),
            place.arena,
            place.offset,
            place.strides,
        )

    @property
    def c_type(self) -> str:
        """C's name of the element type."""
        if self.dtype not in _C_OF_DTYPE:
            raise refuse("cpu-type", f"elements of {self.dtype} are not supported", self.name)
        return _C_OF_DTYPE[self.dtype]

    @property
    def elements(self) -> int:
        """Elements of the caller's array."""
        return prod(self.shape)

    @property
    def dense(self) -> bool:
        """Whether the tensor lies as the caller's array does."""
        layout = Layout.parse(self.layout, len(self.shape))
        return layout.row_major and self.strides == layout.strides(self.shape)

    def to_json(self) -> dict[str, Any]:
        """For the manifest."""
        return {
            "name": self.name,
            "shape": list(self.shape),
            "dtype": self.dtype,
            "layout": self.layout,
            "arena": self.arena,
            "offset": self.offset,
            "strides": list(self.strides),
        }


@dataclass(frozen=True)
class Step:
    """One kernel of the network: which function it runs, and on what."""

    kernel: CompiledKernel
    source: KernelSource
    function: str
    arguments: tuple[str, ...]


def write_package(
    compilation: Compilation, directory: Path, kernels: Sequence[CompiledKernel], lanes: int
) -> list[Path]:
    """Write all files for the given kernels of a compilation; returns them, sorted."""
    network = network_of(compilation.network)
    prefix = identifier(network.symbol.data, "model")
    inputs = [Port.of(name, value) for name, value in network.inputs]
    outputs = [Port.of(name, value) for name, value in network.outputs]
    inputs, outputs = _distinct(inputs, outputs)
    functions, steps = _steps(kernels, lanes, prefix)
    files: dict[str, str | bytes] = {
        f"program/include/{prefix}.h": _header(prefix, compilation, inputs, outputs, steps),
        f"program/src/{prefix}.c": _network(prefix, inputs, outputs, steps, functions),
        "program/src/kernels.h": _kernels_header(prefix, functions, lanes),
        "program/src/vectors.h": (SUPPORT / "vectors.h").read_text(),
        "program/main.c": _main(prefix, inputs, outputs),
        "program/Makefile": _makefile(prefix),
        f"program/{MANIFEST}": _manifest(prefix, compilation, inputs, outputs, steps, lanes),
    }
    for name, source, used in functions:
        files[f"program/src/{name.removeprefix(prefix + '_')}.c"] = _kernel_file(
            prefix, name, source, used
        )
    paths: list[Path] = []
    for name, content in sorted(files.items()):
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        paths.append(path)
    weights = directory / "program" / "weights.bin"
    write_weights(network, compilation, weights)
    return sorted([*paths, weights])


def _distinct(inputs: list[Port], outputs: list[Port]) -> tuple[list[Port], list[Port]]:
    """Ports with C names that differ, whatever the model calls them."""
    taken: set[str] = {"weights", "workspace", "seconds", "step"}

    def fresh(port: Port) -> Port:
        name, number = port.identifier, 2
        while name in taken:
            name, number = f"{port.identifier}_{number}", number + 1
        taken.add(name)
        return Port(**{**port.__dict__, "identifier": name})

    return [fresh(port) for port in inputs], [fresh(port) for port in outputs]


Functions = list[tuple[str, KernelSource, list[CompiledKernel]]]


def _steps(
    kernels: Sequence[CompiledKernel], lanes: int, prefix: str
) -> tuple[Functions, list[Step]]:
    """The kernels' functions, equal ones shared, and the steps that call them."""
    functions: Functions = []
    by_text: dict[str, int] = {}
    steps: list[Step] = []
    for kernel in kernels:
        if kernel.program is None:
            raise refuse("cpu-program", "has no tile program", kernel.kernel.symbol)
        source = kernel_source(kernel.program, lanes)
        if source.text not in by_text:
            by_text[source.text] = len(functions)
            name = f"{prefix}_k{len(functions):02d}_{identifier(source.operation, 'kernel')}"
            functions.append((name, source, []))
        name, _, used = functions[by_text[source.text]]
        used.append(kernel)
        steps.append(Step(kernel, source, name, _arguments(kernel, source)))
    return functions, steps


def _arguments(kernel: CompiledKernel, source: KernelSource) -> tuple[str, ...]:
    assert kernel.program is not None
    tensors = programs_of(kernel.program)[0].tensors
    arguments: list[str] = []
    for argument in source.arguments:
        op = tensors[argument.tensor]
        if op.arena is None or op.offset is None:
            raise refuse(
                "cpu-placement", f"tensor {argument.tensor} has no place", kernel.kernel.symbol
            )
        arena = "weights" if op.arena.data == WEIGHTS else "workspace"
        constant = "" if argument.written else "const "
        offset = op.offset.value.data
        arguments.append(f"({constant}{argument.c_type} *)({arena} + {offset})")
    return tuple(arguments)


def _nodes(kernel: CompiledKernel) -> str:
    return comment(", ".join(kernel.kernel.nodes) or kernel.kernel.symbol)


def _kernel_file(
    prefix: str, name: str, source: KernelSource, used: Sequence[CompiledKernel]
) -> str:
    lines = [f"/* Computes {_nodes(used[0])}."]
    lines += [f" * Also {_nodes(kernel)}." for kernel in used[1:]]
    schedule = used[0].schedule
    if schedule is not None:
        lines.append(f" * Schedule: {comment(str(schedule))}")
    lines += [" */", '#include "kernels.h"', "", source.text.replace(KERNEL, name)]
    return "\n".join(lines)


def _kernels_header(prefix: str, functions: Functions, lanes: int) -> str:
    guard = f"{prefix.upper()}_KERNELS_H"
    lines = [
        f"/* The kernels of {prefix}: each runs one group of the network's nodes. */",
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        f"#define LANES {lanes}",
        '#include "vectors.h"',
        "",
    ]
    for name, source, _ in functions:
        lines.append(source.prototype.replace(KERNEL, name) + ";")
    return "\n".join([*lines, "", "#endif", ""])


def _parameters(inputs: Sequence[Port], outputs: Sequence[Port]) -> str:
    listed = [f"const {port.c_type} *{port.identifier}" for port in inputs]
    listed += [f"{port.c_type} *{port.identifier}" for port in outputs]
    return ", ".join(listed)


def _header(
    prefix: str,
    compilation: Compilation,
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    steps: Sequence[Step],
) -> str:
    upper = prefix.upper()
    arenas = dict(compilation.arenas)
    weights = arenas.pop(WEIGHTS, 0)
    workspace = sum(arenas.values())
    parameters = _parameters(inputs, outputs)
    lines = [
        f"/* {prefix}: a neural network in C. No dependencies, no allocation, no global state:",
        " * any number of threads may run it at once, each with a workspace of its own.",
        " */",
        f"#ifndef {upper}_H",
        f"#define {upper}_H",
        "",
        "#include <stdint.h>",
        "",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        "/* Bytes of weights.bin, and of the workspace; both are aligned to 64 bytes in memory. */",
        f"#define {upper}_WEIGHT_BYTES {weights}",
        f"#define {upper}_WORKSPACE_BYTES {workspace}",
        f"#define {upper}_STEPS {len(steps)}",
        "",
    ]
    for kind, ports in (("Input", inputs), ("Output", outputs)):
        for port in ports:
            shape = " x ".join(map(str, port.shape)) or "one element"
            lines.append(f"/* {kind} {comment(port.name)}: {port.dtype}, {shape}. */")
            lines.append(f"#define {upper}_{port.identifier.upper()}_ELEMENTS {port.elements}")
    lines += [
        "",
        "/* Run the network once. */",
        f"void {prefix}_run(const void *weights, void *workspace, {parameters});",
        "",
        "/* The same, with the seconds that each step took. */",
        f"void {prefix}_profile(const void *weights, void *workspace, {parameters},",
        f"    double seconds[{max(len(steps), 1)}]);",
        "",
        "/* Run one step on tensors that lie in the workspace already. */",
        f"void {prefix}_step(int step, const void *weights, void *workspace);",
        "",
        "#ifdef __cplusplus",
        "}",
        "#endif",
        "",
        "#endif",
        "",
    ]
    return "\n".join(lines)


def _network(
    prefix: str,
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    steps: Sequence[Step],
    functions: Functions,
) -> str:
    del functions
    writer = Writer()
    writer.line(f"/* The steps of {prefix}, in order, and where their tensors lie. */")
    writer.line("#ifndef _POSIX_C_SOURCE")
    writer.line("#define _POSIX_C_SOURCE 199309L /* clock_gettime */")
    writer.line("#endif")
    writer.line(f'#include "{prefix}.h"')
    writer.line("#include <time.h>")
    writer.line('#include "kernels.h"')
    writer.line()
    writer.line(f"void {prefix}_step(int step, const void *weights_, void *workspace_)")
    with writer.block():
        writer.line("const unsigned char *weights = weights_;")
        writer.line("unsigned char *workspace = workspace_;")
        writer.line("(void)weights;")
        writer.line("(void)workspace;")
        writer.line("switch (step) {")
        for number, step in enumerate(steps):
            writer.line(f"case {number}: /* {_nodes(step.kernel)} */")
            writer.depth += 1
            writer.line(f"{step.function}(")
            for argument in step.arguments[:-1]:
                writer.line(f"    {argument},")
            writer.line(f"    {step.arguments[-1]});")
            writer.line("break;")
            writer.depth -= 1
        writer.line("default:")
        writer.line("    break;")
        writer.line("}")
    writer.line()
    _write_copies(writer, "enter", inputs, True)
    _write_copies(writer, "leave", outputs, False)
    names_in = ", ".join(["workspace", *(p.identifier for p in inputs)])
    names_out = ", ".join(["weights", "workspace", *(p.identifier for p in outputs)])
    parameters = _parameters(inputs, outputs)
    writer.line(f"void {prefix}_run(const void *weights, void *workspace, {parameters})")
    with writer.block():
        writer.line(f"enter({names_in});")
        writer.line(f"for (int step = 0; step < {len(steps)}; step++)")
        writer.line(f"    {prefix}_step(step, weights, workspace);")
        writer.line(f"leave({names_out});")
    writer.line()
    writer.line("static double now(void)")
    with writer.block():
        writer.line("struct timespec t;")
        writer.line("clock_gettime(CLOCK_MONOTONIC, &t);")
        writer.line("return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;")
    writer.line()
    writer.line(
        f"void {prefix}_profile(const void *weights, void *workspace, {parameters}, "
        f"double seconds[{max(len(steps), 1)}])"
    )
    with writer.block():
        writer.line(f"enter({names_in});")
        with writer.block(f"for (int step = 0; step < {len(steps)}; step++)"):
            writer.line("const double start = now();")
            writer.line(f"{prefix}_step(step, weights, workspace);")
            writer.line("seconds[step] = now() - start;")
        writer.line(f"leave({names_out});")
    return str(writer)


def _write_copies(writer: Writer, name: str, ports: Sequence[Port], entering: bool) -> None:
    """A function that copies the caller's arrays into the workspace, or out of it."""
    if entering:
        listed = [f"const {port.c_type} *{port.identifier}" for port in ports]
        writer.line(f"static void {name}({', '.join(['void *workspace', *listed])})")
    else:
        listed = [f"{port.c_type} *{port.identifier}" for port in ports]
        arenas = ["const void *weights", "const void *workspace"]
        writer.line(f"static void {name}({', '.join([*arenas, *listed])})")
    with writer.block():
        writer.line("(void)workspace;")
        if not entering:
            writer.line("(void)weights;")
        for port in ports:
            _write_copy(writer, port, entering)
    writer.line()


def _write_copy(writer: Writer, port: Port, entering: bool) -> None:
    arena = "weights" if port.arena == WEIGHTS else "workspace"
    constant = "" if entering else "const "
    place = f"({constant}{port.c_type} *)(({constant}unsigned char *){arena} + {port.offset})"
    if port.dense:
        size = f"{port.elements} * sizeof({port.c_type})"
        if entering:
            writer.line(f"memcpy({place}, {port.identifier}, {size});")
        else:
            writer.line(f"memcpy({port.identifier}, {place}, {size});")
        return
    layout = Layout.parse(port.layout, len(port.shape))
    with writer.block():
        writer.line(f"{constant}{port.c_type} *place = {place};")
        writer.line("long i = 0;")
        for axis, extent in enumerate(port.shape):
            writer.line(f"for (long a{axis} = 0; a{axis} < {extent}; a{axis}++)")
        terms: list[str] = []
        for factor, stride in zip(layout.factors, port.strides, strict=True):
            digit = f"a{factor.axis}"
            digit += f" / {factor.divisor}" if factor.divisor > 1 else ""
            digit += f" % {factor.modulus}" if factor.modulus else ""
            terms.append(f"{digit} * {stride}")
        there = f"place[{' + '.join(terms) or '0'}]"
        mine = f"{port.identifier}[i++]"
        writer.line("    " + (f"{there} = {mine};" if entering else f"{mine} = {there};"))


def _main(prefix: str, inputs: Sequence[Port], outputs: Sequence[Port]) -> str:
    """A program that reads inputs from files and writes outputs to files, as raw bytes."""
    upper = prefix.upper()
    names = ", ".join(port.identifier for port in [*inputs, *outputs])
    usage = " ".join(
        ["weights.bin", *(f"{p.identifier}.bin" for p in inputs)]
        + [f"{p.identifier}.bin" for p in outputs]
    )
    writer = Writer()
    writer.line(f"/* Runs {prefix} once on raw little-endian arrays in files:")
    writer.line(f" *   ./{prefix} {usage}")
    writer.line(" */")
    writer.line("#ifndef _POSIX_C_SOURCE")
    writer.line("#define _POSIX_C_SOURCE 200112L /* posix_memalign */")
    writer.line("#endif")
    for header in ("stdio", "stdlib"):
        writer.line(f"#include <{header}.h>")
    writer.line(f'#include "{prefix}.h"')
    writer.line()
    writer.line("static void *space(size_t bytes)")
    with writer.block():
        writer.line("void *p = NULL;")
        with writer.block(f"if (posix_memalign(&p, {ALIGNMENT}, bytes ? bytes : 1))"):
            writer.line('fputs("out of memory\\n", stderr);')
            writer.line("exit(1);")
        writer.line("return p;")
    writer.line()
    writer.line(
        "static void transfer(const char *path, const char *mode, void *data, size_t bytes)"
    )
    with writer.block():
        writer.line("FILE *file = fopen(path, mode);")
        writer.line("size_t done = 0;")
        writer.line("if (file)")
        writer.line("    done = *mode == 'r' ? fread(data, 1, bytes, file)")
        writer.line("                        : fwrite(data, 1, bytes, file);")
        with writer.block("if (!file || done != bytes || fclose(file))"):
            writer.line('fprintf(stderr, "%s: expected %zu bytes\\n", path, bytes);')
            writer.line("exit(1);")
    writer.line()
    writer.line("int main(int count, char **arguments)")
    with writer.block():
        with writer.block(f"if (count != {2 + len(inputs) + len(outputs)})"):
            writer.line(f'fprintf(stderr, "usage: %s %s\\n", arguments[0], {string(usage)});')
            writer.line("return 2;")
        writer.line(f"void *weights = space({upper}_WEIGHT_BYTES);")
        writer.line(f"void *workspace = space({upper}_WORKSPACE_BYTES);")
        writer.line(f'transfer(arguments[1], "rb", weights, {upper}_WEIGHT_BYTES);')
        for number, port in enumerate(inputs):
            size = f"{upper}_{port.identifier.upper()}_ELEMENTS * sizeof({port.c_type})"
            writer.line(f"{port.c_type} *{port.identifier} = space({size});")
            writer.line(f'transfer(arguments[{number + 2}], "rb", {port.identifier}, {size});')
        for port in outputs:
            size = f"{upper}_{port.identifier.upper()}_ELEMENTS * sizeof({port.c_type})"
            writer.line(f"{port.c_type} *{port.identifier} = space({size});")
        writer.line(f"{prefix}_run(weights, workspace, {names});")
        for number, port in enumerate(outputs, len(inputs) + 2):
            size = f"{upper}_{port.identifier.upper()}_ELEMENTS * sizeof({port.c_type})"
            writer.line(f'transfer(arguments[{number}], "wb", {port.identifier}, {size});')
        writer.line("return 0;")
    return str(writer)


def _makefile(prefix: str) -> str:
    flags = " ".join((*FLAGS, *NATIVE))
    return f"""# make: the shared library and the program; both depend on nothing but a C compiler.
CC ?= cc
CFLAGS ?= {flags}

SOURCES := $(wildcard src/*.c)
OBJECTS := $(SOURCES:.c=.o)

all: lib{prefix}.so {prefix}

%.o: %.c $(wildcard src/*.h) include/{prefix}.h
	$(CC) $(CFLAGS) -Iinclude -c $< -o $@

lib{prefix}.so: $(OBJECTS)
	$(CC) $(CFLAGS) -shared $^ -o $@ -lm

{prefix}: main.c $(OBJECTS)
	$(CC) $(CFLAGS) -Iinclude $^ -o $@ -lm

clean:
	rm -f $(OBJECTS) lib{prefix}.so {prefix}

.PHONY: all clean
"""


def _manifest(
    prefix: str,
    compilation: Compilation,
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    steps: Sequence[Step],
    lanes: int,
) -> str:
    arenas: Mapping[str, int] = compilation.arenas
    content = {
        "format": 1,
        "prefix": prefix,
        "lanes": lanes,
        "weight_bytes": arenas.get(WEIGHTS, 0),
        "workspace_bytes": sum(size for name, size in arenas.items() if name != WEIGHTS),
        "inputs": [port.to_json() for port in inputs],
        "outputs": [port.to_json() for port in outputs],
        "steps": [
            {"symbol": step.kernel.kernel.symbol, "nodes": list(step.kernel.kernel.nodes)}
            for step in steps
        ],
    }
    return json.dumps(content, indent=1) + "\n"


def write_weights(network: NetworkOp, compilation: Compilation, path: Path) -> None:
    """Write the arena of weights: every constant packed in the layout of its type."""
    size = compilation.arenas.get(WEIGHTS, 0)
    arena = np.zeros(size, np.uint8)
    for op in network.body.walk():
        if not isinstance(op, WeightOp) or op.placement is None:
            continue
        place = placement_of(op.result)
        kind = tensor_type(op.result)
        array = compilation.weights.get(op.symbol.data)
        layout = Layout.parse(layout_of(op.result), len(kind.get_shape()))
        packed = layout.pack(np.asarray(array, element_dtype(kind.element_type)))
        item = packed.dtype.itemsize
        if place.strides != layout.strides(kind.get_shape()):
            raise refuse("cpu-placement", "weights must lie dense", op.symbol.data)
        end = place.offset + packed.size * item
        if place.offset % item or end > size:
            raise refuse("cpu-placement", "a weight lies outside its arena", op.symbol.data)
        arena[place.offset : end] = packed.reshape(-1).view(np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    arena.tofile(path)
