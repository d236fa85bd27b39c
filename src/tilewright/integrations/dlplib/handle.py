"""Handles: a device, its memory, and the operators that run on it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from tilewright.compiler.pipeline import resolve
from tilewright.errors import refuse
from tilewright.frontends import Imported
from tilewright.graph.weights import digest_of
from tilewright.integrations.dlplib.compiled import SHARED, Compiled, OperatorCache
from tilewright.integrations.dlplib.descriptors import (
    FLOAT32,
    ORDERS,
    DataFormat,
    Descriptor,
    FilterDescriptor,
    NumericType,
    Shape,
    TensorDescriptor,
)
from tilewright.integrations.dlplib.memory import DEFAULT_CAPACITY, DeviceMemory
from tilewright.integrations.dlplib.network import OperatorNetwork
from tilewright.ir import SSAValue
from tilewright.ir.types import Array


class Operand(NamedTuple):
    """Elements in device memory: what they are, and the address of the first."""

    descriptor: TensorDescriptor | FilterDescriptor
    address: int


@dataclass(frozen=True)
class Ran:
    """The cycles, seconds and traffic of one operator's run."""

    operator: str
    cycles: int | None
    """Simulated; None on an engine that is not simulated."""
    dram_bytes: int | None
    host: tuple[str, ...]
    """Reasons of the kernels that the host computed."""
    moves: int
    """Kernels in which the host moved elements from one layout to another: they have no cycles."""
    seconds: float | None = None
    """Measured, on an engine that is not simulated."""


Draw = Callable[[OperatorNetwork], Mapping[str, SSAValue]]
"""Builds an operator from ``network.values``; gives its results by name."""


