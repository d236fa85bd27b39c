"""Kernels of the kinds that networks are made of, for the planning tests."""

from __future__ import annotations

from tilewright.machine import Machine, Memory
from tilewright.planning.domain import Affine, Dim, Kernel, Operand, Stage


def _axes(text: str) -> tuple[Affine, ...]:
    return tuple(Affine.parse(part) for part in text.split(","))


def _after(
    anchor: Stage, parallel: list[str], residual: bool, shape: tuple[int, ...], relu: bool = True
) -> tuple[Stage, ...]:
    """The anchor with requantise, and before it a residual addition or a relu."""
    dims = tuple(d for d in anchor.dims if d.name in parallel)
    access = anchor.output.access
    stages, last = [anchor], anchor.output
    if residual:
        other = Operand("r", shape, access, "fixed16", "residual")
        summed = Operand("sum", shape, access, "fixed32", "output")
        stages.append(Stage("add", dims, (last, other), summed))
        last = summed
    if relu:
        positive = Operand("positive", shape, access, "fixed32", "output")
        stages.append(Stage("relu", dims, (last,), positive))
        last = positive
    y = Operand("y", shape, access, "fixed16", "output")
    return (*stages, Stage("requantise", dims, (last,), y))


def conv(
    ci: int,
    co: int,
    size: int,
    kernel: int = 3,
    stride: int = 1,
    pad: int | None = None,
    groups: int = 1,
    residual: bool = False,
    width: int | None = None,
) -> Kernel:
    """A convolution of a ``size`` x ``width`` input, with bias, relu and requantise."""
    pad = kernel // 2 if pad is None else pad
    width = size if width is None else width
    oh, ow = ((s + 2 * pad - kernel) // stride + 1 for s in (size, width))
    co, ci = co // groups, ci // groups
    dims = [Dim("n", 1), *([Dim("g", groups)] if groups > 1 else [])]
    dims += [Dim("co", co), Dim("oh", oh), Dim("ow", ow)]
    inner = [
        Dim(name, extent, "reduction")
        for name, extent in zip(("ci", "kh", "kw"), (ci, kernel, kernel), strict=True)
    ]
    of_group = f"g*{ci} + ci" if groups > 1 else "ci"
    to_group = f"g*{co} + co" if groups > 1 else "co"
    x = Operand(
        "x",
        (1, ci * groups, size, width),
        _axes(f"n, {of_group}, oh*{stride} + kh - {pad}, ow*{stride} + kw - {pad}"),
        "fixed16",
    )
    w = Operand(
        "w",
        (co * groups, ci, kernel, kernel),
        _axes(f"{to_group}, ci, kh, kw"),
        "fixed16",
        "weight",
    )
    b = Operand("b", (co * groups,), _axes(to_group), "fixed32", "bias")
    shape = (1, co * groups, oh, ow)
    out = Operand("acc", shape, _axes(f"n, {to_group}, oh, ow"), "fixed32", "output")
    anchor = Stage("conv", (*dims, *inner), (x, w, b), out)
    stages = _after(anchor, [d.name for d in dims], residual, shape)
    return Kernel(f"conv_{ci}_{co}_{size}_{kernel}_{stride}", stages)


def depthwise(c: int, size: int, kernel: int = 3, stride: int = 1) -> Kernel:
    pad = kernel // 2
    oh = (size + 2 * pad - kernel) // stride + 1
    dims = (Dim("n", 1), Dim("c", c), Dim("oh", oh), Dim("ow", oh))
    inner = (Dim("kh", kernel, "reduction"), Dim("kw", kernel, "reduction"))
    where = f"n, c, oh*{stride} + kh - {pad}, ow*{stride} + kw - {pad}"
    x = Operand("x", (1, c, size, size), _axes(where), "fixed16")
    w = Operand("w", (c, 1, kernel, kernel), _axes("c, 0, kh, kw"), "fixed16", "weight")
    b = Operand("b", (c,), _axes("c"), "fixed32", "bias")
    shape = (1, c, oh, oh)
    out = Operand("acc", shape, _axes("n, c, oh, ow"), "fixed32", "output")
    anchor = Stage("depthwise_conv", (*dims, *inner), (x, w, b), out)
    return Kernel(f"dw_{c}_{size}", _after(anchor, ["n", "c", "oh", "ow"], False, shape))


def dense(ci: int, co: int, n: int = 1, relu: bool = True) -> Kernel:
    """A fully connected layer."""
    dims = (Dim("n", n), Dim("co", co), Dim("ci", ci, "reduction"))
    x = Operand("x", (n, ci), _axes("n, ci"), "fixed16")
    w = Operand("w", (co, ci), _axes("co, ci"), "fixed16", "weight")
    b = Operand("b", (co,), _axes("co"), "fixed32", "bias")
    out = Operand("acc", (n, co), _axes("n, co"), "fixed32", "output")
    anchor = Stage("matmul", dims, (x, w, b), out)
    return Kernel(f"dense_{ci}_{co}", _after(anchor, ["n", "co"], False, (n, co), relu))


def pool(
    c: int,
    size: int,
    kernel: int,
    stride: int,
    pad: int = 0,
    mode: str = "max_pool",
    end: int = 0,
) -> Kernel:
    """A pooling window; ``end`` is padding at the bottom and right beyond ``pad``."""
    oh = (size + 2 * pad + end - kernel) // stride + 1
    dims = (Dim("n", 1), Dim("c", c), Dim("oh", oh), Dim("ow", oh))
    inner = (Dim("kh", kernel, "reduction"), Dim("kw", kernel, "reduction"))
    where = f"n, c, oh*{stride} + kh - {pad}, ow*{stride} + kw - {pad}"
    x = Operand("x", (1, c, size, size), _axes(where), "fixed16")
    y = Operand("y", (1, c, oh, oh), _axes("n, c, oh, ow"), "fixed16", "output")
    return Kernel(f"pool_{c}_{size}_{kernel}", (Stage(mode, (*dims, *inner), (x,), y),))


def lrn(c: int, size: int, window: int = 5) -> Kernel:
    half = window // 2
    dims = (Dim("n", 1), Dim("c", c), Dim("h", size), Dim("w", size), Dim("j", window, "reduction"))
    x = Operand("x", (1, c, size, size), _axes(f"n, c + j - {half}, h, w"), "fixed16")
    y = Operand("y", (1, c, size, size), _axes("n, c, h, w"), "fixed16", "output")
    return Kernel(f"lrn_{c}_{size}", (Stage("lrn", dims, (x,), y),))


def softmax(rows: int, length: int) -> Kernel:
    dims = (Dim("d0", rows), Dim("axis", length, "reduction"))
    x = Operand("x", (rows, length), _axes("d0, axis"), "fixed16")
    y = Operand("y", (rows, length), _axes("d0, axis"), "fixed16", "output")
    return Kernel(f"softmax_{rows}_{length}", (Stage("softmax", dims, (x,), y),))


def add(c: int, size: int) -> Kernel:
    shape = (1, c, size, size)
    dims = tuple(Dim(f"d{i}", extent) for i, extent in enumerate(shape))
    access = _axes("d0, d1, d2, d3")
    a, b = (Operand(name, shape, access, "fixed16") for name in "ab")
    y = Operand("y", shape, access, "fixed16", "output")
    return Kernel(f"add_{c}_{size}", (Stage("add", dims, (a, b), y),))


def lenet() -> list[Kernel]:
    return [
        conv(1, 6, 28, 5),
        pool(6, 28, 2, 2),
        conv(6, 16, 14, 5, pad=0),
        pool(16, 10, 2, 2),
        dense(400, 120),
        dense(120, 84),
        dense(84, 10, relu=False),
    ]


def alexnet() -> list[Kernel]:
    """BVLC AlexNet, as bundled with ONNX (224 x 224 input, groups of 2)."""
    return [
        conv(3, 96, 224, 11, 4, pad=0),
        lrn(96, 54),
        pool(96, 54, 3, 2, end=1),
        conv(96, 256, 27, 5, groups=2),
        lrn(256, 27),
        pool(256, 27, 3, 2),
        conv(256, 384, 13, 3),
        conv(384, 384, 13, 3, groups=2),
        conv(384, 256, 13, 3, groups=2),
        pool(256, 13, 3, 2),
        dense(9216, 4096),
        dense(4096, 4096),
        dense(4096, 1000, relu=False),
        softmax(1, 1000),
    ]


def vgg16() -> list[Kernel]:
    layers: list[Kernel] = []
    size, channels = 224, 3
    for width, depth in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(depth):
            layers.append(conv(channels, width, size))
            channels = width
        layers.append(pool(width, size, 2, 2))
        size //= 2
    return [
        *layers,
        dense(25088, 4096),
        dense(4096, 4096),
        dense(4096, 1000, relu=False),
        softmax(1, 1000),
    ]


def resnet50() -> list[Kernel]:
    layers = [conv(3, 64, 224, 7, 2), pool(64, 112, 3, 2, 1)]
    size, channels = 56, 64
    for stage, (width, depth) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for block in range(depth):
            stride = 2 if block == 0 and stage else 1
            layers.append(conv(channels, width, size, 1, stride))
            if block == 0:
                layers.append(conv(channels, width * 4, size, 1, stride))
            size //= stride
            layers.append(conv(width, width, size, 3))
            layers.append(conv(width, width * 4, size, 1, residual=True))
            channels = width * 4
    layers += [
        pool(2048, 7, 7, 1, mode="average_pool"),
        dense(2048, 1000, relu=False),
        softmax(1, 1000),
    ]
    return layers


def variant(
    machine: Machine,
    *,
    bandwidth: float | None = None,
    in_flight: int | None = None,
    latency: int | None = None,
    **sizes: int,
) -> Machine:
    """The machine with other memory sizes, bandwidth, latency or transfers in flight."""
    moves = {"bytes_per_cycle": bandwidth, "in_flight": in_flight, "latency": latency}
    moves = {key: value for key, value in moves.items() if value is not None}
    memories: list[Memory] = []
    for memory in machine.memories:
        update: dict[str, object] = {}
        if memory.name in sizes:
            update["bytes"] = sizes[memory.name]
        if memory.name == machine.main and bandwidth is not None:
            update["bytes_per_cycle"] = bandwidth
        memories.append(memory.model_copy(update=update))
    return machine.model_copy(
        update={
            "memories": tuple(memories),
            "moves": tuple(move.model_copy(update=moves) for move in machine.moves),
        }
    )


def unified(machine: Machine, memory: str, size: int) -> Machine:
    """The machine with all operands in one memory of ``size`` bytes."""
    store = next(move for move in machine.moves if move.target == machine.main)
    own = store.model_copy(update={"source": memory, "name": f"{store.name}_of_{memory}"})
    primitives = tuple(
        primitive.model_copy(
            update={
                "operands": {
                    role: storage.model_copy(update={"memory": memory})
                    for role, storage in primitive.operands.items()
                }
            }
        )
        for primitive in machine.primitives
    )
    both = {"primitives": primitives, "moves": (*machine.moves, own)}
    return variant(machine.model_copy(update=both), **{memory: size})
