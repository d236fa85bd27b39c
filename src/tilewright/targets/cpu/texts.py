"""The texts of a package: header, kernels, the network's steps, a main, a Makefile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.codegen.c.source import Writer, comment, string
from tilewright.codegen.host.calls import KERNEL, KernelSource
from tilewright.codegen.host.ports import Port
from tilewright.codegen.program.interface import ALIGNMENT, Compilation, CompiledKernel, Form
from tilewright.graph.placement import WEIGHTS
from tilewright.targets.cpu.copies import divided, write_enter, write_leave

Functions = list[tuple[str, KernelSource, list[CompiledKernel]]]
"""Name and source of every function, and the kernels that it computes."""


@dataclass(frozen=True)
class Step:
    """One kernel of the network: which function it runs, and on what."""

    kernel: CompiledKernel
    source: KernelSource
    function: str
    arguments: tuple[str, ...]
    scratch_bytes: int = 0
    """Of its scratch, which no two threads may share; 0 if it has none or one thread runs it."""


def scratch_bytes(steps: Sequence[Step]) -> int:
    """Bytes of scratch that each further thread of a team needs; whole cache lines."""
    return max((step.scratch_bytes for step in steps), default=0)


def _nodes(kernel: CompiledKernel) -> str:
    return comment(", ".join(kernel.kernel.nodes) or kernel.kernel.symbol)


def kernel_file_text(
    prefix: str, name: str, source: KernelSource, used: Sequence[CompiledKernel]
) -> str:
    """The source of one function, with the nodes that it computes."""
    lines = [f"/* Computes {_nodes(used[0])}."]
    lines += [f" * Also {_nodes(kernel)}." for kernel in used[1:]]
    schedule = used[0].schedule
    if schedule is not None:
        lines.append(f" * Schedule: {comment(str(schedule))}")
    lines += [" */", f'#include "{prefix}_kernels.h"', "", source.text.replace(KERNEL, name)]
    return "\n".join(lines)


def kernels_header_text(
    prefix: str, functions: Functions, lanes: int, form: Form, includes: Sequence[str]
) -> str:
    """The header that all sources share: what it ``includes`` of helpers, and every function."""
    guard = f"{prefix.upper()}_KERNELS_H"
    lines = [
        f"/* The kernels of {prefix}: each runs one group of the network's nodes. */",
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        *(["#define BARE /* no operating system */"] if form.bare else []),
        f"#define LANES {lanes}",
        *(line.replace('#include "', f'#include "{prefix}_') for line in includes),
        "",
    ]
    for name, source, _ in functions:
        lines.append(source.prototype.replace(KERNEL, name) + ";")
    return "\n".join([*lines, "", "#endif", ""])


def _parameters(inputs: Sequence[Port], outputs: Sequence[Port]) -> str:
    listed = [f"const {port.c_type} *{port.identifier}" for port in inputs]
    listed += [f"{port.c_type} *{port.identifier}" for port in outputs]
    return ", ".join(listed)


def header_text(
    prefix: str,
    compilation: Compilation,
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    steps: Sequence[Step],
    identity: int | None,
) -> str:
    """The package's one public header; ``identity`` is the weights' checksum, if it has them."""
    form = compilation.form
    upper = prefix.upper()
    arenas = dict(compilation.arenas)
    weights = arenas.pop(WEIGHTS, 0)
    workspace = sum(arenas.values())
    scratch = scratch_bytes(steps)
    parameters = _parameters(inputs, outputs)
    lines = [
        *_introduction(prefix, form),
        f"#ifndef {upper}_H",
        f"#define {upper}_H",
        "",
        "#include <stdint.h>",
        "",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        "/* Bytes of the weights, and of the workspace; both are aligned to 64 bytes in memory. */",
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
        *_weights_lines(prefix, form, identity),
        "/* Run the network once. */",
        f"void {prefix}_run(const void *weights, void *workspace, {parameters});",
        "",
    ]
    shared = [
        "/* The same, with the seconds from the start of each step to that of the next. */",
        f"void {prefix}_profile(const void *weights, void *workspace, {parameters},",
        f"    double seconds[{max(len(steps), 1)}]);",
        "",
        "/* Threads that share the work of a run. Results are the same with any number of them. A",
        " * team serves one run at a time; NULL is the calling thread alone. team_start gives NULL",
        " * when the system has no threads left.",
        " */",
        f"struct {prefix}_team;",
        f"struct {prefix}_team *{prefix}_team_start(int threads);",
        f"void {prefix}_team_stop(struct {prefix}_team *team);",
        "",
        "/* Run by a team, in a workspace of TEAM_WORKSPACE_BYTES of its number of threads. */",
        f"#define {upper}_TEAM_WORKSPACE_BYTES(threads) \\",
        f"    ({-(-workspace // ALIGNMENT) * ALIGNMENT}LL + {scratch}LL * ((threads) - 1))",
        f"void {prefix}_run_by(struct {prefix}_team *team, const void *weights, void *workspace,",
        f"    {parameters});",
        f"void {prefix}_profile_by(struct {prefix}_team *team, const void *weights,",
        f"    void *workspace, {parameters}, double seconds[{max(len(steps), 1)}]);",
        "",
    ]
    lines += [
        *([] if form.bare else shared),
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


def _introduction(prefix: str, form: Form) -> list[str]:
    """The header's first lines."""
    if form.bare:
        return [
            f"/* {prefix}: a neural network in C, without threads, heap, files and clocks.",
            " * It needs memcpy, memset, and what it uses of <math.h>.",
            " */",
        ]
    return [
        f"/* {prefix}: a neural network in C. No dependencies, no global state, no allocation but",
        " * of teams: any number of threads may run it at once, each with a workspace of its own.",
        " */",
    ]