class Handle:
    """A device: a target's machine with memory of its own (``createDlpHandle`` of the thesis).

    ``compute=False`` compiles and times operators on a simulated machine without computing their
    values: outputs stay what they were. ``check=True`` compares every result with the graph
    interpreter, bit for bit in fixed point, and refuses (``dlp-mismatch``) a difference. Any use
    after ``destroy`` is refused (``dlp-handle``).
    Operators run one after the other, each when it is called.
    """

    def __init__(
        self,
        target: str = "cambricon-x",
        *,
        values: Mapping[str, float] | None = None,
        capacity: int = DEFAULT_CAPACITY,
        cache: OperatorCache | None = None,
        compute: bool = True,
        check: bool = False,
    ) -> None:
        self.target, self.machine = resolve(target, values=values)
        if self.machine.element not in ("float32", "fixed16"):
            raise refuse("dlp-handle", f"{target} computes in {self.machine.element}", target)
        self.compute, self.check = compute, check
        self.runs: list[Ran] = []
        """Every operator that ran, in order."""
        self._memory = DeviceMemory(capacity)
        self._cache = SHARED if cache is None else cache
        self._alive = True

    @property
    def is_fixed(self) -> bool:
        """True if the machine computes in 16-bit fixed point; otherwise in float32."""
        return self.machine.element == "fixed16"

    @property
    def memory(self) -> DeviceMemory:
        """The device's memory; refuses when the handle has been destroyed."""
        if not self._alive:
            raise refuse("dlp-handle", "the handle has been destroyed")
        return self._memory

    @property
    def cycles(self) -> int:
        """Simulated cycles of all operators so far."""
        return sum(run.cycles or 0 for run in self.runs)

    def destroy(self) -> None:
        """Give the device back; memory that is not freed is refused (``dlp-memory``), and stays."""
        if self.memory.used:
            raise refuse(
                "dlp-memory", f"{self.memory.used} bytes have not been freed",
                help="free every allocation first",
            )  # fmt: skip
        self._alive = False

    def malloc(self, size: int) -> int:
        """The address of ``size`` new bytes of device memory."""
        return self.memory.malloc(size)

    def free(self, address: int) -> None:
        """Give an allocation back."""
        self.memory.free(address)

    def memcpy_to_device(self, address: int, data: bytes | Array) -> None:
        """Copy bytes, or an array's elements in row-major order, to device memory."""
        self.memory.write(address, data)

    def memcpy_to_host(self, address: int, size: int) -> bytes:
        """Copy bytes from device memory."""
        return self.memory.read(address, size)

    def memcpy_on_device(self, target: int, source: int, size: int) -> None:
        """Copy between ranges of device memory that do not overlap."""
        self.memory.copy(target, source, size)

    def tensor(
        self,
        values: Array,
        type: NumericType = FLOAT32,
        format: DataFormat = "NCHW",
        *,
        filter: bool = False,
    ) -> Operand:
        """Real numbers in logical order as a new operand: descriptor, malloc and memcpy at once."""
        operand = self.empty(np.asarray(values).shape, type, format, filter=filter)
        self.store(operand, values)
        return operand

    def empty(
        self,
        dims: tuple[int, ...],
        type: NumericType = FLOAT32,
        format: DataFormat = "NCHW",
        *,
        filter: bool = False,
    ) -> Operand:
        """A new operand that holds zeros; missing dims are 1."""
        n, c, h, w = (*dims, 1, 1, 1, 1)[:4] if len(dims) <= 4 else (*dims[:3], 0)
        described = (FilterDescriptor if filter else TensorDescriptor)((n, c, h, w), type, format)
        return Operand(described, self.malloc(described.get().bytes))

    def store(self, operand: Operand, values: Array) -> None:
        """Write real numbers in logical order, encoded and laid out as the descriptor says."""
        shape = operand.descriptor.get()
        array = np.asarray(values)
        if array.size != shape.elements:
            raise refuse("dlp-shape", f"{array.size} values for {shape}")
        stored = array.reshape(shape.dims).transpose(ORDERS[shape.format])
        self.memory.write(operand.address, shape.type.encode(stored))

    def load(self, operand: Operand) -> Array:
        """Real numbers (float64) in logical order."""
        return operand.descriptor.get().type.decode(self.elements(operand))

    def elements(self, operand: Operand) -> Array:
        """The elements themselves in logical order, as they lie in memory otherwise."""
        shape = operand.descriptor.get()
        stored = _array(self.memory, operand.address, shape)
        return stored.transpose(np.argsort(ORDERS[shape.format])).copy()

    def release(self, *operands: Operand) -> None:
        """Free operands and destroy their descriptors."""
        for operand in operands:
            self.free(operand.address)
            operand.descriptor.destroy()

    def run(
        self,
        operator: str,
        settings: Hashable,
        inputs: Mapping[str, Operand],
        outputs: Mapping[str, Operand],
        draw: Draw,
        weights: Collection[str] = (),
        others: Sequence[Draw] = (),
    ) -> Ran:
        """Run an operator: compile it if no call was alike, bring its operands, write its results.

        ``weights`` names the operands that products read as weights. On a target that lays weights
        out when it compiles, calls are alike only if these hold the same. ``others`` are further
        ways to compute the same: on a simulated machine the fastest is taken. Raises
        TilewrightError; nothing is written then.
        """
        memory = self.memory
        shapes = {name: _shape(self, name, operand) for name, operand in inputs.items()}
        wanted = {name: _shape(self, name, operand) for name, operand in outputs.items()}
        arrays = {name: _array(memory, inputs[name].address, s) for name, s in shapes.items()}
        _check_outputs(memory, outputs, wanted)
        fixed: dict[str, Array] = {}
        if not self.target.takes_computed_weights:
            fixed = {name: arrays.pop(name) for name in weights if name in arrays}
        digests = tuple((name, digest_of(array)) for name, array in fixed.items())
        key = (operator, settings, tuple(shapes.items()), tuple(wanted.items()), digests)

        def drawn(draw: Draw) -> Imported:
            network = OperatorNetwork(operator, shapes, self.is_fixed, fixed)
            results = draw(network)
            return network.finish({name: (results[name], wanted[name]) for name in wanted})

        ways = [partial(drawn, way) for way in (draw, *others)]
        compiled = self._cache.find(key, self.target, self.machine, ways)
        ran = self._run(operator, compiled, arrays, outputs)
        self.runs.append(ran)
        return ran

    def _run(
        self,
        operator: str,
        compiled: Compiled,
        arrays: Mapping[str, Array],
        outputs: Mapping[str, Operand],
    ) -> Ran:
        package = compiled.executable
        if not self.compute:
            profile = package.runner.timed()
        else:
            results = package.run(arrays, profile=True)
            if self.check and not (compared := package.check(arrays, results)).passed:
                raise refuse(
                    "dlp-mismatch", f"{compared.mismatches} elements differ from the interpreter's",
                    operator,
                )  # fmt: skip
            for name, operand in outputs.items():
                self.memory.write(operand.address, results[name])
            profile = package.profile
        return Ran(
            operator,
            profile.cycles,
            profile.dram_bytes,
            compiled.host,
            compiled.moves,
            profile.seconds,
        )


def checked(descriptor: object, kind: type[Descriptor[Shape]]) -> None:
    """Refuse (``dlp-descriptor``) a descriptor of another kind."""
    if not isinstance(descriptor, kind):
        label = getattr(descriptor, "label", type(descriptor).__name__)
        raise refuse("dlp-descriptor", f"a {kind.label} is needed, not a {label}")


def _shape(handle: Handle, name: str, operand: Operand) -> Shape:
    """An operand's shape; refuses numbers that the machine does not compute in."""
    shape = operand.descriptor.get()
    if shape.type.is_fixed != handle.is_fixed:
        element = handle.machine.element
        raise refuse(
            "dlp-type", f"{name} holds {shape.type}; {handle.machine.name} computes in {element}",
            help=f"describe it as {element}",
        )  # fmt: skip
    return shape


def _array(memory: DeviceMemory, address: int, shape: Shape) -> Array:
    data = memory.view(address, shape.bytes)
    return np.frombuffer(data.tobytes(), shape.type.dtype).reshape(shape.stored)


def _check_outputs(
    memory: DeviceMemory, outputs: Mapping[str, Operand], shapes: Mapping[str, Shape]
) -> None:
    """Refuse results that leave their memory or share some."""
    ranges = sorted((outputs[name].address, shape.bytes, name) for name, shape in shapes.items())
    for (address, size, name), following in zip(ranges, [*ranges[1:], None], strict=True):
        memory.view(address, size)
        if following is not None and address + size > following[0]:
            raise refuse("dlp-memory", f"{name} and {following[2]} overlap")
