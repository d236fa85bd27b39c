"""Read a StableHLO program from a file, its bytes, or a JAX export, by way of jaxlib's parser."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from tilewright.errors import refuse
from tilewright.frontends.files import read_file
from tilewright.frontends.limits import MAX_FILE_BYTES, shown
from tilewright.frontends.modules import Exported
from tilewright.frontends.stablehlo.limits import (
    MAX_DOCUMENT_BYTES,
    MAX_OPERATIONS,
    MAX_SECONDS,
)
from tilewright.frontends.stablehlo.program import Program, program_of
from tilewright.ir.types import Array


@dataclass(frozen=True)
class Source:
    """A parsed program and where it came from."""

    program: Program
    digest: str
    title: str
    """The program's name in messages."""


def read_program(source: str | Path | bytes | Exported) -> Source:
    """Parse a program, text or bytecode; raises TilewrightError."""
    if isinstance(source, str | Path):
        title = shown(str(source))
        data = read_file(Path(source), "stablehlo", MAX_FILE_BYTES, Path.read_bytes)
    else:
        title = "program"
        data = source if isinstance(source, bytes) else bytes(source.mlir_module_serialized)
        if len(data) > MAX_FILE_BYTES:
            reason = f"it has more than {MAX_FILE_BYTES} bytes"
            raise refuse("stablehlo-too-large", reason, where=title)
    document, blobs = parsed(data, title)
    return Source(program_of(document, blobs, title), hashlib.sha256(data).hexdigest(), title)


def parsed(data: bytes, title: str) -> tuple[Any, Array]:
    """Parse a program in the worker process: return its document, and the bytes of the
    constants."""
    worker = Path(__file__).with_name("worker.py")
    # -P keeps this folder off the worker's path.
    command = [sys.executable, "-P", str(worker), str(MAX_OPERATIONS), str(MAX_SECONDS)]
    with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as output:
        source.write(data)
        source.seek(0)
        try:
            done = subprocess.run(
                command,
                stdin=source,
                stdout=output,
                stderr=subprocess.DEVNULL,
                timeout=2 * MAX_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            reason = f"parsing it takes more than {MAX_SECONDS} seconds"
            raise refuse("stablehlo-too-large", reason, where=title) from error
        output.seek(0)
        line = output.readline(MAX_DOCUMENT_BYTES)
        if done.returncode != 0 or not line.endswith(b"\n"):
            how = (
                f"ended with {done.returncode}" if done.returncode else "made too large a document"
            )
            raise refuse(
                "stablehlo-syntax",
                f"jaxlib's parser does not survive it: its process {how}",
                where=title,
                help="the file may be damaged",
            )
        document = cast("dict[str, Any]", json.loads(line))
        if "problem" in document:
            helps = {
                "extra": "pip install tilewright[jax]",
                "syntax": "the file may be damaged, or from a newer StableHLO than jaxlib's",
            }
            problem = str(document["problem"])
            raise refuse(
                f"stablehlo-{problem}",
                str(document["reason"]),
                where=title,
                help=helps.get(problem, ""),
            )
        start = output.tell()
        size = os.fstat(output.fileno()).st_size - start
        if size == 0:
            return document, np.zeros(0, np.uint8)
        # Mapped: the pages of large weights are read when they are used.
        return document, np.memmap(output, np.uint8, "c", offset=start, shape=(size,))
