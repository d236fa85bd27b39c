"""Import a whole program: settle its inputs, then take its operations in order (body.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from tilewright.errors import Problem, TilewrightError
from tilewright.frontends.emitter import NewNetwork
from tilewright.frontends.imported import Imported
from tilewright.frontends.limits import shown
from tilewright.frontends.stablehlo.body import Body, check_kinds, tensor_entry
from tilewright.frontends.stablehlo.control import CONTROL
from tilewright.frontends.stablehlo.lowering import Lowering
from tilewright.frontends.stablehlo.program import Block, Operation
from tilewright.frontends.stablehlo.reader import Exported, Source, read_program
from tilewright.frontends.stablehlo.values import Entry, View
from tilewright.graph.names import identifier
from tilewright.ir import SSAValue
from tilewright.ir.types import element_of, tensor


def import_stablehlo(
    source: str | Path | bytes | Exported,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> Imported:
    """Read a StableHLO program, as JAX exports it, into the graph dialect.

    ``source`` is a path, the bytes of a file (text or bytecode), or what ``jax.export.export``
    returned. Sizes are fixed when a program is exported: ``shapes`` may only confirm them. Raises
    TilewrightError with every reason for which the program is refused.
    """
    return _Importer(read_program(source), shapes or {}).run()


class _Importer:
    """The state of one import."""

    def __init__(self, source: Source, shapes: Mapping[str, Sequence[int]]) -> None:
        self.source = source
        self.problems: list[Problem] = []
        program = source.program
        self.block = program.entry.regions[0]
        self.names = _input_names(self.block)
        self._check_inputs(shapes)
        self.outputs = _output_names(program.entry, self.block)
        name = program.name.removeprefix("jit_")
        self.name = identifier(name if name.strip("_") else "network", "network")
        kinds = [tensor(kind.shape, element_of(kind.dtype)) for kind in self.block.kinds]
        named = list(zip(self.names, kinds, strict=True))
        self.network = NewNetwork(self.name, named, self.outputs)
        self.body = Body(program, self.network, self.problems, CONTROL)

    def _check_inputs(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """Refuses inputs that are no tensors, and shapes that are not theirs."""
        for name, kind in zip(self.names, self.block.kinds, strict=True):
            place = f"input {shown(name)}"
            try:
                check_kinds([kind], place)
            except TilewrightError as error:
                self.problems.extend(error.problems)
                continue
            if kind.parts is not None:
                self.problems.append(Problem("stablehlo-dtype", "it is a tuple", place))
            elif any(extent < 1 for extent in kind.shape):
                reason = f"it has no elements, as its shape {list(kind.shape)} says"
                help = "export the function for an input that has some"
                self.problems.append(Problem("stablehlo-shape", reason, place, help))
            elif name in shapes and tuple(shapes[name]) != kind.shape:
                reason = f"{list(shapes[name])} is given; it was exported for {list(kind.shape)}"
                self.problems.append(
                    Problem("stablehlo-shape", reason, place, "export it for that shape")
                )
        for name in shapes:
            if name not in self.names:
                known = ", ".join(shown(other) for other in self.names[:20])
                reason = f"a shape is given for {shown(name)}, which is no input"
                self.problems.append(
                    Problem("stablehlo-shape", reason, help=f"the inputs are {known}")
                )
        if self.problems:
            raise TilewrightError(self.problems)

    def run(self) -> Imported:
        """The program as a network; raises TilewrightError."""
        inputs: list[Entry] = [tensor_entry(value) for _, value in self.network.operator.inputs]
        results: Sequence[Entry | None] = []
        try:
            scope = dict[int, Entry | None](zip(self.block.arguments, inputs, strict=True))
            results = self.body.run(self.block, scope, "")
        except TilewrightError as error:
            self.problems.extend(error.problems)
        values = self._outputs(results)
        if self.problems:
            raise TilewrightError(self.problems)
        module = self.network.finish(values)
        digest, nodes = self.source.digest, tuple(self.body.nodes)
        return Imported(module, self.network.weights, self.name, 1, digest, nodes=nodes)

    def _outputs(self, results: Sequence[Entry | None]) -> list[SSAValue]:
        """The tensors that the program returns."""
        if not self.problems and len(results) != len(self.outputs):
            reason = f"it returns {len(results)} values"
            self.problems.append(Problem("stablehlo-entry", reason, self.source.title))
        values: list[SSAValue] = []
        for name, entry in zip(self.outputs, results, strict=False):
            if entry is None:
                continue
            returned = next(op for op in self.block.operations if op.name == "func.return")
            try:
                at = Lowering(returned, name, (), self.network)
                if not isinstance(entry, View):
                    raise at.refuse("it is a tuple", code="stablehlo-dtype")
                values.append(at.full(entry))
            except TilewrightError as error:
                self.problems.extend(error.problems)
        return values


def _input_names(block: Block) -> list[str]:
    """Return the program's names of its inputs where each has one; else arg0, arg1, ..."""
    names = [name.rpartition("/")[2] for name in block.names]
    if all(names) and len(set(names)) == len(names):
        return names
    return [f"arg{index}" for index in range(len(block.arguments))]


def _output_names(entry: Operation, block: Block) -> list[str]:
    """Return JAX's names of the results (``result[0]``), or result0, result1, ..."""
    last = block.operations[-1] if block.operations else None
    count = len(last.operands) if last is not None else 0
    stated = entry.attributes.get("res_attrs")
    infos: list[str] = []
    for item in cast("list[Any]", stated) if isinstance(stated, list) else []:
        named = cast("dict[str, Any]", item) if isinstance(item, dict) else {}
        infos.append(str(named.get("jax.result_info", "")) or "result")
    if len(infos) == count and len(set(infos)) == count:
        return infos
    return ["result"] if count == 1 else [f"result{index}" for index in range(count)]
