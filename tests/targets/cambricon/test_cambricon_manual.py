"""The manual is made from the definitions; the target's text and words go both ways."""

from __future__ import annotations

import re

import numpy as np
import pytest
from tests.targets.cambricon.test_cambricon_statements import LOOP

from tilewright.errors import TilewrightError
from tilewright.targets.base import find_target
from tilewright.targets.cambricon.isa import INSTRUCTIONS, encode
from tilewright.targets.cambricon.machine import CONFIGURATIONS, MACHINE
from tilewright.targets.cambricon.statements import assemble_statements, to_text

TARGET = find_target("cambricon")


def test_every_instruction_has_a_page_with_all_its_fields() -> None:
    pages = re.split(r"^## ", TARGET.manual(MACHINE), flags=re.M)
    assert [page.split("\n")[0] for page in pages[1:]] == [one.mnemonic for one in INSTRUCTIONS]
    for page, one in zip(pages[1:], INSTRUCTIONS, strict=True):
        assert f"{one.opcode:#04x}" in page
        assert one.meaning in page
        for name in [*one.registers, *(f".{m}" for m in one.by_name)]:
            assert f"| `{name}" in page


def test_a_page_reads_well() -> None:
    page = TARGET.manual(MACHINE).split("## VLOAD\n")[1].split("## ")[0]
    assert page.splitlines() == [
        "",
        "    VLOAD $vsm, $size, $base, #offset",
        "",
        "vsm[0:#] = main[base + offset:].",
        "",
        "Unit: vector_dma. Cycles: latency + bytes/bandwidth, the bandwidth shared with the other "
        "transfer.",
        "",
        "| field | bits | meaning |",
        "|---|---|---|",
        "| opcode | 63:56 | 0x10 |",
        "| `vsm` | 55:50 | register: address in VSM, in bytes |",
        "| `size` | 49:44 | register: number of elements |",
        "| `base` | 43:38 | register: address in main memory, in bytes |",
        "| `offset` | 37:6 | number, signed: added to the base, in bytes |",
        "| `.barrier` | 5 | does nothing, but waits in the queue until all before it have "
        "completed |",
        "| `.table=N` | 4:1 | fills table N; the size counts its elements, the register of VSM is "
        "not used |",
        "| `.wide` | 0 | elements have 32 bits |",
        "",
    ]


@pytest.mark.parametrize("name", [size.name for size in CONFIGURATIONS])
def test_text_and_words_go_both_ways(name: str) -> None:
    target = find_target(name)
    machine = target.machine()
    data = assemble_statements(LOOP).astype("<u8").tobytes()
    assert target.assemble(to_text(LOOP), machine) == data
    assert target.assemble(target.disassemble(data, machine), machine) == data


def test_every_instruction_survives_the_text() -> None:
    import random

    from tests.targets.cambricon.test_cambricon_isa import random_parts

    rng = random.Random(3)
    words = []
    for one in INSTRUCTIONS:
        for _ in range(6):
            operands, modifiers = random_parts(one, rng)
            if one.mnemonic not in ("J", "CB"):
                words.append(encode(one.mnemonic, operands, modifiers))
    data = np.array(words, "<u8").tobytes()
    assert TARGET.assemble(TARGET.disassemble(data, MACHINE), MACHINE) == data


def test_words_cut_short_are_refused() -> None:
    with pytest.raises(TilewrightError, match="isa-length"):
        TARGET.disassemble(b"\x00" * 12, MACHINE)
