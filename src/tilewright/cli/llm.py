"""``tilewright llm`` and ``tilewright generate``: language models as packages of C."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from tilewright.cli import console


def llm_command(
    model: Annotated[
        Path,
        typer.Argument(help="A GGUF file, a folder of Hugging Face, or a decoder in ONNX."),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The package [default: MODEL-llm].")
    ] = None,
    context: Annotated[
        int | None,
        typer.Option(
            "--context", min=1, help="Tokens of the cache [default: the model's, or 2048]."
        ),
    ] = None,
    chunk: Annotated[
        int, typer.Option("--chunk", min=1, max=512, help="Tokens that are read at once.")
    ] = 16,
    quantise: Annotated[
        str,
        typer.Option(
            "--quantise", help="What floats become: none, q8_0 or q4_0 (blocks of 8 or 4 bits)."
        ),
    ] = "none",
    cpu: console.CpuOption = None,
    name: Annotated[
        str | None,
        typer.Option("--name", help="Name of the C files and functions [default: the model's]."),
    ] = None,
    quiet: console.QuietOption = False,
) -> None:
    """Compile a language model of Llama's kind into a package of C.

    Examples: tilewright llm SmolLM2-135M-Instruct.Q4_1.gguf -o smollm2 --context 1024;
    tilewright llm ./SmolLM2-135M-Instruct --quantise q8_0
    """
    from tilewright.llm.package import compile_model, title_of

    with console.refusals(), console.progress(quiet) as progress:
        place = output or Path(f"{title_of(model)}-llm")
        compile_model(
            model, place, context=context, chunk=chunk, quantise=quantise, cpu=cpu, name=name,
            progress=progress,
        )  # fmt: skip


def generate_command(
    package: Annotated[Path, typer.Argument(help="A package of `tilewright llm`.")],
    prompt: Annotated[
        str | None, typer.Option("--prompt", help="The text that is continued.")
    ] = None,
    tokens: Annotated[
        str | None, typer.Option("--tokens", help="The same as numbers: 1,4093,198.")
    ] = None,
    count: Annotated[int, typer.Option("--count", min=1, help="Tokens at most.")] = 64,
    temperature: Annotated[
        float, typer.Option("--temperature", min=0.0, help="0 takes the likeliest token.")
    ] = 0.0,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of what is random.")] = 0,
    threads: Annotated[int, typer.Option("--threads", min=1, help="Threads.")] = 1,
    quiet: console.QuietOption = False,
) -> None:
    """Continue a text by a package of `tilewright llm`.

    Example: tilewright generate smollm2 --prompt "The capital of France is" --threads 2
    """
    from tilewright.errors import refuse
    from tilewright.llm import LanguageModel

    with console.refusals():
        if (prompt is None) == (tokens is None):
            raise refuse("option-prompt", "give either a text or tokens", "--prompt, --tokens")
        try:
            ids = [int(word) for word in (tokens or "").split(",") if word]
        except ValueError:
            raise refuse("option-prompt", "tokens are numbers", "--tokens") from None
        model = LanguageModel(package, threads=threads)
        begin, first, made = time.perf_counter(), 0.0, 0
        for piece in model.generate(
            ids if prompt is None else prompt, count, temperature=temperature, seed=seed
        ):
            first = first or time.perf_counter()
            made += 1
            print(piece.text if prompt is not None else f"{piece.token} ", end="", flush=True)
        print()
        if not quiet and made > 1:
            rate = (made - 1) / (time.perf_counter() - first)
            read = len(model.tokens) - made + 1
            print(
                f"{read} tokens read in {first - begin:.2f} s, then {rate:.1f} tokens a second",
                file=sys.stderr,
            )
