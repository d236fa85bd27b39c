"""The benchmarks' networks on both targets; on the accelerator bit for bit."""

from pathlib import Path

import pytest

from tests.end_to_end.end_to_end_models import network, run_checked

# Networks that end in a global pool run on smaller images.
SIZES = {
    "alexnet": None,
    "googlenet": None,
    "mobilenet_v2": 96,
    "resnet18": 112,
    "squeezenet": 112,
}


@pytest.mark.slow_cases(1)
@pytest.mark.slow
@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("target", ["cambricon-x", "cpu"])
def test_network(target: str, name: str, tmp_path: Path) -> None:
    executable = run_checked(network(name, SIZES[name]), target, tmp_path)
    assert not [k.symbol for k in executable.profile.kernels if k.on_host and k.nodes]
    if target == "cambricon-x":
        summary = executable.summary()
        predicted, cycles = summary["predicted_cycles"], summary["cycles"]
        assert abs(predicted / cycles - 1) < 0.03
        # Small maps: the instruction words that the bound leaves out take up to 1 %.
        assert summary["efficiency"] > (0.85 if name == "alexnet" else 0.92)
