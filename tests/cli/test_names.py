"""Names that are not known get the nearest ones; plans end with a summary; files are described."""

from pathlib import Path

import pytest

from tests.cli.test_commands import answer_of, call, refused
from tilewright.cli.plan import summary
from tilewright.errors import choose, nearest
from tilewright.targets.base import find_target

EXAMPLES = Path(__file__).parents[2] / "examples"
LENET = EXAMPLES / "lenet5" / "lenet5.onnx"


@pytest.mark.parametrize(
    ("arguments", "near"),
    [
        (("run", LENET, "-t", "zu3"), "zu2"),
        (("compile", LENET, "--cpu", "avx-2"), "avx2"),
        (("plan", LENET, "--planner", "greddy{buffers=1}"), "greedy"),
        (("plan", LENET, "--numbers", "int-8"), "int8"),
        (("run", LENET, "--numbers", "int8", "--observer", "percentil"), "percentile"),
        (("fuse", LENET, "-t", "zu2", "--search", "exat"), "exact"),
        (("fuse", LENET, "-t", "zu2", "--cost", "close"), "closed"),
        (("plan", LENET, "-t", "cambricon-x", "--set", "memory.db.bytes=1"), "memory.sb.bytes"),
        (("targets", "shidianao"), "shidiannao"),
    ],
)
def test_a_wrong_name_gets_the_nearest(arguments: tuple[object, ...], near: str) -> None:
    (problem,) = refused(*arguments)
    question, _, _ = problem["help"].partition("?")
    assert question.startswith("did you mean") and near in question.split()


def test_a_wrong_pass_gets_the_nearest() -> None:
    result = call("opt", EXAMPLES / "tile" / "conv.mlir", "-p", "place-moves,alocate")
    assert result.exit_code == 2 and "did you mean allocate" in result.output


def test_a_name_like_no_other_gets_the_list_alone() -> None:
    assert choose("qqq", ["zu2", "cpu"]) == "there are zu2, cpu"
    assert choose("qqq", []) == nearest("qqq", ["zu2"]) == ""


def test_a_plan_ends_with_its_summary() -> None:
    result = call("plan", LENET, "-t", "cambricon-x", "--quiet")
    lines = result.output.rstrip().split("\n\n")[-1].splitlines()
    assert len(lines) <= 10 and lines[0].startswith("total ")
    told = answer_of("plan", LENET, "-t", "cambricon-x", "--quiet")
    kernels = told["kernels"]
    slowest = max(
        (row for row in kernels if row["engine"] == "accelerator"),
        key=lambda row: row["timed_cycles"] or row["predicted_cycles"],
    )
    assert slowest["name"] in lines[2]
    (bound,) = [line for line in lines if line.startswith("bound with all intermediates on")]
    cycles = sum(row.get("timed_cycles") or row.get("predicted_cycles", 0) for row in kernels)
    gap = cycles / told["limits"]["cycles"] - 1
    assert gap > 0 and told["gap"] == pytest.approx(gap)
    assert bound.endswith(f"; gap at most {gap:.1%}")
    finished = 8 - told["search_cut_kernels"]
    assert lines[-1].endswith(f"it finished for {finished} of 8 kernels")
    assert next(row["name"] for row in kernels if row["engine"] == "host") in result.output
    assert any(line.startswith("on the host: 2 of 10 kernels") for line in lines)


def test_a_plan_of_hosts_kernels_alone_has_a_summary() -> None:
    lines = summary([{"name": f"k{n}_softmax", "engine": "host"} for n in range(9)], 1e9, 0.5)
    assert lines[0].startswith("on the host: 9 of 9 kernels (k0_softmax") and "others" in lines[0]


def test_machine_files_are_described_as_targets_are() -> None:
    found = answer_of("targets", EXAMPLES / "machines" / "flags.toml")
    assert found["machine"]["name"] == "flags" and "synchronisation" in found["implements"]
    assert "l0a" in call("targets", EXAMPLES / "machines" / "flags.toml").output
    (problem,) = refused("targets", EXAMPLES / "machines" / "missing.toml")
    assert problem["code"] == "machine-file"


def test_fusion_is_switched_off() -> None:
    def groups(*settings: str) -> set[tuple[str, ...]]:
        options = [part for setting in settings for part in ("--set", setting)]
        rows = answer_of("plan", LENET, "-t", "zu2", "--quiet", *options)["kernels"]
        return {tuple(row["nodes"]) for row in rows}

    apart = groups("fusion=off")
    fused = groups() - apart
    assert fused and all(len(nodes) > 1 for nodes in fused)
    names = [fusion.name for fusion in find_target("zu2").machine().fusions]
    assert groups(*(f"fusion.{name}=off" for name in names)) == apart
    for setting in ("fusion=on", "fusion.none=off", "fusion=0"):
        assert refused("plan", LENET, "-t", "zu2", "--set", setting)
