"""From a decoder to a package: networks of one token and of a chunk, and the C around them.

Both have their cache in the same lasting memory, and weights in the same form, so that they share
one file; where a processor has other primitives for many rows than for one (tiles of matrices), the
file holds both.
"""

from __future__ import annotations

import filecmp
import shutil
from math import prod
from pathlib import Path
from typing import Any

import msgspec

from tilewright.codegen.program.interface import ALIGNMENT, WEIGHTS_FILE, Form
from tilewright.compiler.api import compile
from tilewright.errors import refuse
from tilewright.frontends.language import open_decoder
from tilewright.frontends.language.decoder import FILE, Decoder
from tilewright.frontends.language.network import chunk_network
from tilewright.graph.names import chosen_name, network_name
from tilewright.graph.operations.decoding import KEYS
from tilewright.llm.manifest import Manifest
from tilewright.memory.alignment import align_up
from tilewright.runtime.executable import Progress, quiet
from tilewright.runtime.manifest import MANIFEST, PROGRAM
from tilewright.runtime.replacing import replacing
from tilewright.system.template import filled
from tilewright.system.temporary import temporary_folder
from tilewright.targets.base import find_target
from tilewright.targets.cpu.machine import with_one_layout
from tilewright.targets.cpu.manifest import CpuManifest, read_manifest
from tilewright.targets.cpu.processors import processor
from tilewright.targets.cpu.texts import build_values

CONTEXT = 2048
"""Tokens of the cache unless the caller says otherwise, as far as the model has been trained."""

CHUNK = 16
"""Tokens that are read at once."""

FEW = 4
"""Tokens that a chunk takes less time for than as many steps."""

_TEMPLATES = Path(__file__).parent / "templates"


def compile_model(
    model: Any,
    directory: str | Path,
    *,
    context: int | None = None,
    chunk: int = CHUNK,
    quantise: str = "none",
    tokenizer: Any = None,
    cpu: str | None = None,
    name: str | None = None,
    progress: Progress = quiet,
) -> None:
    """Compile a language model of Llama's kind into a package in ``directory``.

    ``model`` is a GGUF file, a folder as Hugging Face ships it (``config.json``,
    ``model.safetensors``), a decoder in ONNX, or a causal language model of transformers, whose
    ``tokenizer`` (of transformers, too) may be given beside it.
    ``context`` tokens have room in the cache: by default those that the model was trained for, but
    ``CONTEXT`` at most. ``quantise`` puts matrices of floats into blocks of 8 bits (``q8_0``) or 4
    (``q4_0``). Raises TilewrightError.
    """
    decoder = open_decoder(model, tokenizer).quantised(quantise)
    sizes, asked = decoder.sizes, context or min(decoder.sizes.context, CONTEXT)
    tokens = align_up(asked, KEYS)
    if not 1 <= tokens <= 1 << 20 or not 1 <= chunk <= tokens:
        raise refuse("llm-context", f"chunks of {chunk} in a context of {context}", "--context")
    if sizes.window is not None and asked > sizes.window:
        raise decoder.refuse(
            f"its attention sees {sizes.window} tokens, fewer than {asked}", code="llm-context",
            help=f"give a context of {sizes.window} at most",
        )  # fmt: skip
    if name is None:
        name = network_name(title_of(Path(model)) if isinstance(model, str | Path) else "model")
    else:
        name = chosen_name(name)
    cpu_target = find_target("cpu")
    described = cpu_target.machine() if cpu is None else cpu_target.variant(cpu)
    shared = with_one_layout(described)
    with replacing(Path(directory)) as fresh, temporary_folder() as scratch:
        parts: dict[str, Path] = {}
        for part, rows in (("step", 1), ("prefill", chunk)):
            progress(f"compile the {part} network", 0, 0)
            symbol = f"{name}_{part}"
            network = chunk_network(decoder, rows=rows, context=tokens, name=symbol)
            place = parts[part] = scratch / part
            compile(network, "cpu", machine=shared, directory=place, name=symbol, progress=progress)
        _write(fresh, parts, decoder, Manifest(name, tokens, chunk, sizes.vocabulary))


def title_of(model: Path) -> str:
    """The name of a file without its ending, or of a folder."""
    return model.resolve().name if model.is_dir() else model.stem


def _write(fresh: Path, parts: dict[str, Path], decoder: Decoder, manifest: Manifest) -> None:
    """The package, from those of its networks."""
    program, sizes = fresh / PROGRAM, decoder.sizes
    programs = {part: place / PROGRAM for part, place in parts.items()}
    facts = {part: read_manifest(place) for part, place in programs.items()}
    for place in programs.values():
        for folder in ("include", "src"):
            shutil.copytree(
                place / folder, program / folder, dirs_exist_ok=True,
                ignore=shutil.ignore_patterns("*.hpp"),
            )  # fmt: skip
    offset, total = _write_weights(program / WEIGHTS_FILE, programs, facts)
    cache = sizes.layers * 2 * align_up(4 * prod((manifest.context, sizes.groups, sizes.size)), 64)
    name = manifest.name
    values: dict[str, object] = {
        "name": name,
        "upper": name.upper(),
        "context": manifest.context,
        "chunk": manifest.chunk,
        "few": FEW,
        "vocabulary": sizes.vocabulary,
        "weight_bytes": total,
        "cache_bytes": cache,
        "prefill_weights": offset,
    }
    made_for = processor(facts["step"].processor)
    values |= build_values(name, made_for, [], Form())
    for target, template in (
        *((f"include/{name}.h", "model.h"), (f"src/{name}.c", "model.c")),
        *(("main.c", "main.c"), ("Makefile", "Makefile")),
    ):
        (program / target).write_text(filled(_TEMPLATES / f"{template}.in", **values))
    manifest = msgspec.structs.replace(
        manifest,
        processor=facts["step"].processor,
        weight_bytes=total,
        cache_bytes=cache,
        memory_bytes=max(each.workspace_bytes for each in facts.values()),
        scratch_bytes=max(each.scratch_bytes for each in facts.values()),
        tokenizer=decoder.tokenizer,
    )
    (fresh / MANIFEST).write_bytes(msgspec.json.encode(manifest))
    if decoder.vocabulary_file:
        (fresh / FILE).write_text(decoder.vocabulary_file, encoding="utf-8")


def _write_weights(
    path: Path, programs: dict[str, Path], facts: dict[str, CpuManifest]
) -> tuple[int, int]:
    """One file of weights; the byte at which those of chunks begin, and all bytes."""
    step, prefill = (programs[part] / WEIGHTS_FILE for part in ("step", "prefill"))
    shutil.copyfile(step, path)
    if filecmp.cmp(step, prefill, shallow=False):
        return 0, facts["step"].weight_bytes
    offset = align_up(facts["step"].weight_bytes, ALIGNMENT)
    with path.open("r+b") as file, prefill.open("rb") as more:
        file.seek(offset)
        shutil.copyfileobj(more, file)
    return offset, offset + facts["prefill"].weight_bytes