def _weights_lines(prefix: str, form: Form, identity: int | None) -> list[str]:
    """The weights' array, or how those of the file are known."""
    if identity is None:
        return []
    if form.weights == "array":
        return [
            "/* The weights, to be given to every run. */",
            f"typedef uint32_t __attribute__((may_alias)) {prefix}_word;",
            f"extern const {prefix}_word {prefix}_weights[];",
            "",
        ]
    return [
        "/* CRC-32 of weights.bin. check_weights gives 0 for these weights, and 1 for others: call",
        " * it once they are read, as no run looks again.",
        " */",
        f"#define {prefix.upper()}_WEIGHTS_ID 0x{identity:08x}U",
        f"int {prefix}_check_weights(const void *weights);",
        "",
    ]


def network_text(
    prefix: str,
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    steps: Sequence[Step],
    form: Form,
    identity: int | None,
) -> str:
    """The source that runs the steps in order."""
    writer = Writer()
    writer.line(f"/* The steps of {prefix}, in order, and where their tensors lie. */")
    if form.bare:
        writer.line(f'#include "{prefix}.h"')
        writer.line(f'#include "{prefix}_kernels.h"')
        writer.line()
        if any(step.scratch_bytes for step in steps):
            writer.line("#define FURTHER_SCRATCH(part) 0L /* there is one thread */")
            writer.line()
        _write_step(writer, prefix, steps)
        write_enter(writer, inputs)
        write_leave(writer, outputs)
        _write_bare_run(writer, prefix, inputs, outputs, steps)
        return str(writer)
    writer.line("#ifndef _POSIX_C_SOURCE")
    writer.line("#define _POSIX_C_SOURCE 200112L /* clock_gettime, threads */")
    writer.line("#endif")
    writer.line(f'#include "{prefix}.h"')
    writer.line("#include <time.h>")
    writer.line(f'#include "{prefix}_kernels.h"')
    writer.line(f'#include "{prefix}_team.h"')
    checked = identity is not None and form.weights == "file"
    if checked:
        writer.line(f'#include "{prefix}_checksum.h"')
    writer.line()
    if any(step.scratch_bytes for step in steps):
        writer.line("/* Where the scratch of threads but the first lies. */")
        writer.line(f"#define FURTHER_SCRATCH(part) {prefix.upper()}_TEAM_WORKSPACE_BYTES(part)")
        writer.line()
    _write_step(writer, prefix, steps)
    write_enter(writer, inputs)
    write_leave(writer, outputs)
    _write_work(writer, prefix, inputs, outputs, steps)
    _write_entries(writer, prefix, inputs, outputs, steps)
    if checked:
        writer.line()
        writer.line(f"int {prefix}_check_weights(const void *weights)")
        with writer.block():
            upper = prefix.upper()
            writer.line(f"return checksum(weights, {upper}_WEIGHT_BYTES) != {upper}_WEIGHTS_ID;")
    return str(writer)


