"""Predictions of networks that nothing was fitted to are held to their bound."""

from __future__ import annotations

import pytest
from benchmarks.tables import unseen


def test_the_page_has_a_mean_for_each_machine_and_for_all() -> None:
    row = {"network": "vit", "kernels": 1, "predicted": 1, "cycles": 1, "mean": 0, "worst": 0}
    rows = [
        {**row, "machine": machine, "error": error, "seconds": 1}
        for machine, error in (("a", 0.1), ("a", -0.3), ("b", 0.0))
    ]
    machines, networks = unseen.tables_of(rows)
    assert [line["machine"] for line in machines.rows] == ["a", "b", "all"]
    assert [round(line["mean"], 3) for line in machines.rows] == [0.2, 0.0, 0.133]
    assert [line["worst"] for line in machines.rows] == [0.3, 0.0, 0.3]
    assert len(networks.rows) == 3


@pytest.mark.slow
@pytest.mark.parametrize("network", ["vit", "efficientnet_lite", "drawn11"])
def test_predictions_of_acc_c_are_within_two_percent(network: str) -> None:
    assert abs(unseen.run(network, "cambricon-s")["error"]) <= 0.02


@pytest.mark.slow
@pytest.mark.parametrize(
    ("machine", "network"), [("cambricon-x", "gru"), ("five-buffers", "gru"), ("shidiannao", "gru")]
)
def test_predictions_count_kernels_that_overlap(machine: str, network: str) -> None:
    assert abs(unseen.run(network, machine)["error"]) <= 0.02
