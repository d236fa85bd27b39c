"""The shim itself: programs written by hand, right ones and each kind of wrong one."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tilewright.targets.sunway import machine
from tilewright.targets.sunway.emit.package import SHIM_FLAGS, SHIM_LINK

SHIM = Path(machine.__file__).parent / "shim"

MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include <athread.h>
extern void SLAVE_FUN(f_slave)(void *);
struct para { float *x, *y; };
int main(void)
{
    struct para para = {malloc(6144 * 4), malloc(4096 * 4)};
    for (int i = 0; i < 6144; i++)
        para.x[i] = (float)i;
    for (int i = 0; i < 4096; i++)
        para.y[i] = 0;
    athread_init();
    athread_spawn(f_slave, &para);
    athread_join();
    athread_halt();
    double sum = 0;
    for (int i = 0; i < 4096; i++)
        sum += para.y[i] * (1 + i % 7);
    printf("%.17g\\n", sum);
    return 0;
}
"""

HEAD = """
#include <dma.h>
#include <simd.h>
#include <slave.h>
struct para { float *x, *y; };
__thread_local float a[64] __attribute__((aligned(32)));
__thread_local floatv4 lane;
void f_slave(void *argument)
{
    struct para para;
    volatile int reply = 0;
    const int id = athread_get_id(-1);
    athread_get(PE_MODE, argument, &para, sizeof para, (void *)&reply, 0, 0, 0);
    dma_wait(&reply, 1);
    (void)id;
    reply = 0;
"""

GET = "athread_get(PE_MODE, para.x + id * 64, a, 256, (void *)&reply, 0, 0, 0);\n"
PUT = "athread_put(PE_MODE, a, para.y + id * 64, 256, (void *)&reply, 0, 0);\n"
WAIT = "dma_wait(&reply, 1); reply = 0;\n"


