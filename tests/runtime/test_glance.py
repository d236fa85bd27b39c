"""The report at a glance: units, the lines that it has, and that they fit a terminal."""

from typing import Any

import pytest

from tilewright.runtime.glance import SLOWEST, WIDTH, duration, percent, report, size
from tilewright.runtime.manifest import Manifest

REASON = "no primitive of npu computes sort (it has " + ", ".join(["operation"] * 40) + ")"


def manifest(*notes: str) -> Manifest:
    return Manifest(
        tilewright="0",
        target="npu",
        machine={"name": "npu-small", "clock_hz": 1e9},
        model="network",
        element="fixed16",
        inputs=(),
        outputs=(),
        kernels=(),
        peak_memory_bytes=0,
        activation_bytes=0,
        lower_bound_memory_bytes=0,
        notes=notes,
    )


def row(number: int, time: float | None, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": f"k{number}_{'convolution' * (number % 4)}",
        "nodes": [f"node{number}"],
        "engine": "accelerator",
        "schedule": "conv [buffer: " + ", ".join(f"d{n}=16" for n in range(20)) + "]",
        "time": time,
        "share": 0.1,
        "bound_time": 1e-4,
        "of_bound": 0.5,
    }
    return found | more


def facts(rows: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "measured": True,
        "clock_hz": 1e9,
        "kernels": rows,
        "efficiency": 0.5,
        "physical_efficiency": 0.25,
        "peak_memory_bytes": 2_500_000,
        "lower_bound_memory_bytes": 2_000_000,
        "host_share": None,
    }
    return found | more


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0.0, "0.00 us"),
        (56.1e-6, "56.10 us"),
        (1e-3, "1.000 ms"),
        (1.2345, "1,234.500 ms"),
        (61.0, "61.00 s"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_sizes_and_percentages() -> None:
    assert [size(n) for n in (999, 285_700, 2_500_000, 3 * 10**9)] == [
        "999 bytes",
        "285.7 KB",
        "2.5 MB",
        "3.0 GB",
    ]
    assert (percent(None), percent(0.5)) == ("-", "50.0 %")


def test_a_run_lists_its_slowest_kernels_in_ten_lines() -> None:
    rows = [row(number, number * 1e-4) for number in range(9)]
    text = report(manifest(), facts(rows, seconds=3.6e-3, runs=9))
    lines = text.splitlines()
    assert lines[0] == "network on npu-small (target npu)"
    assert "3.600 ms measured, median of 9 runs after the first" in lines[1]
    assert "50.0 % of the granule bound, 25.0 % of the physical bound" in lines[2]
    assert "2.5 MB at the peak (least possible 2.0 MB)" in lines[3]
    listed = [line.split()[0] for line in lines[5 : 5 + SLOWEST]]
    assert [name.partition("_")[0] for name in listed] == ["k8", "k7", "k6", "k5", "k4"]
    assert lines[-1].strip() == "and 4 more: --kernels lists all" and len(lines) == 11
    whole = report(manifest(), facts(rows, seconds=3.6e-3, runs=9), kernels=True)
    assert all(f"nodes: node{number}" in whole for number in range(9))
    assert max(len(line) for line in (text + whole).splitlines()) <= WIDTH


def test_what_is_simulated_stands_beside_the_host_and_its_reasons() -> None:
    rows = [row(n, 2e-3, engine="host", reason=REASON, of_bound=None) for n in range(2)]
    rows.append(row(2, 1e-3))
    more = {"cycles": 1_000_000, "accelerator_seconds": 1e-3, "host_seconds": 4e-3}
    text = report(manifest("a " * 90), facts(rows, runs=3, host_share=0.8, **more))
    flat = " ".join(text.split())
    assert "accelerator 1.000 ms simulated: 1,000,000 cycles at 1,000 MHz, 1 kernel" in flat
    assert "host 4.000 ms measured (median of 3 runs after the first), 80.0 % of the time" in flat
    # What a reason says in brackets is for explain.
    assert "2 kernels: no primitive of npu computes sort (2 kernels)" in flat
    assert "accelerator only" in flat and text.count("(") == text.count(")")
    assert max(len(line) for line in text.splitlines()) <= WIDTH


def test_nothing_has_run() -> None:
    rows = [row(0, 1e-3), row(1, None, engine="host", reason="too large")]
    bounds = {"predicted_cycles": 2e6, "granule_bound_cycles": 1e6, "bound_cycles": 5e5}
    text = report(manifest(), facts(rows, measured=False, **bounds))
    flat = " ".join(text.split())
    assert "accelerator 2.000 ms predicted: 2,000,000 cycles at 1,000 MHz, 1 kernel" in flat
    assert "1 kernel, timed by a run; too large" in flat
    assert "50.0 % of the granule bound, 25.0 % of the physical bound" in flat
    assert "slowest, predicted" in text