def _write_bare_run(
    writer: Writer,
    prefix: str,
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    steps: Sequence[Step],
) -> None:
    """The one entry of a package without threads."""
    parameters = _parameters(inputs, outputs)
    writer.line(f"void {prefix}_run(const void *weights, void *workspace, {parameters})")
    with writer.block():
        entering = ["workspace", *(port.identifier for port in inputs), "0", "1"]
        writer.line(f"enter({', '.join(entering)});")
        writer.line(f"for (int step = 0; step < {len(steps)}; step++)")
        writer.line("    compute(step, 0, 1, weights, workspace);")
        leaving = ["weights", "workspace", *(port.identifier for port in outputs)]
        writer.line(f"leave({', '.join(leaving)});")


def _write_step(writer: Writer, prefix: str, steps: Sequence[Step]) -> None:
    """A function that computes one part of one step; unshared steps are computed by part 0."""
    divided = "long part, long parts, const unsigned char *weights, unsigned char *workspace"
    writer.line(f"static void compute(int step, {divided})")
    with writer.block():
        for name in ("part", "parts", "weights", "workspace"):
            writer.line(f"(void){name};")
        writer.line("switch (step) {")
        for number, step in enumerate(steps):
            writer.line(f"case {number}: /* {_nodes(step.kernel)} */")
            writer.depth += 1
            arguments = [*step.arguments, *(("part", "parts") if step.source.shared else ())]
            if not step.source.shared:
                writer.line("if (part == 0)")
                writer.depth += 1
            writer.line(f"{step.function}(")
            for argument in arguments[:-1]:
                writer.line(f"    {argument},")
            writer.line(f"    {arguments[-1]});")
            writer.depth -= 1 if step.source.shared else 2
            writer.line("    break;")
        writer.line("default:")
        writer.line("    break;")
        writer.line("}")
    writer.line()
    writer.line(f"void {prefix}_step(int step, const void *weights, void *workspace)")
    with writer.block():
        writer.line("compute(step, 0, 1, weights, workspace);")
    writer.line()


def _write_work(
    writer: Writer,
    prefix: str,
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    steps: Sequence[Step],
) -> None:
    """Write a thread's work: its part of each step, with barriers in between."""
    shared = [step.source.shared for step in steps]
    # Threads meet wherever one may need what another made: beside each shared step, and where
    # they have divided the inputs.
    apart = any(shared) and any(divided(port) for port in inputs)
    meets = [
        int(before or after)
        for before, after in zip([apart, *shared], [*shared, False], strict=True)
    ]
    writer.line("struct job {")
    for kind in ("const void *weights", "void *workspace", "double *seconds"):
        writer.line(f"    {kind};")
    for port in inputs:
        writer.line(f"    const {port.c_type} *{port.identifier};")
    for port in outputs:
        writer.line(f"    {port.c_type} *{port.identifier};")
    writer.line("};")
    writer.line()
    writer.line("/* Before which steps, and before the end, threads wait for each other. */")
    writer.line(f"static const char meets[] = {{{', '.join(map(str, meets))}}};")
    writer.line()
    writer.line("static double now(void)")
    with writer.block():
        writer.line("struct timespec t;")
        writer.line("clock_gettime(CLOCK_MONOTONIC, &t);")
        writer.line("return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;")
    writer.line()
    writer.line("static void work(void *argument, struct team *team, long part, long parts)")
    names_in = ["job->workspace", *(f"job->{p.identifier}" for p in inputs), "part", "parts"]
    names_out = ["job->weights", "job->workspace", *(f"job->{p.identifier}" for p in outputs)]
    with writer.block():
        writer.line("const struct job *job = argument;")
        writer.line("double start = 0.0;")
        writer.line(f"enter({', '.join(names_in)});")
        with writer.block(f"for (int step = 0; step < {len(steps)}; step++)"):
            writer.line("if (team && meets[step])")
            writer.line("    team_meet(team);")
            with writer.block("if (part == 0 && job->seconds)"):
                writer.line("const double time = now();")
                writer.line("if (step)")
                writer.line("    job->seconds[step - 1] = time - start;")
                writer.line("start = time;")
            writer.line("compute(step, part, parts, job->weights, job->workspace);")
        writer.line(f"if (team && meets[{len(steps)}])")
        writer.line("    team_meet(team);")
        if steps:
            writer.line("if (part == 0 && job->seconds)")
            writer.line(f"    job->seconds[{len(steps) - 1}] = now() - start;")
        writer.line("if (part == 0)")
        writer.line(f"    leave({', '.join(names_out)});")
    writer.line()