@dataclass(frozen=True)
class Program:
    """A built program."""

    binary: Path

    def run(self, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run it, SHIM_... in the environment."""
        return subprocess.run(
            [str(self.binary)],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env=os.environ | environment,
        )


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("shim")
    (folder / "main.c").write_text(MAIN)
    flags = [*(flag for flag in SHIM_FLAGS if flag != "-Ishim"), "-O1", "-Wall", "-Wextra"]
    built: list[str] = []
    for source in (folder / "main.c", *sorted(SHIM.glob("*.c"))):
        target = folder / f"{source.stem}.o"
        command = ["cc", *flags, "-Werror", f"-I{SHIM}", "-c", str(source), "-o", str(target)]
        subprocess.run(command, check=True)
        built.append(str(target))
    return built


def built(parts: list[str], folder: Path, body: str, more: str = "") -> Program:
    """The program whose CPEs run ``body``."""
    (folder / "f_slave.c").write_text(more + HEAD + body + "}\n")
    flags = [flag for flag in SHIM_FLAGS if flag != "-Ishim"]
    binary = folder / "program"
    command = ["cc", *flags, "-O1", f"-I{SHIM}", "-w", str(folder / "f_slave.c"), *parts]
    subprocess.run([*command, *SHIM_LINK, "-o", str(binary), "-lm"], check=True)
    return Program(binary)


def total(factor: float) -> float:
    return sum(factor * i * (1 + i % 7) for i in range(4096))


def test_data_go_to_ldm_and_back(parts: list[str], tmp_path: Path) -> None:
    body = GET + WAIT + "for (int i = 0; i < 64; i++) a[i] *= 3;\n" + PUT + WAIT
    program = built(parts, tmp_path, body)
    for environment in ({}, {"SHIM_ORDER": "1"}, {"SHIM_ORDER": "9"}):
        ran = program.run(**environment)
        assert (ran.returncode, ran.stderr) == (0, "")
        assert float(ran.stdout) == total(3)


STRIDED = """
athread_get(PE_MODE, para.x + id * 64 + 1, a, 32, (void *)&reply, 0, 24, 8);
dma_wait(&reply, 1); reply = 0;
athread_put(PE_MODE, a, para.y + id * 64 + 2, 32, (void *)&reply, 48, 16);
dma_wait(&reply, 1);
"""


def test_blocks_have_gaps_between_them(parts: list[str], tmp_path: Path) -> None:
    ran = built(parts, tmp_path, STRIDED).run()
    wanted = 0.0
    for cpe in range(64):
        source = [cpe * 64 + 1 + 8 * block + i for block in range(4) for i in range(2)]
        target = [cpe * 64 + 2 + 16 * block + i for block in range(2) for i in range(4)]
        wanted += sum(x * (1 + y % 7) for x, y in zip(source, target, strict=True))
    assert float(ran.stdout) == wanted


EXCHANGE = """
athread_get(PE_MODE, para.x + id * 64, a, 256, (void *)&reply, 0, 0, 0);
dma_wait(&reply, 1); reply = 0;
for (int step = 0; step < 8; step++)
    for (int part = 0; part < 16; part++) {
        floatv4 row, column, one;
        if (_COL == step)
            simd_loadr(row, (floatv4 *)a + part);
        else
            row = simd_getr(row);
        if (_ROW == step)
            simd_loadec(column, a + part);
        else
            column = simd_getc(column);
        simd_load(one, (floatv4 *)a + part);
        one = simd_vmas(row, column, one) / (floatv4){4096, 4096, 4096, 4096};
        simd_store(one, (floatv4 *)a + part);
    }
athread_syn(ARRAY_SCOPE, 0xffff);
for (int part = 0; part < 16; part++) {
    /* To the right in the row, then down in the column. */
    floatv4 one;
    simd_load(one, (floatv4 *)a + part);
    simd_putr(one, (_COL + 1) % 8);
    one = simd_getr(one);
    simd_putc(one, (_ROW + 1) % 8);
    one = simd_getc(one);
    simd_store(one, (floatv4 *)a + part);
}
athread_put(PE_MODE, a, para.y + id * 64, 256, (void *)&reply, 0, 0);
dma_wait(&reply, 1);
"""


def test_registers_are_exchanged_whatever_the_buses_hold(parts: list[str], tmp_path: Path) -> None:
    program = built(parts, tmp_path, EXCHANGE)
    seen = [
        program.run(SHIM_FIFO=depth, SHIM_ORDER=order)
        for depth in ("1", "4", "64")
        for order in ("", "5")
    ]
    assert {(ran.returncode, ran.stderr) for ran in seen} == {(0, "")}
    assert len({ran.stdout for ran in seen}) == 1
    assert float(seen[0].stdout) != 0


BROADCAST = """
athread_syn(ARRAY_SCOPE, 0xffff);
if (id == 9) {
    athread_get(BCAST_MODE, para.x, a, 256, (void *)&reply, 0xff, 0, 0);
    dma_wait(&reply, 1);
    reply = 0;
}
athread_syn(ARRAY_SCOPE, 0xffff);
athread_put(PE_MODE, a, para.y + id * 64, 256, (void *)&reply, 0, 0);
dma_wait(&reply, 1);
"""


def test_a_broadcast_reaches_all(parts: list[str], tmp_path: Path) -> None:
    ran = built(parts, tmp_path, BROADCAST).run()
    assert (ran.returncode, ran.stderr) == (0, "")
    assert float(ran.stdout) == sum(i % 64 * (1 + i % 7) for i in range(4096))


def test_athread_syn_orders_what_goes_through_memory(parts: list[str], tmp_path: Path) -> None:
    other = GET.replace("para.x + id", "para.y + (id + 1) % 64")
    last = "a[0] += 1;\nathread_syn(ARRAY_SCOPE, 0xffff);\n" + PUT + WAIT
    sync = "athread_syn(ARRAY_SCOPE, 0xffff);\n"
    for body, clean in ((sync, True), ("", False)):
        for order in ("", "3"):
            program = built(parts, tmp_path, GET + WAIT + PUT + WAIT + body + other + WAIT + last)
            ran = program.run(SHIM_ORDER=order)
            assert (ran.returncode == 0) == clean, ran.stderr
            assert clean or ("CPE" in ran.stderr and "f_slave.c:" in ran.stderr)


WRONG = {
    "never waited for": GET,
    "leaves main memory": GET.replace("para.x + id * 64", "para.y + id * 65 + 1") + WAIT,
    "outside of LDM": GET.replace(", a,", ", para.y,") + WAIT,
    "reply word lies outside": GET.replace("&reply", "para.y") + WAIT,
    "multiples of 4": GET.replace("para.x + id * 64", "(char *)para.x + 2") + WAIT,
    "1 to 16777215": GET.replace("256", "16777216") + WAIT,
    "whole number of blocks": GET.replace("0, 0, 0)", "0, 4, 48)") + WAIT,
    "without blocks": GET.replace("0, 0, 0)", "0, 4, 0)") + WAIT,
    "a wait for 2 never ends": GET + "dma_wait(&reply, 2);",
    "a wait for 1 may never end": GET.replace("256", "128")
    + GET.replace("a, 256", "a + 32, 128")
    + WAIT,
    "is that of the DMA of": GET + GET + WAIT,
    "was written before it was waited for": GET + "a[5] = 1;\n" + WAIT,
    "has written, too": GET + WAIT + PUT.replace("id * 64", "id / 2 * 64") + WAIT,
    "mode 4": GET.replace("PE_MODE", "RANK_MODE") + WAIT,
    "there is no CPE 9": "simd_putr(lane, 9);",
    "16 bytes is loaded or stored 4 bytes behind": "simd_load(lane, (floatv4 *)(a + 1));",
    "16 bytes is loaded or stored 8 bytes behind": "simd_store(lane, (floatv4 *)(a + 2));",
    "32 bytes is loaded or stored 16 bytes behind": (
        "doublev4 four; simd_load(four, (doublev4 *)(a + 4)); (void)four;"
    ),
    "4 bytes is loaded or stored 2 bytes behind": (
        "simd_loade(lane, (const float *)((const char *)a + 2));"
    ),
    "leaves CPEs out": "athread_syn(ARRAY_SCOPE, 0xff);",
    "has not received": "if (id == 0) simd_putr(lane, 1);",
    "does not wait in athread_syn": BROADCAST.replace(
        "athread_syn(ARRAY_SCOPE, 0xffff);\nathread_put", "athread_put"
    ),
    "waits to receive": "if (id == 3) lane = simd_getc(lane);",
    "waits to send": "for (int i = 0; i < 99; i++) simd_putr(lane, (_COL + 1) % 8);",
    "waits in athread_syn": "if (id != 63) athread_syn(ARRAY_SCOPE, 0xffff);",
}


@pytest.mark.few(12)
@pytest.mark.parametrize("message", WRONG)
def test_misuse_ends_the_run_with_the_place_and_the_core(
    parts: list[str], tmp_path: Path, message: str
) -> None:
    ran = built(parts, tmp_path, WRONG[message]).run()
    assert ran.returncode == 3, ran.stderr
    assert message in ran.stderr
    if message != "has not received":
        assert "f_slave.c:" in ran.stderr or "main.c:" in ran.stderr
    assert "CPE" in ran.stderr


def test_variables_of_more_than_ldm_are_refused(parts: list[str], tmp_path: Path) -> None:
    more = "#include <slave.h>\n__thread_local char large[65536];\n"
    ran = built(parts, tmp_path, "large[id] = 1;", more).run()
    assert ran.returncode == 3
    assert "65536" in ran.stderr


def test_what_lies_behind_ldm_is_not_there(parts: list[str], tmp_path: Path) -> None:
    ran = built(parts, tmp_path, "((volatile char *)a)[65536 + 64] = 1;").run()
    assert ran.returncode < 0
