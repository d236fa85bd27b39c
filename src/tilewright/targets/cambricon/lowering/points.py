"""Maps over elements: as many at once as lie side by side in all operands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.codegen.program.elements import elements, fraction, is_wide
from tilewright.errors import refuse
from tilewright.numerics import tables
from tilewright.targets.cambricon.lowering.context import Code, Context
from tilewright.targets.cambricon.lowering.emitter import Value
from tilewright.targets.cambricon.lowering.epilogue import Epilogue, epilogue_of, limits_of
from tilewright.targets.cambricon.lowering.nest import Tile
from tilewright.targets.cambricon.lowering.operands import Operand
from tilewright.targets.cambricon.lowering.tables import table_of
from tilewright.targets.cambricon.lowering.temporaries import clear, fill
from tilewright.tile.dialect import windows_of

PAIRS = {"add": "VAV", "sub": "VSV", "mul": "VMV", "max": "VGTM", "min": "VGTM.min"}


class Points(Code):
    """The code of one map and what follows it."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        c = self.c
        stage = self.stage = c.anchor
        self.name = stage.operation.data
        self.inputs = [c.source(stage, i)[0] for i in range(len(stage.inputs))]
        self.kinds, self.result_kind = elements(stage)
        stages = c.compute.stages
        self.rest: Epilogue | None = epilogue_of(stages, c.where) if len(stages) > 1 else None
        if self.rest is not None and self.rest.residual is not None:
            raise refuse("lower-epilogue", "a map takes no residual after it", c.where)
        if self.name not in (*PAIRS, "relu", "clip", "requantise", *tables.FUNCTIONS):
            raise refuse("lower-epilogue", f"the vector unit has no {self.name}", c.where)
        self.limits = limits_of(stage) if self.name == "clip" else []
        if self.limits and is_wide(self.kinds[0]):
            raise refuse("lower-epilogue", "limits of numbers of 32 bits", c.where)
        self._axes()
        self._reserve()

    def _axes(self) -> None:
        """Logical axes of the run that all operands share, and those of loops around it."""
        c, output = self.c, self.c.output
        windows = list(windows_of(self.stage))
        self.target = windows[-1].data
        rank = len(output.buffer.tensor_shape)
        shared: list[int] = []
        apart: list[int] = []
        self.moving: dict[Operand, list[bool]] = {}
        for operand, window in zip(self.inputs, windows, strict=False):
            same = len(window.data) == rank and operand.order == output.order
            if not same:
                raise refuse("lower-layout", "operands of a map differ in layout", c.where)
            pairs = zip(window.data, self.target, output.buffer.tensor_shape, strict=True)
            self.moving[operand] = [a == b or extent == 1 for a, b, extent in pairs]
        several = [axis for axis in output.order if output.buffer.tensor_shape[axis] > 1]
        inner = several[-1] if several else output.order[-1]
        # An operand that is one number along the innermost axis is spread over a vector.
        self.single = [operand for operand in self.moving if not self.moving[operand][inner]]
        for axis in reversed(output.order):
            alike = all(
                moving[axis] != (operand in self.single) or output.buffer.tensor_shape[axis] == 1
                for operand, moving in self.moving.items()
            )
            if apart or not alike:
                apart.append(axis)
            else:
                shared.append(axis)
        self.shared, self.apart = shared, list(reversed(apart))

    def _reserve(self) -> None:
        t = self.c.temporaries
        relu = self.name == "relu" or (self.rest is not None and self.rest.relu)
        wide = self.rest is not None
        each = 2 * relu + 4 * wide + 2 * len(self.limits)
        each += 0 if self.rest is None else 2 * len(self.rest.limits)
        each += 4 * len(self.single) + 2 * bool(self.single and not relu)
        self.part = t.left // each // 8 * 8 if each else 0
        self.zeros = t.take(2 * self.part) if relu or self.single else 0
        self.spread = {operand: t.take(4 * self.part) for operand in self.single}
        self.sums = t.take(4 * self.part) if wide else 0
        self.relu = relu
        self.places = [t.take(2 * self.part) for _ in self.limits]
        self.table = table_of(self.stage, self.c.tables) if self.name in tables.FUNCTIONS else 0
        if self.rest is not None:
            shared = replace(self.rest, needs_zeros=False, zeros=self.zeros)
            self.rest = shared.placed(t, self.part, self.c.tables)

    def prologue(self) -> None:
        """Emit the code that runs before all tiles."""
        if self.relu or self.single:
            clear(self.e, self.zeros, self.part)
        for place, (_, limit) in zip(self.places, self.limits, strict=True):
            fill(self.e, place, self.part, limit)
        if self.rest is not None:
            self.rest.prologue(self.e, self.part)

    def emit(self, tile: Tile) -> None:
        """Emit the code of one tile."""
        e, c = self.e, self.c
        boxes = {operand: c.nest.box(operand, tile) for operand in self.inputs}
        box = c.nest.box(c.output, tile)
        count: Value = 1
        for axis in self.shared:
            count = e.multiply(count, box.axes[axis].size)
        result = e.variable(tile.bases[c.output.buffer])
        sources = {operand: e.variable(tile.bases[operand.buffer]) for operand in boxes}
        distinct = list(boxes)

        def level(axes: Sequence[int]) -> None:
            if not axes:
                self._run([sources[operand] for operand in self.inputs], result, count)
                e.increase(result, e.multiply(count, c.output.element))
                for operand in distinct:
                    step = 1 if operand in self.single else count
                    e.increase(sources[operand], e.multiply(step, operand.element))
                return
            axis = axes[0]
            size = box.axes[axis].size
            starts = {
                operand: e.variable(sources[operand])
                for operand in distinct
                if not self.moving[operand][axis]
            }

            def body() -> None:
                level(axes[1:])
                # What does not depend on this axis is read again.
                for operand, start in starts.items():
                    e.set(sources[operand], start)

            e.repeat(size, body, least=1)
            for operand in starts:
                used: Value = operand.element
                for inner in (*axes[1:], *self.shared):
                    used = e.multiply(used, boxes[operand].axes[inner].size)
                e.increase(sources[operand], used)

        level(self.apart)

    def _run(self, sources: Sequence[Value], result: Value, count: Value) -> None:
        """Elements side by side, in parts if temporaries are needed."""
        e = self.e
        if self.single:
            self._spread(sources, e.minimum(count, self.part))
            pairs = zip(self.inputs, sources, strict=True)
            sources = [self.spread.get(operand, source) for operand, source in pairs]
        self._parts(sources, result, count)

    def _spread(self, sources: Sequence[Value], count: Value) -> None:
        """Vectors of the numbers that operands are along a run."""
        e = self.e
        zeros, n, unit = e.reg(self.zeros), e.reg(count), e.reg(1)
        for operand, source in zip(self.inputs, sources, strict=True):
            if operand not in self.spread:
                continue
            wide = operand.element == 4
            value = e.register()
            e.emit("VMAX" + ".wide0" * wide, value, unit, e.reg(source))
            e.emit("VAS" + ".wide" * wide, e.reg(self.spread[operand]), n, zeros, value)

    def _parts(self, sources: Sequence[Value], result: Value, count: Value) -> None:
        e = self.e
        if not self.part or (isinstance(count, int) and count <= self.part):
            self._part(sources, result, count)
            return
        at = [e.variable(source) for source in sources]
        to = e.variable(result)

        def some(part: Value) -> None:
            self._part(at, to, part)
            for address, operand in zip(at, self.inputs, strict=True):
                if operand not in self.spread:
                    e.increase(address, e.multiply(part, operand.element))
            e.increase(to, e.multiply(part, self.c.output.element))

        e.in_parts("part", count, self.part, some)

    def _part(self, sources: Sequence[Value], result: Value, count: Value) -> None:
        e = self.e
        n = e.reg(count)
        rest = self.rest
        wide_result = is_wide(self.result_kind)
        out = e.reg(result) if rest is None else e.reg(self.sums)
        wide = ".wide" if (wide_result if rest is None else True) else ""
        inputs = [e.reg(source) for source in sources]
        flags = "".join(f".wide{i}" for i, kind in enumerate(self.kinds) if is_wide(kind))
        if self.name in PAIRS:
            text = f"{PAIRS[self.name]}{wide}{flags}"
            if self.name in ("add", "sub"):
                points = [fraction(kind) for kind in self.kinds]
                for i, point in enumerate(points):
                    text += f".left{i}={max(points) - point}" if max(points) > point else ""
            e.emit(text, out, n, *inputs)
        elif self.name == "relu":
            e.emit(f"VGTM{wide}{flags}", out, n, inputs[0], e.reg(self.zeros))
        elif self.name == "clip":
            source = inputs[0]
            for place, (text, _) in zip(self.places, self.limits, strict=True):
                # The first one makes the result, wide or not; the second one goes over it.
                first = source is inputs[0]
                kind = "" if first or not wide else ".wide0"
                e.emit(f"{text}{wide}{kind}", out, n, source, e.reg(place))
                source = out
            if not self.limits:
                e.emit(f"VMOVE{wide}", out, n, source)
        elif self.name == "requantise":
            shift = fraction(self.kinds[0]) - fraction(self.result_kind)
            # The result saturates to 16 bits, whatever follows.
            out = e.reg(result) if rest is None else out
            e.emit(f"VMOVE{flags}" + (f".shift={shift}" if shift else ""), out, n, inputs[0])
        else:
            e.emit(f"VEXP{wide}.table={self.table}", out, n, inputs[0])
        if rest is not None:
            narrow = self.name == "requantise"
            rest.emit(e, out, result, count, wide=not narrow)
