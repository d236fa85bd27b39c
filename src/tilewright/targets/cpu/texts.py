"""The values that a package's templates (``templates/``) are filled in with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.codegen.c.compiler import CHOICE, FLAGS
from tilewright.codegen.c.source import comment
from tilewright.codegen.host.calls import KernelSource
from tilewright.codegen.host.ports import NamedPort
from tilewright.codegen.program.interface import ALIGNMENT, CompiledKernel, Form
from tilewright.memory.alignment import align_up
from tilewright.numerics.codes import FORMATS
from tilewright.shapes.lists import Lists
from tilewright.system.template import filled
from tilewright.targets.cpu.copies import divided, enter_text, leave_text
from tilewright.targets.cpu.headers import SUPPORT
from tilewright.targets.cpu.processors import Processor
from tilewright.targets.cpu.steps import Step, cases, meetings, scratch_bytes

VERSION = "1.0"
"""The version of the interface of packages, as pkg-config and CMake are told."""

SYSTEM_FLAGS = ("-fPIC", "-pthread")
"""Flags that ask for shared libraries and threads, which packages for no system do without."""

Values = Mapping[str, object]
"""Values by the names in templates."""


def text(template: str, values: Values) -> str:
    """The text of a file of the package."""
    return filled(SUPPORT / "templates" / f"{template}.in", **values)


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
    lines += [" */", f'#include "{prefix}_kernels.h"', "", source.named(name)]
    return "\n".join(lines)


def network_values(
    prefix: str,
    inputs: Sequence[NamedPort],
    outputs: Sequence[NamedPort],
    steps: Sequence[Step],
    form: Form,
    sizes: Mapping[str, str],
    lists: Lists,
) -> dict[str, object]:
    """The values of the header and the source of a network; ``sizes`` are the C names of the sizes
    of a run, ``lists`` the sequences of which ports are elements."""
    ports, upper = [*inputs, *outputs], prefix.upper()
    taken = [f"const {port.c_type} *{port.identifier}" for port in inputs]
    given = [f"{port.c_type} *{port.identifier}" for port in outputs]
    shared = [step.shared for step in steps]
    by_team = not form.bare and any(step.shared and step.body for step in steps)
    apart = any(shared) and any(divided(port) for port in inputs)
    job = "" if form.bare else "job->"
    asked = [f"long {size}" for size in sizes.values()]
    most = {size: port.shape[axis] for port in ports for axis, size in port.ends.items()}
    within = " && ".join(
        f"{name} >= 1 && {name} <= {most[size]}" for size, name in sizes.items() if size in most
    )
    return {
        "prefix": prefix,
        "upper": upper,
        "bare": form.bare,
        "file": form.weights == "file",
        "steps": len(steps),
        "last": len(steps) - 1,
        "ports": "\n".join(_port_text(upper, port, port in outputs, lists) for port in ports),
        "listed": ", ".join([*taken, *given, *asked]) or "void",
        "parameters": "".join(f", {parameter}" for parameter in (*taken, *given, *asked)),
        "fields": "\n".join(f"    {parameter};" for parameter in (*taken, *given, *asked)),
        "names": "".join(f", {n}" for n in (*(port.identifier for port in ports), *sizes.values())),
        "result": "int" if sizes else "void",
        "sized": bool(sizes),
        "returned": "return " if sizes else "",
        "within": within,
        "size_parameters": "".join(f"{parameter}, " for parameter in asked),
        "further_sizes": "".join(f", {parameter}" for parameter in asked),
        "size_names": "".join(f"{name}, " for name in sizes.values()),
        "job_sizes": "".join(f"{job}{name}, " for name in sizes.values()),
        "leaving_sizes": "".join(f", {job}{name}" for name in sizes.values()),
        "unused_sizes": "\n".join(f"    (void){name};" for name in sizes.values()),
        "seconds": f"double seconds[{max(len(steps), 1)}]",
        "scratch_bytes": scratch_bytes(steps),
        "cases": cases(steps),
        "team": "struct team *team, " if by_team else "",
        "passed": "team, " if by_team else "",
        "alone": "NULL, " if by_team else "",
        "entered": "".join(f"{parameter}, " for parameter in taken),
        "enter": enter_text(inputs, sizes),
        "entering": "".join(f"{job}{port.identifier}, " for port in inputs),
        "left": "".join(f", {parameter}" for parameter in given),
        "leave": leave_text(outputs, sizes),
        "leaving": "".join(f", {job}{port.identifier}" for port in outputs),
        "shared": any(shared),
        "meets": ", ".join(str(int(meet)) for meet in meetings(shared, apart=apart)),
    }


def _port_text(upper: str, port: NamedPort, is_output: bool, lists: Lists) -> str:
    extents = [
        f"{comment(port.ends[axis])} (up to {extent})" if axis in port.ends else str(extent)
        for axis, extent in enumerate(port.shape)
    ]
    shape = " x ".join(extents) or "one element"
    coded = ", each a code in the lowest bits of a byte" if port.dtype in FORMATS else ""
    element = comment(lists.element(port.name, is_output))
    name = comment(port.name) + (f", {element}" if element else "")
    about = f"{'Output' if is_output else 'Input'} {name}: {port.dtype}, {shape}{coded}."
    return f"/* {about} */\n#define {_elements(upper, port)} {port.elements}"


def _elements(upper: str, port: NamedPort) -> str:
    return f"{upper}_{port.identifier.upper()}_ELEMENTS"


def main_values(
    upper: str,
    inputs: Sequence[NamedPort],
    outputs: Sequence[NamedPort],
    form: Form,
    sizes: Mapping[str, str],
) -> dict[str, object]:
    """The files that the program reads and writes, after the sizes of a run."""
    ports, from_file = [*inputs, *outputs], form.weights == "file"
    files = [*(["weights"] if from_file else []), *(port.identifier for port in ports)]
    spaces, results = list[str](), list[str]()
    first = 1 + len(sizes)
    taken = [
        f"    const long {name} = strtol(arguments[{number}], NULL, 10);"
        for number, name in enumerate(sizes.values(), 1)
    ]
    for number, port in enumerate(ports, first + from_file):
        extents = [
            f"(size_t){sizes[port.ends[axis]]}" if axis in port.ends else str(extent)
            for axis, extent in enumerate(port.shape)
        ]
        elements = " * ".join(extents) if port.ends else _elements(upper, port)
        name, size = port.identifier, f"{elements} * sizeof({port.c_type})"
        spaces.append(f"    {port.c_type} *{name} = space({size});")
        mode, lines = ("wb", results) if port in outputs else ("rb", spaces)
        lines.append(f'    transfer(arguments[{number}], "{mode}", {name}, {size});')
    owned = [*files[:from_file], "workspace", *files[from_file:]]
    return {
        "usage": " ".join(
            [*(name.upper() for name in sizes.values()), *(f"{name}.bin" for name in files)]
        ),
        "words": first + len(files),
        "weights_word": first,
        "taken": "\n".join(taken),
        "spaces": "\n".join(spaces),
        "results": "\n".join(results),
        "freed": "\n".join(f"    free({name});" for name in owned),
    }


def weight_values(
    form: Form, weight_bytes: int, workspace_bytes: int, identity: int | None
) -> dict[str, object]:
    """Sizes of memory, and how the weights are known: ``identity`` is their checksum, None for a
    package without weights."""
    array = identity is not None and form.weights == "array"
    told = "" if identity is None or array else f"0x{identity:08x}U"
    return {
        "weight_bytes": weight_bytes,
        "workspace_bytes": workspace_bytes,
        "aligned_bytes": align_up(workspace_bytes, ALIGNMENT),
        "array": array,
        "identity": told,
        "checked": told and form.weights == "file" and not form.bare,
    }


def build_values(
    prefix: str, processor: Processor, sources: Sequence[str], form: Form
) -> dict[str, object]:
    """The values of the files for make, CMake and pkg-config."""
    flags = [flag for flag in (*FLAGS, *processor.flags) if flag not in CHOICE]
    for_cmake = [flag for flag in flags if not flag.startswith("-std")]
    if form.bare:
        sections = ["-ffunction-sections", "-fdata-sections"]
        flags, for_cmake = (
            [*(flag for flag in listed if flag not in SYSTEM_FLAGS), *sections]
            for listed in (flags, for_cmake)
        )
    else:
        for_cmake = [f for f in (*FLAGS, *processor.flags) if not f.startswith(("-f", "-std"))]
        for_cmake.append("-fno-math-errno")
    shared = f"$(DESTDIR)$(PREFIX)/share/{prefix}"
    to_cmake = f"install(FILES weights.bin DESTINATION ${{CMAKE_INSTALL_DATADIR}}/{prefix})"
    from_file = form.weights == "file"
    return {
        "version": VERSION,
        "choice": " ".join(CHOICE),
        "needed": " ".join(flags),
        "make_sources": " \\\n  ".join(sources),
        "install_weights": f"\tmkdir -p {shared}\n\tcp weights.bin {shared}" if from_file else "",
        "cmake_sources": "\n".join(f"  {name}" for name in sources),
        "cmake_flags": " ".join(for_cmake),
        "cmake_weights": to_cmake if from_file else "",
    }
