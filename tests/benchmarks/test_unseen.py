"""Predictions of networks that nothing was fitted to are held to their bound."""

from __future__ import annotations

from functools import partial

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


SMALL = {
    "vit": partial(unseen.vit, encoders=1),
    "efficientnet_lite": partial(unseen.efficientnet_lite, ((24, 2, 2, 5),)),
    "drawn11": partial(unseen.drawn, 11, layers=2),
    "gru": partial(unseen.gru, steps=3),
}
"""Parts of the page's networks, with layers of every kind."""


@pytest.mark.slow_cases(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "machine"),
    [
        *((network, "cambricon-s") for network in ("vit", "efficientnet_lite", "drawn11")),
        *(("gru", machine) for machine in ("cambricon-x", "five-buffers", "shidiannao")),
    ],
)
def test_predictions_are_within_two_percent(
    network: str, machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ACC-C's pipeline, and of machines whose kernels overlap."""
    monkeypatch.setattr(unseen, "BUILDERS", SMALL)
    assert abs(unseen.run(network, machine)["error"]) <= 0.02
