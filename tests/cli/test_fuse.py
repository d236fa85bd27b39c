"""``tilewright fuse`` as a user calls it."""

from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.cli.test_commands import LENET, answer, call, refused
from tests.frontends.onnx.executed import typed_model
from tests.graph.networks import as_onnx, parameters
from tests.slow import but_fast
from tilewright.cli.fuse import complete_cost, complete_search

NPU = Path(__file__).parents[2] / "examples" / "machines" / "small-npu.toml"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.onnx"
    onnx.save(as_onnx(parameters(1)), path)
    return path


def test_what_machines_read(small: Path, tmp_path: Path) -> None:
    file = tmp_path / "small.fusion"
    found: dict[str, Any] = answer("fuse", small, "-o", file)
    assert (found["target"], found["cost"]) == ("cpu", "closed")
    plans = found["plans"]
    assert list(plans) == ["exact", "paths", "greedy"]
    cycles = [plan["cycles"] for plan in plans.values()]
    assert cycles[0] <= cycles[1] <= cycles[2] <= found["apart_cycles"]
    assert sha256(file.read_bytes()).hexdigest() == plans["exact"]["hash"]
    # The depthwise convolution takes the sum behind it; the first one's pool overlaps nothing.
    assert [group["fusion"] for group in plans["exact"]["groups"]] == ["sum"]
    reasons = {one["fusion"]: one["problem"] for one in found["candidates"]}
    assert reasons["sum"] is None and reasons["pool"]["code"] in ("fusion-form", "fusion-gain")


def test_what_people_read(small: Path) -> None:
    result = call("fuse", small, "--search", "greedy", "-q")
    assert result.exit_code == 0
    for text in (
        "candidates, of which 1 cost less as one kernel",
        "* in the plan of greedy",
        "not fused by pool: ",
        'fusion plan of "small" for "cpu',
        "fuse sum: ",
    ):
        assert text in result.output, result.output
    assert "exact" not in result.output


def test_a_machine_without_patterns() -> None:
    result = call("fuse", LENET, "-t", NPU, "-q")
    assert result.exit_code == 0
    assert result.output == (
        "small-npu has no patterns of fusion: nothing to search (give --pattern)\n"
    )
    assert answer("fuse", LENET, "-t", NPU)["candidates"] == []


ANYWHERE = [
    *((target, "closed") for target in ("cambricon", "cambricon-x", "shidiannao", "sunway", "cpu")),
    *((target, "simulated") for target in ("cambricon", "cambricon-x", "shidiannao")),
]


@pytest.mark.parametrize("where", but_fast(ANYWHERE, [("shidiannao", "closed")]))
def test_every_target(small: Path, where: tuple[str, str]) -> None:
    target, source = where
    found = answer("fuse", small, "-t", target, "--cost", source)
    groups = {group["fusion"]: group for group in found["plans"]["exact"]["groups"]}
    group = groups["sum"]
    (candidate,) = [
        one
        for one in found["candidates"]
        if one["problem"] is None and one["fusion"] == group["fusion"]
    ]
    assert (group["fusion"], group["kernels"]) == ("sum", candidate["kernels"])
    assert group["cycles"] == candidate["fused_cycles"] < candidate["apart_cycles"]


def test_patterns_of_machine_files(tmp_path: Path) -> None:
    machine = tmp_path / "npu.toml"
    lines = '[move.hand-on]\nsource = "result"\ntarget = "feature"\n'
    lines += 'engine = "store"\nbytes_per_cycle = 8\n'
    lines += '[fusion.f]\nquery = "conv -> pool"\nbetween = "result"\nresidency = "whole"\n'
    machine.write_text(f"{NPU.read_text()}\n{lines}")
    found = answer("fuse", LENET, "-t", machine, "--set", "memory.result.bytes=8192")
    problems = [one["problem"] for one in found["candidates"]]
    assert [problem["code"] for problem in problems] == ["fusion-capacity", "fusion-gain"]
    # 6 channels of 28 x 28 and 14 x 14, of 2 bytes, in granules of the memory.
    assert "bytes of result" in problems[0]["reason"]
    assert problems[0]["help"].startswith("--set memory.result.bytes=")
    machine.write_text(machine.read_text().replace("conv -> pool", "conv -> pol"))
    (problem,) = refused("fuse", LENET, "-t", machine)
    assert problem["code"] == "machine-invalid" and "no kind 'pol'" in problem["reason"]


@pytest.mark.slow
def test_simulated_costs(tmp_path: Path) -> None:
    """Apart is the sum of kernels that run alone; in a run each overlaps with the next one."""
    arguments = ("fuse", LENET, "-t", "cambricon-x", "--pattern", "conv -> pool")
    simulated = answer(*arguments, "--cost", "simulated")
    rows = answer("plan", LENET, "-t", "cambricon-x")["kernels"]
    timed = sum(row["timed_cycles"] for row in rows if row["engine"] == "accelerator")
    assert timed <= simulated["apart_cycles"] <= 1.05 * timed
    apart = {row["kernel"]: row["cycles"] for row in simulated["plans"]["exact"]["alone"]}
    assert sum(apart.values()) == pytest.approx(simulated["apart_cycles"])
    pool = tmp_path / "pool.onnx"
    kernel = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], strides=[2, 2])
    feeds = {"x": np.zeros((1, 6, 28, 28), np.float32)}
    onnx.save(typed_model([kernel], feeds, {"y": TensorProto.FLOAT}), pool)
    (alone,) = (
        row["timed_cycles"]
        for row in answer("plan", pool, "-t", "cambricon-x")["kernels"]
        if row["engine"] == "accelerator"
    )
    assert apart["k1_pool1"] == pytest.approx(alone, rel=0.01)


@pytest.mark.parametrize(
    ("options", "code", "reason"),
    [
        (("--search", "exact,best"), "option-search", "no search 'best'"),
        (("--search", ""), "option-search", "no search ''"),
        (("--cost", "guessed"), "option-cost", "no source 'guessed'"),
        (("--cost", "simulated"), "option-cost", "cpu has no simulator"),
        (("--cost", "closed=f"), "option-cost", "no source 'closed=f'"),
        (("--pattern", "conv"), "option-pattern", "one operation alone"),
        (("--pattern", "conv -> cnv"), "option-pattern", "no kind 'cnv'"),
        (("-t", "shidiannao", "--pattern", "conv -> attention"), "option-pattern", "never matches"),
    ],
)
def test_refusals(options: tuple[str, ...], code: str, reason: str) -> None:
    (problem,) = refused("fuse", LENET, *options)
    assert problem["code"] == code and reason in problem["reason"]


def test_completion() -> None:
    assert complete_search("") == ["exact", "paths", "greedy"]
    assert complete_search("exact,p") == ["exact,paths"]
    assert complete_search("exact,paths,") == ["exact,paths,greedy"]
    assert (complete_cost("s"), complete_cost("l")) == (["simulated"], [])
