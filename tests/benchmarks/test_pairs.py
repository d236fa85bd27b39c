"""The table of pairs: both ways are what they say."""

from benchmarks.cpu.pairs import kernels, measure, model

from tilewright.targets.cpu.machine import machine


def test_both_ways_compute_the_pair() -> None:
    made, target = model(8, 9, 2, 5, 3), machine()
    names = [[k.anchor.operation for k in kernels(made, target, fused)] for fused in (False, True)]
    assert names == [["depthwise_conv", "conv"], ["separable_conv"]]


def test_a_row_compares_them() -> None:
    _, layer, two, one, ratio, predicted, taken, _ = measure((8, 9, 2, 5, 3), 1).split("|")
    assert layer.strip() == "8 to 5, 9 x 9, 3 x 3 by 2"
    assert float(two) > 0 and float(one) > 0 and float(ratio) > 0 and float(predicted) > 0
    assert taken.strip() in ("yes", "no")
