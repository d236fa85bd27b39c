"""Host kernels of an accelerator's package, on the accelerator's memory."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.targets.cpu.kernel_harness import PLAIN, Maker

from tilewright.errors import TilewrightError
from tilewright.graph.operations.normalisation import SoftmaxOp
from tilewright.graph.operations.numbers import DequantiseOp, QuantiseOp
from tilewright.graph.operations.pointwise import TanhOp
from tilewright.graph.placement import ACTIVATIONS, WEIGHTS, placement_of
from tilewright.ir.types import FixedType, tensor
from tilewright.numerics import fixed
from tilewright.targets.base import CompiledKernel
from tilewright.targets.cpu.host import emit_host, load_host

SHAPE = (1, 5, 3, 4)


def compiled(tmp_path: Path) -> Maker:
    """quantise (NCHW to NHWC) | dequantise, tanh | softmax, all on the host."""
    m = Maker(PLAIN, seed=11)
    x = m.input(SHAPE, scale=30.0)
    integers = tensor(SHAPE, FixedType.of(16, 10), "NHWC")
    floats = tensor(SHAPE, layout="NHWC")
    q = m.kernel([(QuantiseOp, [x], {})], types=[integers])
    t = m.kernel([(DequantiseOp, [q], {}), (TanhOp, [0], {})], types=[floats, floats])
    s = m.kernel([(SoftmaxOp, [t], {"axis": 1})], types=[floats])
    m.finish(q, t, s)
    whole = m.compilation()
    hosted = tuple(CompiledKernel(item.kernel) for item in whole.kernels)
    emit_host(replace(whole, kernels=hosted), tmp_path)
    return m


def test_steps_run_by_symbol_on_the_arenas(tmp_path: Path) -> None:
    m = compiled(tmp_path)
    steps = load_host(tmp_path)
    assert list(steps) == ["k0", "k1", "k2"]
    size = dict(m.place())[ACTIVATIONS]
    arenas = {ACTIVATIONS: np.full(size, 255, np.uint8), WEIGHTS: np.zeros(0, np.uint8)}

    def view(index: int, dtype: str) -> np.ndarray:
        place = placement_of(m.kernels[index].result)
        count = int(np.prod(SHAPE))
        return arenas[ACTIVATIONS][place.offset :].view(dtype)[:count].reshape(1, 3, 4, 5)

    arenas[ACTIVATIONS][: m.inputs["in0"].nbytes] = m.inputs["in0"].reshape(-1).view(np.uint8)
    for step in steps.values():
        step(arenas)
    integers = fixed.quantise(m.inputs["in0"], 10)
    assert np.abs(integers).max() == 32768 or integers.max() == 32767
    np.testing.assert_array_equal(view(0, "int16").transpose(0, 3, 1, 2), integers)
    mapped = np.tanh(integers / np.float32(1024))
    np.testing.assert_allclose(view(1, "float32").transpose(0, 3, 1, 2), mapped, atol=1e-6)
    powers = np.exp(mapped - mapped.max(axis=1, keepdims=True))
    found = view(2, "float32").transpose(0, 3, 1, 2)
    np.testing.assert_allclose(found, powers / powers.sum(axis=1, keepdims=True), atol=1e-6)
    with pytest.raises(TilewrightError, match="package-invalid"):
        steps["k0"]({ACTIVATIONS: arenas[ACTIVATIONS][:-1]})


def test_a_package_without_host_kernels_has_no_steps(tmp_path: Path) -> None:
    assert load_host(tmp_path) == {}
