"""Host kernels of an accelerator's package, on the accelerator's memory."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.targets.cpu.kernel_harness import PLAIN, Maker

from tilewright.codegen.program.interface import CompiledKernel
from tilewright.errors import TilewrightError
from tilewright.graph.operations import BY_NAME
from tilewright.graph.operations.binary import SubOp
from tilewright.graph.operations.normalisation import SoftmaxOp
from tilewright.graph.operations.numbers import DequantiseOp, QuantiseOp
from tilewright.graph.operations.pointwise import LeakyReluOp
from tilewright.graph.placement import ACTIVATIONS, WEIGHTS, placement_of
from tilewright.ir import ModuleOp, SSAValue
from tilewright.ir.types import FixedType, tensor
from tilewright.numerics import fixed
from tilewright.planning.domain import Kernel
from tilewright.targets.cpu import host
from tilewright.targets.cpu.host import CpuHost
from tilewright.tile.build import build

SHAPE = (1, 5, 3, 4)


def compiled(tmp_path: Path) -> Maker:
    """quantise (NCHW to NHWC) | dequantise, tanh | softmax, all on the host."""
    m = Maker(PLAIN, seed=11)
    x = m.input(SHAPE, scale=30.0)
    integers = tensor(SHAPE, FixedType.of(16, 10), "NHWC")
    floats = tensor(SHAPE, layout="NHWC")
    q = m.kernel([(QuantiseOp, [x], {})], types=[integers])
    t = m.kernel([(DequantiseOp, [q], {}), (BY_NAME["tanh"], [0], {})], types=[floats, floats])
    s = m.kernel([(SoftmaxOp, [t], {"axis": 1})], types=[floats])
    m.finish(q, t, s)
    whole = m.compilation()
    hosted = tuple(CompiledKernel(item.kernel) for item in whole.kernels)
    CpuHost().emit(replace(whole, kernels=hosted), tmp_path)
    return m


def test_steps_run_by_symbol_on_the_arenas(tmp_path: Path) -> None:
    m = compiled(tmp_path)
    steps = CpuHost().load(tmp_path)
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
    assert CpuHost().load(tmp_path) == {}


def test_kernels_alike_are_written_once_and_run_on_operands_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    m = Maker(PLAIN, seed=5)
    x, y = m.input(SHAPE), m.input(SHAPE)
    difference = m.kernel([(SubOp, [x, y], {}), (BY_NAME["tanh"], [0], {})])
    other = m.kernel([(SubOp, [y, x], {}), (BY_NAME["tanh"], [0], {})])
    same = m.kernel([(SubOp, [other, other], {}), (BY_NAME["tanh"], [0], {})])
    last = m.kernel([(SubOp, [difference, same], {}), (BY_NAME["tanh"], [0], {})])
    steep, steeper = (m.kernel([(LeakyReluOp, [last], {"alpha": alpha})]) for alpha in (0.25, 0.5))
    m.finish(difference, other, same, last, steep, steeper)
    whole = m.compilation()
    hosted = tuple(CompiledKernel(item.kernel) for item in whole.kernels)
    built: list[str] = []

    def counted(kernel: Kernel, *arguments: Any) -> ModuleOp:
        built.append(kernel.symbol)
        return build(kernel, *arguments)

    monkeypatch.setattr(host, "build", counted)
    CpuHost().emit(replace(whole, kernels=hosted), tmp_path)
    assert built == ["k0", "k2", "k4", "k5"], "k2 reads one value twice; slopes are attributes"
    steps = CpuHost().load(tmp_path)
    arenas = {
        ACTIVATIONS: np.zeros(dict(m.place())[ACTIVATIONS], np.uint8),
        WEIGHTS: np.zeros(0, np.uint8),
    }

    def view(value: SSAValue) -> np.ndarray:
        count, start = int(np.prod(SHAPE)), placement_of(value).offset
        return arenas[ACTIVATIONS][start:].view("float32")[:count].reshape(SHAPE)

    for name, value in m.network.inputs:
        view(value)[...] = m.inputs[name]
    for step in steps.values():
        step(arenas)
    a, b = (m.inputs[name] for name, _ in m.network.inputs)
    first = np.tanh(a - b)
    leaky = [np.where(first < 0, alpha * np.tanh(first), np.tanh(first)) for alpha in (0.25, 0.5)]
    wanted = [first, np.tanh(b - a), np.zeros_like(a), np.tanh(first), *leaky]
    for kernel, array in zip(m.kernels, wanted, strict=True):
        np.testing.assert_allclose(view(kernel.result), array, atol=1e-6)