def _write_entries(
    writer: Writer,
    prefix: str,
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    steps: Sequence[Step],
) -> None:
    """The public functions of the header, but for the step."""
    parameters = _parameters(inputs, outputs)
    names = ", ".join(port.identifier for port in [*inputs, *outputs])
    fields = ", ".join(port.identifier for port in [*inputs, *outputs])
    team = f"struct {prefix}_team *team"
    arenas = "const void *weights, void *workspace"
    seconds = f"double seconds[{max(len(steps), 1)}]"
    divided = any(step.source.shared for step in steps)
    writer.line(f"struct {prefix}_team *{prefix}_team_start(int threads)")
    with writer.block():
        writer.line(f"return (struct {prefix}_team *)team_start(threads);")
    writer.line()
    writer.line(f"void {prefix}_team_stop({team})")
    with writer.block():
        writer.line("team_stop((struct team *)team);")
    for name, extra, timed in (("run", "", "NULL"), ("profile", f", {seconds}", "seconds")):
        writer.line()
        writer.line(f"void {prefix}_{name}_by({team}, {arenas}, {parameters}{extra})")
        with writer.block():
            writer.line(f"struct job job = {{weights, workspace, {timed}, {fields}}};")
            if divided:
                writer.line("team_run((struct team *)team, work, &job);")
            else:
                writer.line("(void)team; /* no step is long enough to be shared */")
                writer.line("team_run(NULL, work, &job);")
        writer.line()
        writer.line(f"void {prefix}_{name}({arenas}, {parameters}{extra})")
        with writer.block():
            more = ", seconds" if extra else ""
            writer.line(f"{prefix}_{name}_by(NULL, weights, workspace, {names}{more});")


def main_text(prefix: str, inputs: Sequence[Port], outputs: Sequence[Port], form: Form) -> str:
    """A program that reads inputs from files and writes outputs to files, as raw bytes."""
    upper = prefix.upper()
    names = ", ".join(port.identifier for port in [*inputs, *outputs])
    from_file = form.weights == "file"
    first = 2 if from_file else 1
    usage = " ".join(
        [*(["weights.bin"] if from_file else []), *(f"{p.identifier}.bin" for p in inputs)]
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
        with writer.block(f"if (count != {first + len(inputs) + len(outputs)})"):
            writer.line(f'fprintf(stderr, "usage: %s %s\\n", arguments[0], {string(usage)});')
            writer.line("return 2;")
        writer.line(f"void *workspace = space({upper}_WORKSPACE_BYTES);")
        if from_file:
            writer.line(f"void *weights = space({upper}_WEIGHT_BYTES);")
            writer.line(f'transfer(arguments[1], "rb", weights, {upper}_WEIGHT_BYTES);')
            with writer.block(f"if ({prefix}_check_weights(weights))"):
                text = string(
                    f"%s: these are not the weights of {prefix}: their CRC-32 is not %08x"
                )
                text = text[:-1] + '\\n"'
                writer.line(f"fprintf(stderr, {text}, arguments[1], {upper}_WEIGHTS_ID);")
                writer.line("return 1;")
        for number, port in enumerate(inputs):
            size = f"{upper}_{port.identifier.upper()}_ELEMENTS * sizeof({port.c_type})"
            writer.line(f"{port.c_type} *{port.identifier} = space({size});")
            writer.line(f'transfer(arguments[{number + first}], "rb", {port.identifier}, {size});')
        for port in outputs:
            size = f"{upper}_{port.identifier.upper()}_ELEMENTS * sizeof({port.c_type})"
            writer.line(f"{port.c_type} *{port.identifier} = space({size});")
        weights = "weights" if from_file else f"{prefix}_weights"
        writer.line(f"{prefix}_run({weights}, workspace, {names});")
        for number, port in enumerate(outputs, len(inputs) + first):
            size = f"{upper}_{port.identifier.upper()}_ELEMENTS * sizeof({port.c_type})"
            writer.line(f'transfer(arguments[{number}], "wb", {port.identifier}, {size});')
        owned = ["weights"] if from_file else []
        for name in (*owned, "workspace", *(p.identifier for p in [*inputs, *outputs])):
            writer.line(f"free({name});")
        writer.line("return 0;")
    return str(writer)
