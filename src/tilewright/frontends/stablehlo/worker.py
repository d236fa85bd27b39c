"""Parse a StableHLO program in a process of its own: run as a script, never imported.

jaxlib's parser is C++ that reads what strangers wrote; whatever it does to this process, the
compiler goes on. The program comes on standard input; standard output gets one line of JSON (its
form is what ``program.py`` reads) and then the bytes of the constants. What cannot be parsed is a
JSON line with ``problem`` and ``reason``. jaxlib is loaded by name and has no types here, so that
nothing else of the project needs it.
"""

import json
import re
import sys
from importlib import import_module
from typing import Any

import numpy as np

MAX_OPERATIONS, MAX_SECONDS = (int(argument) for argument in sys.argv[1:3])
ELEMENTS = re.compile(r"^(f16|bf16|f32|f64|i1|u?i(8|16|32|64))$")
PORTABLE = b"ML\xefR"
"""The first bytes of MLIR's bytecode."""


class Refused(Exception):
    """A construct of the program that is not read: a code's last word, and a reason."""

    def __init__(self, problem: str, reason: str) -> None:
        super().__init__(reason)
        self.problem = problem


class Reader:
    """Turns MLIR's objects into plain values."""

    def __init__(self, ir: Any, stablehlo: Any) -> None:
        self.ir, self.stablehlo = ir, stablehlo
        self.numbers: dict[Any, int] = {}
        self.blobs: list[bytes] = []
        self.offset = 0
        self.operations = 0

    def kind(self, type_: Any) -> Any:
        """A type: ``[element, shape]`` of a tensor, ``{"tuple": [...]}``, or its text."""
        if isinstance(type_, self.ir.RankedTensorType):
            element = str(type_.element_type)
            if ELEMENTS.match(element) and type_.has_static_shape and type_.encoding is None:
                return [element, list(type_.shape)]
        elif isinstance(type_, self.ir.TupleType):
            return {"tuple": [self.kind(type_.get_type(i)) for i in range(type_.num_types)]}
        return str(type_)[:200]

    def number(self, value: Any) -> int:
        """Return the number of a value, given in order of appearance."""
        return self.numbers.setdefault(value, len(self.numbers))

    def values(self, values: Any) -> list[Any]:
        """Numbers and types of values."""
        return [[self.number(value), self.kind(value.type)] for value in values]

    def block(self, block: Any) -> dict[str, Any]:
        """A block: its arguments and operations."""
        arguments = self.values(block.arguments)
        names = [self.name(argument.location) for argument in block.arguments]
        operations = [self.operation(view.operation) for view in block.operations]
        return {"arguments": arguments, "names": names, "operations": operations}

    def operation(self, op: Any) -> dict[str, Any]:
        """An operation, and those in its regions."""
        self.operations += 1
        if self.operations > MAX_OPERATIONS:
            raise Refused("too-large", f"it has more than {MAX_OPERATIONS} operations")
        regions: list[Any] = []
        for region in op.regions:
            blocks = list(region.blocks)
            if len(blocks) > 1:
                raise Refused("unsupported", f"{op.name} branches between blocks")
            regions.append(self.block(blocks[0]) if blocks else None)
        return {
            "name": op.name,
            "location": self.name(op.location),
            "operands": [self.number(value) for value in op.operands],
            "results": self.values(op.results),
            "attributes": self.entries(op.attributes),
            "regions": regions,
        }

    def name(self, location: Any) -> str:
        """The outermost name in a location, or ""."""
        match = re.match(r'loc\("((?:[^"\\]|\\.)*)"', str(location))
        rest = str(location)[match.end() :] if match else ""
        # A file's name is followed by a line; it says nothing about the model.
        return "" if match is None or rest.startswith(":") else match.group(1)[:1000]

    def entries(self, named: Any) -> dict[str, Any]:
        """Return the attributes of an operation by name."""
        pairs = (named[index] for index in range(len(named)))
        return {pair.name: self.attribute(pair.attr) for pair in pairs}

    def attribute(self, attribute: Any) -> Any:
        """An attribute as plain values; its text, marked as such, if it is of no known kind."""
        ir = self.ir
        if isinstance(attribute, ir.DenseElementsAttr):
            return self.dense(attribute)
        if isinstance(attribute, ir.BoolAttr | ir.IntegerAttr | ir.FloatAttr | ir.StringAttr):
            return attribute.value
        if isinstance(attribute, ir.FlatSymbolRefAttr):
            return {"symbol": attribute.value}
        if isinstance(attribute, ir.ArrayAttr | ir.DenseI64ArrayAttr | ir.DenseBoolArrayAttr):
            plain = not isinstance(attribute, ir.ArrayAttr)
            return [item if plain else self.attribute(item) for item in attribute]
        if isinstance(attribute, ir.DictAttr):
            return {"entries": self.entries(attribute)}
        for kind in ("ConvDimensionNumbers", "DotDimensionNumbers", "GatherDimensionNumbers"):
            form = getattr(self.stablehlo, kind)
            if form.isinstance(attribute):
                return {"entries": self.fields(form(attribute))}
        for kind in ("ComparisonDirectionAttr", "ComparisonTypeAttr"):
            form = getattr(self.stablehlo, kind)
            if form.isinstance(attribute):
                return form(attribute).value
        return {"text": str(attribute)[:500]}

    def fields(self, numbers: Any) -> dict[str, Any]:
        """The dimension numbers of an operation, by name."""
        fields: dict[str, Any] = {}
        for name in dir(numbers):
            if name.endswith(("dimension", "dimensions", "dims", "dim", "map")):
                value = getattr(numbers, name)
                fields[name] = value if isinstance(value, int) else list(value)
        return fields

    def dense(self, attribute: Any) -> Any:
        """Return where a constant's bytes are; of a splat, only its one value is stored."""
        kind = self.kind(attribute.type)
        if isinstance(kind, str):
            return {"text": kind}
        if not isinstance(attribute.type, self.ir.RankedTensorType):
            return {"text": str(attribute.type)[:200]}
        element, shape = kind
        if element == "bf16":
            array = self.short(str(attribute), attribute.is_splat)
        else:
            array = np.asarray(attribute)
            if attribute.is_splat and array.size:
                array = array[(slice(0, 1),) * array.ndim]
        data = np.ascontiguousarray(array).tobytes()
        entry = {"element": element, "shape": shape, "splat": bool(attribute.is_splat)}
        entry |= {"offset": self.offset, "bytes": len(data)}
        # Arrays of every element type lie at their own alignment.
        data += bytes(-len(data) % 64)
        self.blobs.append(data)
        self.offset += len(data)
        return {"dense": entry}

    def short(self, text: str, splat: bool) -> Any:
        """Bits of bfloat16 constants, which the bindings give as text alone."""
        body = text[text.index("<") + 1 : text.rindex("> :")]
        if body.startswith('"0x'):
            return np.frombuffer(bytes.fromhex(body[3:-1]), np.uint16)
        bits: list[int] = []
        for word in re.findall(r"[^\[\],\s]+", body):
            if word.startswith("0x"):
                bits.append(int(word, 16))
            else:
                # The text has digits enough to name the number, which float32 holds exactly.
                bits.append((int(np.float32(word).view(np.uint32)) + 0x8000) >> 16)
        return np.array(bits, np.uint16)


