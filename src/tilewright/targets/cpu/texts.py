"""The texts of a package: header, kernels, the network's steps, a main."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.codegen.c.source import Writer, comment, string
from tilewright.codegen.host.calls import KERNEL, KernelSource
from tilewright.codegen.host.ports import Port
from tilewright.codegen.program.interface import ALIGNMENT, CompiledKernel, Form
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


_ARENAS = "const void *weights, void *workspace"


@dataclass(frozen=True)
class NetworkText:
    """A network in C: its interface, the steps that run it, and a program around it."""

    prefix: str
    inputs: Sequence[Port]
    outputs: Sequence[Port]
    steps: Sequence[Step]
    form: Form
    identity: int | None
    """The weights' checksum; None for a package without weights."""

    @property
    def _upper(self) -> str:
        return self.prefix.upper()

    @property
    def _ports(self) -> list[Port]:
        return [*self.inputs, *self.outputs]

    @property
    def _parameters(self) -> list[str]:
        """C of the caller's arrays."""
        listed = [f"const {port.c_type} *{port.identifier}" for port in self.inputs]
        return listed + [f"{port.c_type} *{port.identifier}" for port in self.outputs]

    @property
    def _seconds(self) -> str:
        return f"double seconds[{max(len(self.steps), 1)}]"

    def header(self, weight_bytes: int, workspace_bytes: int) -> str:
        """The package's one public header."""
        prefix, upper = self.prefix, self._upper
        about = f"""\
/* {prefix}: a neural network in C. No dependencies, no global state, no allocation but
 * of teams: any number of threads may run it at once, each with a workspace of its own.
 */"""
        if self.form.bare:
            about = f"""\
/* {prefix}: a neural network in C, without threads, heap, files and clocks.
 * It needs memcpy, memset, and what it uses of <math.h>.
 */"""
        ports: list[str] = []
        for kind, listed in (("Input", self.inputs), ("Output", self.outputs)):
            for port in listed:
                shape = " x ".join(map(str, port.shape)) or "one element"
                ports.append(f"/* {kind} {comment(port.name)}: {port.dtype}, {shape}. */")
                ports.append(f"#define {self._elements(port)} {port.elements}")
        joined = "\n".join(ports)
        parameters = ", ".join(self._parameters)
        return f"""\
{about}
#ifndef {upper}_H
#define {upper}_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

/* Bytes of the weights, and of the workspace; both are aligned to 64 bytes in memory. */
#define {upper}_WEIGHT_BYTES {weight_bytes}
#define {upper}_WORKSPACE_BYTES {workspace_bytes}
#define {upper}_STEPS {len(self.steps)}

{joined}

{self._weights}/* Run the network once. */
void {prefix}_run({_ARENAS}, {parameters});

{"" if self.form.bare else self._teams(workspace_bytes)}\
/* Run one step on tensors that lie in the workspace already. */
void {prefix}_step(int step, {_ARENAS});

#ifdef __cplusplus
}}
#endif

#endif
"""

    @property
    def _weights(self) -> str:
        """The weights' array, or how those of the file are known."""
        if self.identity is None:
            return ""
        if self.form.weights == "array":
            return f"""\
/* The weights, to be given to every run. */
typedef uint32_t __attribute__((may_alias)) {self.prefix}_word;
extern const {self.prefix}_word {self.prefix}_weights[];

"""
        return f"""\
/* CRC-32 of weights.bin. check_weights gives 0 for these weights, and 1 for others: call
 * it once they are read, as no run looks again.
 */
#define {self._upper}_WEIGHTS_ID 0x{self.identity:08x}U
int {self.prefix}_check_weights(const void *weights);

"""

    def _teams(self, workspace_bytes: int) -> str:
        """The declarations of what several threads run."""
        prefix, parameters = self.prefix, ", ".join(self._parameters)
        workspace = -(-workspace_bytes // ALIGNMENT) * ALIGNMENT
        return f"""\
/* The same, with the seconds from the start of each step to that of the next. */
void {prefix}_profile({_ARENAS}, {parameters},
    {self._seconds});

/* Threads that share the work of a run. Results are the same with any number of them. A
 * team serves one run at a time; NULL is the calling thread alone. team_start gives NULL
 * when the system has no threads left.
 */
struct {prefix}_team;
struct {prefix}_team *{prefix}_team_start(int threads);
void {prefix}_team_stop(struct {prefix}_team *team);

/* Run by a team, in a workspace of TEAM_WORKSPACE_BYTES of its number of threads. */
#define {self._upper}_TEAM_WORKSPACE_BYTES(threads) \\
    ({workspace}LL + {scratch_bytes(self.steps)}LL * ((threads) - 1))
void {prefix}_run_by(struct {prefix}_team *team, {_ARENAS},
    {parameters});
void {prefix}_profile_by(struct {prefix}_team *team, const void *weights,
    void *workspace, {parameters}, {self._seconds});

"""

    def source(self) -> str:
        """The source that runs the steps in order."""
        prefix, upper, bare = self.prefix, self._upper, self.form.bare
        checked = self.identity is not None and self.form.weights == "file" and not bare
        writer = Writer()
        writer.line(f"/* The steps of {prefix}, in order, and where their tensors lie. */")
        if bare:
            writer.line(f'#include "{prefix}.h"\n#include "{prefix}_kernels.h"')
        else:
            writer.line(f"""\
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200112L /* clock_gettime, threads */
#endif
#include "{prefix}.h"
#include <time.h>
#include "{prefix}_kernels.h"
#include "{prefix}_team.h\"""")
        if checked:
            writer.line(f'#include "{prefix}_checksum.h"')
        writer.line()
        if any(step.scratch_bytes for step in self.steps):
            writer.line(
                "#define FURTHER_SCRATCH(part) 0L /* there is one thread */\n"
                if bare
                else "/* Where the scratch of threads but the first lies. */\n"
                f"#define FURTHER_SCRATCH(part) {upper}_TEAM_WORKSPACE_BYTES(part)\n"
            )
        self._write_compute(writer)
        write_enter(writer, self.inputs)
        write_leave(writer, self.outputs)
        writer.line(self._bare_run() if bare else self._work() + self._entries())
        if checked:
            writer.line(f"""
int {prefix}_check_weights(const void *weights)
{{
    return checksum(weights, {upper}_WEIGHT_BYTES) != {upper}_WEIGHTS_ID;
}}""")
        return str(writer)

    def _write_compute(self, writer: Writer) -> None:
        """A function that computes one part of one step; unshared steps are computed by part 0."""
        divided = "long part, long parts, const unsigned char *weights, unsigned char *workspace"
        writer.line(f"static void compute(int step, {divided})")
        with writer.block():
            for name in ("part", "parts", "weights", "workspace"):
                writer.line(f"(void){name};")
            writer.line("switch (step) {")
            for number, step in enumerate(self.steps):
                writer.line(f"case {number}: /* {_nodes(step.kernel)} */")
                writer.depth += 1
                arguments = [*step.arguments, *(("part", "parts") if step.source.shared else ())]
                if not step.source.shared:
                    writer.line("if (part == 0)")
                    writer.depth += 1
                writer.text(f"{step.function}(\n    " + ",\n    ".join(arguments) + ");")
                writer.depth -= 1 if step.source.shared else 2
                writer.line("    break;")
            writer.text("default:\n    break;\n}")
        writer.text(f"""
void {self.prefix}_step(int step, {_ARENAS})
{{
    compute(step, 0, 1, weights, workspace);
}}
""")

    def _bare_run(self) -> str:
        """The one entry of a package without threads."""
        entering = ", ".join(["workspace", *(port.identifier for port in self.inputs), "0", "1"])
        leaving = ", ".join(["weights", "workspace", *(port.identifier for port in self.outputs)])
        return f"""\
void {self.prefix}_run({_ARENAS}, {", ".join(self._parameters)})
{{
    enter({entering});
    for (int step = 0; step < {len(self.steps)}; step++)
        compute(step, 0, 1, weights, workspace);
    leave({leaving});
}}"""

    def _work(self) -> str:
        """A thread's work: its part of each step, with barriers in between."""
        shared = [step.source.shared for step in self.steps]
        # Threads meet wherever one may need what another made: beside each shared step, and where
        # they have divided the inputs.
        apart = any(shared) and any(divided(port) for port in self.inputs)
        meets = ", ".join(
            str(int(before or after))
            for before, after in zip([apart, *shared], [*shared, False], strict=True)
        )
        fields = "\n".join(f"    {parameter};" for parameter in self._parameters)
        inputs = [*(f"job->{port.identifier}" for port in self.inputs), "part", "parts"]
        entering = ", ".join(["job->workspace", *inputs])
        outputs = [f"job->{port.identifier}" for port in self.outputs]
        leaving = ", ".join(["job->weights", "job->workspace", *outputs])
        count = len(self.steps)
        last = f"""
    if (part == 0 && job->seconds)
        job->seconds[{count - 1}] = now() - start;"""
        return f"""\
struct job {{
    const void *weights;
    void *workspace;
    double *seconds;
{fields}
}};

/* Before which steps, and before the end, threads wait for each other. */
static const char meets[] = {{{meets}}};

static double now(void)
{{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}}

static void work(void *argument, struct team *team, long part, long parts)
{{
    const struct job *job = argument;
    double start = 0.0;
    enter({entering});
    for (int step = 0; step < {count}; step++) {{
        if (team && meets[step])
            team_meet(team);
        if (part == 0 && job->seconds) {{
            const double time = now();
            if (step)
                job->seconds[step - 1] = time - start;
            start = time;
        }}
        compute(step, part, parts, job->weights, job->workspace);
    }}
    if (team && meets[{count}])
        team_meet(team);{last if count else ""}
    if (part == 0)
        leave({leaving});
}}

"""

    def _entries(self) -> str:
        """The public functions of the header, but for the step."""
        prefix, parameters = self.prefix, ", ".join(self._parameters)
        names = ", ".join(port.identifier for port in self._ports)
        team = f"struct {prefix}_team *team"
        run = "team_run((struct team *)team, work, &job);"
        if not any(step.source.shared for step in self.steps):
            run = "(void)team; /* no step is long enough to be shared */\n"
            run += "    team_run(NULL, work, &job);"
        text = f"""\
struct {prefix}_team *{prefix}_team_start(int threads)
{{
    return (struct {prefix}_team *)team_start(threads);
}}

void {prefix}_team_stop({team})
{{
    team_stop((struct team *)team);
}}
"""
        for name, extra, timed in (("run", "", ""), ("profile", f", {self._seconds}", "seconds")):
            text += f"""
void {prefix}_{name}_by({team}, {_ARENAS}, {parameters}{extra})
{{
    struct job job = {{weights, workspace, {timed or "NULL"}, {names}}};
    {run}
}}

void {prefix}_{name}({_ARENAS}, {parameters}{extra})
{{
    {prefix}_{name}_by(NULL, weights, workspace, {names}{timed and ", seconds"});
}}
"""
        return text.removesuffix("\n")

    def _elements(self, port: Port) -> str:
        return f"{self._upper}_{port.identifier.upper()}_ELEMENTS"

    def main(self) -> str:
        """A program that reads inputs from files and writes outputs to files, as raw bytes."""
        prefix, upper = self.prefix, self._upper
        from_file = self.form.weights == "file"
        files = [*(["weights"] if from_file else []), *(port.identifier for port in self._ports)]
        usage = " ".join(f"{name}.bin" for name in files)
        wrong = string(f"%s: these are not the weights of {prefix}: their CRC-32 is not %08x")
        weights = f"""\
    void *weights = space({upper}_WEIGHT_BYTES);
    transfer(arguments[1], "rb", weights, {upper}_WEIGHT_BYTES);
    if ({prefix}_check_weights(weights)) {{
        fprintf(stderr, {wrong[:-1]}\\n", arguments[1], {upper}_WEIGHTS_ID);
        return 1;
    }}
"""
        spaces, results = "", ""
        for number, port in enumerate(self._ports, 1 + from_file):
            name, size = port.identifier, f"{self._elements(port)} * sizeof({port.c_type})"
            spaces += f"    {port.c_type} *{name} = space({size});\n"
            if port in self.outputs:
                results += f'    transfer(arguments[{number}], "wb", {name}, {size});\n'
            else:
                spaces += f'    transfer(arguments[{number}], "rb", {name}, {size});\n'
        names = ", ".join(port.identifier for port in self._ports)
        owned = [*(["weights"] if from_file else []), "workspace", *names.split(", ")]
        freed = "\n".join(f"    free({name});" for name in owned)
        return f"""\
/* Runs {prefix} once on raw little-endian arrays in files:
 *   ./{prefix} {usage}
 */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200112L /* posix_memalign */
#endif
#include <stdio.h>
#include <stdlib.h>
#include "{prefix}.h"

static void *space(size_t bytes)
{{
    void *p = NULL;
    if (posix_memalign(&p, {ALIGNMENT}, bytes ? bytes : 1)) {{
        fputs("out of memory\\n", stderr);
        exit(1);
    }}
    return p;
}}

static void transfer(const char *path, const char *mode, void *data, size_t bytes)
{{
    FILE *file = fopen(path, mode);
    size_t done = 0;
    if (file)
        done = *mode == 'r' ? fread(data, 1, bytes, file)
                            : fwrite(data, 1, bytes, file);
    if (!file || done != bytes || fclose(file)) {{
        fprintf(stderr, "%s: expected %zu bytes\\n", path, bytes);
        exit(1);
    }}
}}

int main(int count, char **arguments)
{{
    if (count != {1 + len(files)}) {{
        fprintf(stderr, "usage: %s %s\\n", arguments[0], {string(usage)});
        return 2;
    }}
    void *workspace = space({upper}_WORKSPACE_BYTES);
{weights if from_file else ""}{spaces}\
    {prefix}_run({"weights" if from_file else f"{prefix}_weights"}, workspace, {names});
{results}{freed}
    return 0;
}}
"""
