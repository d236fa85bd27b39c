"""Packages as one ELF file: the package's files as sections, its kernels as symbols.

    .note.tilewright     the form's version
    .tilewright          which file each section is, as JSON
    .dpu.text, ...       files that the target names as sections (Target.elf_sections)
    .host.text           object code of the host's kernels, where there is a C compiler
    .tilewright/NAME     all other files

``readelf -SWs`` shows them. The file is the whole package: it is opened into a temporary directory,
and read as any package is, digests included. Object code is there to be linked or looked at; what
runs is built from the sources, as of every package (docs/package-safety.md).
"""

from __future__ import annotations

import platform
import subprocess
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from tilewright.codegen.c.compiler import find_compiler
from tilewright.errors import TilewrightError, refuse
from tilewright.runtime.elf import MACHINES, Symbol, elf_bytes, elf_sections, is_elf, note
from tilewright.runtime.manifest import LONGEST_NAME, MANIFEST, PROGRAM, read_manifest
from tilewright.system.files import written
from tilewright.system.temporary import temporary_folder
from tilewright.system.typed_json import JsonError, from_json, to_json
from tilewright.targets.base import find_target

FORM = 1
"""Version of the form; readers refuse other versions."""

NOTE = ".note.tilewright"
FILES = ".tilewright"
OBJECTS = ".host.text"

_FLAGS = ("-std=gnu99", "-fno-math-errno", "-fPIC", "-pthread", "-fno-ident", "-O2", "-Iinclude")
"""The flags of the object code: those of the package's own Makefile."""


class _Table(Struct, frozen=True):
    """The section that lists files."""

    form: int
    files: dict[str, str]
    """The section that holds a file, by the file's name in the package."""


def write_elf(directory: Path, path: Path) -> None:
    """A package's directory as one file; the same package gives the same bytes.

    Refuses (``option-form``) packages of targets that name no sections.
    """
    if path.exists() and not is_elf(path):
        raise refuse("output-exists", "exists and is no package", str(path), "name another file")
    manifest = read_manifest(directory)
    target = find_target(manifest.target)
    names = {f"{PROGRAM}/{file}": name for file, name in target.elf_sections.items()}
    if manifest.open_model is not None or not set(names) & set(manifest.files):
        raise refuse(
            "option-form",
            f"packages for {target.name} are directories, not single files",
            str(path),
            "give a name that does not end with .elf",
        )
    files = {name: names.get(name, f"{FILES}/{name}") for name in (*manifest.files, MANIFEST)}
    sections = {NOTE: note("Tilewright", FORM, manifest.tilewright.encode())}
    sections[FILES] = to_json(_Table(FORM, files), indent=1).encode()
    # What the target names stands first, in its order.
    order = [*(name for name in names if name in files), *(n for n in files if n not in names)]
    for name in order:
        sections[files[name]] = (directory / name).read_bytes()
    objects = _objects(directory / PROGRAM / "host")
    if objects:
        sections[OBJECTS] = objects
    symbols = [Symbol(*row) for row in target.elf_symbols(directory / PROGRAM)]
    with written(path) as fresh:
        fresh.write_bytes(elf_bytes(sections, symbols, MACHINES.get(platform.machine(), 0)))


def read_elf(path: Path, directory: Path) -> None:
    """Fill an empty directory with the package that a file holds.

    Refuses (``package-elf``) files of another form, whatever they hold; the package's own checks
    come when it is opened.
    """
    try:
        _unpack(memoryview(path.read_bytes()), path, directory)
    except OSError as error:
        raise refuse("package-elf", str(error)[:300], str(path)) from None


def _unpack(data: memoryview, path: Path, directory: Path) -> None:
    sections = elf_sections(data, str(path))
    try:
        table = from_json(_Table, bytes(sections.get(FILES, b"")))
    except JsonError:
        raise refuse("package-elf", f"no section {FILES} lists files", str(path)) from None
    if table.form != FORM:
        raise refuse("package-elf", f"form {table.form}; this version reads {FORM}", str(path))
    for name, section in table.files.items():
        parts = name.split("/")
        plain = all(part not in ("", ".", "..") and "\\" not in part for part in parts)
        if not plain or len(name) > LONGEST_NAME or "\0" in name or section not in sections:
            raise refuse("package-elf", f"{name[:80]!r} is no file of a package", str(path))
    for name, section in table.files.items():
        place = directory / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(sections[section])


def _objects(host: Path) -> bytes:
    """The host's kernels as one relocatable object; nothing without kernels or a compiler."""
    sources = sorted(f"src/{path.name}" for path in host.glob("src/*.c"))
    if not sources:
        return b""
    with suppress(TilewrightError, OSError, subprocess.SubprocessError):
        command = find_compiler()
        with temporary_folder() as folder:
            linked = folder / "host.o"
            flags = [*_FLAGS, "-r", "-nostdlib", "-o", str(linked)]
            subprocess.run(
                [*command, *flags, *sources], cwd=host, check=True, capture_output=True, timeout=300
            )
            return linked.read_bytes()
    return b""
