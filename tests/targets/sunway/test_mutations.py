"""Each change of the emitted C that breaks a transfer is found, with the line and the CPE."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.targets.sunway.one_layer import Package
from tests.targets.sunway.sunway_networks import NETWORKS

LAYER = "k1_conv2"
"""A convolution with a residual, whose tiles are fetched one ahead in this little LDM."""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Package:
    folder = tmp_path_factory.mktemp("mutations")
    return Package.of(NETWORKS["tiny"](folder), folder, {"memory.ldm.bytes": 10240, "cores": 8})


def mutants(text: str) -> Iterator[tuple[str, str]]:
    """What is done, and the text with it done."""
    for found in re.finditer(r"^ *dma_wait\(.*\);$", text, re.MULTILINE):
        yield f"no {found[0].strip()}", text[: found.start()] + ";" + text[found.end() :]
    for found in re.finditer(r"^ *athread_(get|put)\((.|\n)*?\);$", text, re.MULTILINE):
        yield f"no {found[0].split()[0]}", text[: found.start()] + ";" + text[found.end() :]
    for found in re.finditer(r"\((\d+) - block\) \* 4", text):
        for name, gap in (
            ("pitch for gap", found[1]),
            ("gap too large", f"({int(found[1]) + 1} - block)"),
            ("gap too small", f"({int(found[1]) - 1} - block)"),
        ):
            yield name, text[: found.start()] + f"{gap} * 4" + text[found.end() :]
    for found in re.finditer(r"dma_wait\(&(\w+)\[(.*?)\], (\w+\[.*?\])\);", text):
        for change in ("+ 1", "- 1"):
            wait = f"dma_wait(&{found[1]}[{found[2]}], {found[3]} {change});"
            yield f"{found[3]} {change}", text[: found.start()] + wait + text[found.end() :]
    for found in re.finditer(r"const int other = \((\w+) \+ 1\) % 2;", text):
        same = f"const int other = {found[1]};"
        yield f"{found[1]} in use", text[: found.start()] + same + text[found.end() :]
    for found in re.finditer(r"&replies\[([^\]]*)\]\);$", text, re.MULTILINE):
        other = f"&replies[{found[1]} + 1]);"
        yield f"{found[1]} + 1 counts up", text[: found.start()] + other + text[found.end() :]
    for found in re.finditer(r"\w+_(at|bytes) = (\d+)", text):
        number = int(found[2])
        for change in {"at": (32, 57344 - number), "bytes": (32,)}[found[1]]:
            several = re.search(rf"[2-9] \* {found[0].split()[0]} ", text)
            if number + change >= 0 and (found[1] != "bytes" or several):
                own = f"{found[0].split()[0]} = {number + change}"
                yield f"{found[0]} {change:+}", text[: found.start()] + own + text[found.end() :]


def found_by(package: Package, text: str, folder: Path) -> str:
    """The message that tells of a change; "" if nothing does."""
    folder.mkdir()
    ran = package.run(folder, f"layers/{LAYER}_slave.c", text)
    if ran.status:
        return ran.said
    return "\n".join(package.differences(LAYER, ran, text))


@pytest.mark.slow
def test_the_layer_is_as_the_changes_need_it(package: Package, tmp_path: Path) -> None:
    text = (package.program / f"layers/{LAYER}_slave.c").read_text()
    assert found_by(package, text, tmp_path / "run") == ""
    assert "if (next_" in text
    kinds = [name for name, _ in mutants(text)]
    for kind in (
        "no dma_wait",
        "no athread_get",
        "gap",
        "+ 1",
        "- 1",
        "slot",
        "_at",
        "_bytes",
        "_word",
    ):
        assert any(kind in name for name in kinds), kind


@pytest.mark.slow
def test_every_change_is_found(package: Package, tmp_path: Path) -> None:
    text = (package.program / f"layers/{LAYER}_slave.c").read_text()
    missed: list[str] = []
    for number, (name, changed) in enumerate(mutants(text)):
        said = found_by(package, changed, tmp_path / str(number))
        place = re.search(r"layers/\w+\.c:\d+", said)
        if not place or not ("CPE" in said or "error:" in said):
            missed.append(f"{name}: {said[:200]!r}")
    assert missed == []