def parse(data: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """The program as plain values and the bytes of its constants; raises Refused."""
    try:
        ir = import_module("jaxlib.mlir.ir")
        stablehlo = import_module("jaxlib.mlir.dialects.stablehlo")
        chlo = import_module("jaxlib.mlir.dialects.chlo")
        registry = ir.DialectRegistry()
        # Registers func and the others that JAX writes.
        import_module("jaxlib.mlir._mlir_libs._jax_mlir_ext").register_dialects(registry)
    except ImportError as error:
        raise Refused("extra", f"jaxlib, which parses it, is not installed: {error}") from error
    context = ir.Context()
    context.append_dialect_registry(registry)
    stablehlo.register_dialect(context)
    chlo.register_dialect(context)
    with context:
        try:
            if data.startswith(PORTABLE) and b"StableHLO" in data[:32]:
                module = stablehlo.deserialize_portable_artifact(context, data)
            else:
                module = ir.Module.parse(data)
            module.operation.verify()
        except Exception as error:  # The bindings' own kinds.
            reason = " ".join(str(error).split())[:500] or type(error).__name__
            raise Refused("syntax", reason) from error
        reader = Reader(ir, stablehlo)
        functions: list[Any] = []
        for view in module.body.operations:
            op = view.operation
            if op.name == "sdy.mesh":
                continue  # Devices; a program for several is refused where it says so.
            if op.name != "func.func":
                raise Refused("unsupported", f"{op.name[:60]} stands beside the functions")
            functions.append(reader.operation(op))
        attributes = module.operation.attributes
        name = attributes["sym_name"].value if "sym_name" in attributes else ""
    return {"name": name, "functions": functions}, reader.blobs


def main() -> None:
    """Read standard input, write standard output."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (MAX_SECONDS, MAX_SECONDS))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, OSError, ValueError):
        pass  # Not on this system; the caller has a clock of its own.
    try:
        document, blobs = parse(sys.stdin.buffer.read())
    except Refused as refusal:
        document, blobs = {"problem": refusal.problem, "reason": str(refusal)}, []
    except (RecursionError, MemoryError) as error:
        document, blobs = {"problem": "too-large", "reason": type(error).__name__}, []
    except Exception as error:
        document, blobs = {"problem": "syntax", "reason": " ".join(str(error).split())[:300]}, []
    sys.stdout.buffer.write(json.dumps(document).encode() + b"\n")
    for blob in blobs:
        sys.stdout.buffer.write(blob)


if __name__ == "__main__":
    main()
