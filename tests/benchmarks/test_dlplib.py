"""DLPlib's benchmarks: the networks are those of the table, and one is measured."""

from pathlib import Path

import pytest
from benchmarks.papers.dlplib.experiments import NETWORKS, THESIS, measure
from benchmarks.papers.dlplib.nets import prototxt

from tilewright.frontends.caffe import import_caffe
from tilewright.graph.dialect import network_of
from tilewright.ir.types import shape_of

SHAPES = {
    "conv1": (1, 384, 112, 112),
    "conv2": (1, 256, 112, 112),
    "pool1": (1, 96, 27, 27),
    "pool2": (1, 64, 112, 112),
    "lrn": (1, 96, 55, 55),
    "fc1": (1, 4096),
    "fc2": (1, 1000),
}


def result_of(name: str, folder: Path) -> tuple[int, ...]:
    """The shape of a benchmark's result."""
    path = folder / f"{name}.prototxt"
    path.write_text(prototxt(name))
    return shape_of(network_of(import_caffe(path).module).output_op.values[0])


def test_layers_are_those_of_the_table(tmp_path: Path) -> None:
    assert set(THESIS) == set(NETWORKS) == {*SHAPES, "alexnet", "vgg16"}
    for name, shape in SHAPES.items():
        assert result_of(name, tmp_path) == shape


def test_networks_have_their_layers() -> None:
    counts = {"alexnet": (5, 2, 3, 3, 7), "vgg16": (13, 0, 5, 3, 15)}
    for name, wanted in counts.items():
        kinds = ("Convolution", "LRN", "Pooling", "InnerProduct", "ReLU")
        assert tuple(prototxt(name).count(f'type: "{kind}"') for kind in kinds) == wanted


@pytest.mark.slow
def test_one_is_measured() -> None:
    row = measure("pool1")
    assert row["passed"] is True and row["calls"] == 1
    assert row["granule_bound"] <= row["latency_bound"] <= row["cycles"]
    assert row["operators"] == [
        {"operator": "pooling_forward", "calls": 1, "cycles": row["cycles"]}
    ]
