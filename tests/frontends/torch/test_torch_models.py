"""Models that torchvision and transformers define compile for cpu and match PyTorch."""

from collections.abc import Callable
from typing import Any

import pytest

import tilewright
from tests.frontends.torch.modules import TORCH_WARNS, assert_same, package, seeded, torch

pytestmark = TORCH_WARNS

SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
"""Sizes of a transformer that compiles in seconds."""

WORDS = 50


def images(count: int, size: int) -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(1)
    return [{"x": torch.randn(1, 3, size, size, generator=generator)} for _ in range(count)]


def pixels(count: int, size: int) -> list[dict[str, Any]]:
    return [{"pixel_values": sample["x"]} for sample in images(count, size)]


def sentences(count: int, length: int, masked: bool) -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(2)
    samples = []
    for number in range(count):
        sample = {"input_ids": torch.randint(0, WORDS, (2, length), generator=generator)}
        if masked:
            mask = torch.ones(2, length, dtype=torch.int64)
            mask[1, length - 2 - number :] = 0
            sample["attention_mask"] = mask
        samples.append(sample)
    return samples


def resnet18() -> tuple[Any, list[dict[str, Any]]]:
    return package("torchvision").models.resnet18(num_classes=10), images(2, 32)


def resnet50() -> tuple[Any, list[dict[str, Any]]]:
    return package("torchvision").models.resnet50(num_classes=10), images(2, 32)


def vision_transformer() -> tuple[Any, list[dict[str, Any]]]:
    made = package("torchvision").models.VisionTransformer(32, 8, 2, 4, 32, 64, num_classes=10)
    return made, images(2, 32)


def convnext() -> tuple[Any, list[dict[str, Any]]]:
    kind = package("torchvision").models.convnext
    blocks = [kind.CNBlockConfig(8, 16, 1), kind.CNBlockConfig(16, None, 1)]
    return kind.ConvNeXt(blocks, num_classes=10), images(2, 32)


def transformers_resnet() -> tuple[Any, list[dict[str, Any]]]:
    library = package("transformers")
    config = library.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1])
    return library.ResNetForImageClassification(config), pixels(2, 32)


def transformers_vit() -> tuple[Any, list[dict[str, Any]]]:
    library = package("transformers")
    config = library.ViTConfig(image_size=16, patch_size=4, **SMALL)
    return library.ViTForImageClassification(config), pixels(2, 16)


def transformers_convnext() -> tuple[Any, list[dict[str, Any]]]:
    library = package("transformers")
    config = library.ConvNextConfig(hidden_sizes=[8, 16], depths=[1, 1], num_stages=2)
    return library.ConvNextForImageClassification(config), pixels(2, 32)


def bert() -> tuple[Any, list[dict[str, Any]]]:
    library = package("transformers")
    return library.BertModel(library.BertConfig(vocab_size=WORDS, **SMALL)), sentences(2, 8, True)


def distilbert() -> tuple[Any, list[dict[str, Any]]]:
    library = package("transformers")
    config = library.DistilBertConfig(
        vocab_size=WORDS, dim=32, n_layers=2, n_heads=4, hidden_dim=64
    )
    return library.DistilBertModel(config), sentences(2, 8, True)


def gpt2() -> tuple[Any, list[dict[str, Any]]]:
    library = package("transformers")
    config = library.GPT2Config(
        vocab_size=WORDS, n_positions=16, n_embd=32, n_layer=2, n_head=4,
        bos_token_id=0, eos_token_id=0, use_cache=False,
    )  # fmt: skip
    return library.GPT2LMHeadModel(config), sentences(2, 8, False)


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        resnet18,
        resnet50,
        vision_transformer,
        convnext,
        transformers_resnet,
        transformers_vit,
        transformers_convnext,
        bert,
        distilbert,
        gpt2,
    ],
)
def test_model_matches_pytorch(make: Callable[[], tuple[Any, list[dict[str, Any]]]]) -> None:
    module, samples = make()
    module = seeded(module)
    executable = tilewright.compile(module, example_inputs=samples[0])
    assert [info.name for info in executable.inputs] == list(samples[0])
    assert_same(executable, module, *samples)
    first = {name: tensor.numpy() for name, tensor in samples[0].items()}
    assert executable.check(first, executable.run(first)).equal
