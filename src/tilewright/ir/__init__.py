"""The one module through which Tilewright imports xDSL, whose names change between releases."""

import math
import re
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from io import StringIO
from typing import Any, TypeVar

from xdsl.context import Context
from xdsl.dialects.builtin import (
    ArrayAttr,
    Builtin,
    DenseArrayBase,
    DictionaryAttr,
    Float32Type,
    FloatAttr,
    FloatData,
    IntAttr,
    IntegerAttr,
    IntegerType,
    ModuleOp,
    NoneAttr,
    Signedness,
    StringAttr,
    SymbolRefAttr,
    TensorType,
    UnitAttr,
    bf16,
    f16,
    f32,
    f64,
    i1,
    i8,
    i16,
    i32,
    i64,
)
from xdsl.dialects.builtin import BoolAttr as BoolAttr
from xdsl.ir import (
    Attribute,
    Block,
    BlockArgument,
    Data,
    Dialect,
    Operation,
    OpResult,
    ParametrizedAttribute,
    Region,
    SSAValue,
    TypeAttribute,
    Use,
)
from xdsl.irdl import (
    AnyAttr,
    BaseAttr,
    IRDLOperation,
    OpDef,
    ParsePropInAttrDict,
    RangeLengthConstraint,
    RangeOf,
    ResultDef,
    VarOperandDef,
    VarResultDef,
    attr_def,
    irdl_attr_definition,
    irdl_op_verify_regions,
    operand_def,
    opt_attr_def,
    opt_operand_def,
    opt_prop_def,
    param_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.irdl import irdl_op_definition as _irdl_op_definition
from xdsl.irdl.constraints import VerificationContext
from xdsl.parser import AttrParser
from xdsl.parser import Parser as PlainParser
from xdsl.passes import ModulePass, PassPipeline
from xdsl.pattern_rewriter import (
    GreedyRewritePatternApplier,
    PatternRewriter,
    PatternRewriteWalker,
    RewritePattern,
    op_type_rewrite_pattern,
)
from xdsl.printer import Printer
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.traits import IsolatedFromAbove, IsTerminator, NoTerminator, Pure
from xdsl.utils.exceptions import DiagnosticException, ParseError, VerifyException

PythonValue = int | float | bool | str | tuple["PythonValue", ...] | list["PythonValue"]
"""The content of an attribute, as plain Python."""

__all__ = [
    "ArrayAttr",
    "AttrParser",
    "Attribute",
    "Block",
    "BlockArgument",
    "BoolAttr",
    "Builtin",
    "Context",
    "Data",
    "DenseArrayBase",
    "DiagnosticException",
    "Dialect",
    "DictionaryAttr",
    "Float32Type",
    "FloatAttr",
    "FloatData",
    "GreedyRewritePatternApplier",
    "IRDLOperation",
    "InsertPoint",
    "IntAttr",
    "IntegerAttr",
    "IntegerType",
    "IsTerminator",
    "IsolatedFromAbove",
    "ModuleOp",
    "ModulePass",
    "NoTerminator",
    "NoneAttr",
    "OpResult",
    "Operation",
    "ParametrizedAttribute",
    "ParseError",
    "ParsePropInAttrDict",
    "Parser",
    "PassPipeline",
    "PatternRewriteWalker",
    "PatternRewriter",
    "PlainParser",
    "Printer",
    "Pure",
    "PythonValue",
    "Region",
    "RewritePattern",
    "Rewriter",
    "SSAValue",
    "Signedness",
    "StringAttr",
    "SymbolRefAttr",
    "TensorType",
    "TextPrinter",
    "TypeAttribute",
    "UnitAttr",
    "Use",
    "VerifyException",
    "attr_def",
    "bf16",
    "f16",
    "f32",
    "f64",
    "from_attribute",
    "give_type",
    "i1",
    "i8",
    "i16",
    "i32",
    "i64",
    "integer",
    "irdl_attr_definition",
    "irdl_op_definition",
    "op_type_rewrite_pattern",
    "operand_def",
    "opt_attr_def",
    "opt_operand_def",
    "opt_prop_def",
    "param_def",
    "prop_def",
    "region_def",
    "result_def",
    "to_attribute",
    "to_text",
    "traits_def",
    "var_operand_def",
    "var_result_def",
]


_Definition = TypeVar("_Definition", bound=IRDLOperation)


def irdl_op_definition(cls: type[_Definition]) -> type[_Definition]:
    """xDSL's decorator; an operation's only operands, and its only result, are found at once.

    xDSL searches the definition whenever they are asked for: a tenth of a compilation. Another
    tenth goes into verifying what the definition states of classes, which here is done once for
    all operations that have the same classes in the same places; what an operation checks itself,
    it checks every time.
    """
    verifier = cls.verify_
    definition = _irdl_op_definition(cls)
    described = definition.get_irdl_definition()
    if _asks_classes_alone(described):
        definition.verify_ = _verifier(described, verifier)  # pyright: ignore[reportAttributeAccessIssue]
    if len(described.operands) == 1:
        name, kind = described.operands[0]
        if type(kind) is VarOperandDef:
            setattr(definition, name, property(_operands))
    if len(described.results) == 1:
        name, kind = described.results[0]
        if type(kind) is ResultDef:
            setattr(definition, name, property(_result))
    return definition


def _asks_classes_alone(described: OpDef) -> bool:
    """Return True if a definition states of operands, results, properties and attributes only what
    holds for all of the same classes. Where several operands or results are lists, an attribute's
    value says how long each is."""
    if described.successors:
        return False
    for kinds, lists in ((described.operands, VarOperandDef), (described.results, VarResultDef)):
        if sum(isinstance(kind, lists) for _, kind in kinds) > 1:
            return False
    named = [*described.operands, *described.results]
    named += [*described.properties.items(), *described.attributes.items()]
    return all(_is_of_classes(kind.constr) for _, kind in named)


def _is_of_classes(constraint: object) -> bool:
    match constraint:
        case BaseAttr() | AnyAttr():
            return True
        case RangeOf():
            return _is_of_classes(constraint.constr)  # pyright: ignore[reportUnknownMemberType]
        case RangeLengthConstraint():
            return _is_of_classes(constraint.constraint)  # pyright: ignore[reportUnknownMemberType]
        case _:
            return False


def _verifier(described: OpDef, verifier: Callable[[Any], None]) -> Callable[[IRDLOperation], None]:
    """Return the verifier of operations whose definition asks for classes alone."""
    sound: set[object] = set()

    def verify_(op: IRDLOperation) -> None:
        form = (
            tuple([type(value.type) for value in op.operands]),
            tuple([type(value.type) for value in op.results]),
            tuple([(name, type(value)) for name, value in op.properties.items()]),
            tuple([(name, type(value)) for name, value in op.attributes.items()]),
            len(op.regions),
            len(op.successors),
        )
        if form not in sound:
            described.verify(op)
            sound.add(form)
        else:
            if described.regions:
                irdl_op_verify_regions(op, described, VerificationContext())
            for trait in described.traits:
                trait.verify(op)
        verifier(op)

    return verify_


def _operands(op: Operation) -> Sequence[SSAValue]:
    return op._operands  # pyright: ignore[reportPrivateUsage] # the view of them costs a call each


def _result(op: Operation) -> OpResult:
    return op.results[0]


def give_type(value: SSAValue, kind: Attribute) -> None:
    """Give a value another type: one that is new and has no users yet.

    For any other, ``Rewriter.replace_value_with_new_type`` makes a value anew.
    """
    value._type = kind  # pyright: ignore[reportPrivateUsage]


def to_attribute(value: PythonValue) -> Attribute:
    """The attribute that stands for a plain Python value (``from_attribute`` reads it back)."""
    if isinstance(value, bool):
        return IntegerAttr(int(value), i1)
    if isinstance(value, int):
        return integer(value)
    if isinstance(value, float):
        return FloatAttr(value, f64)
    if isinstance(value, str):
        return StringAttr(value)
    return ArrayAttr([to_attribute(item) for item in value])


@lru_cache(maxsize=1024, typed=True)
def integer(value: int) -> IntegerAttr:
    """The attribute of 64 bits that stands for a number; making one takes long."""
    return IntegerAttr(value, i64)


def from_attribute(attribute: Attribute) -> PythonValue:
    """The plain Python value of an attribute made by ``to_attribute``; raises TypeError."""
    # These two are most, and their classes take long to ask whether something is an instance.
    if type(attribute) is ArrayAttr:
        return tuple([from_attribute(item) for item in attribute.data])
    if type(attribute) is StringAttr:
        return attribute.data
    match attribute:
        case IntegerAttr():
            value = attribute.value.data
            kind = attribute.type
            return bool(value) if kind is not i64 and kind == i1 else value
        case FloatAttr():
            return float(attribute.value.data)
        case UnitAttr():
            return True
        case _:
            raise TypeError(f"no plain value for attribute {attribute}")


class Parser(PlainParser):
    """xDSL's parser, for which text beyond ASCII in string literals is still text."""

    def parse_optional_str_literal(self) -> str | None:
        """Read a string literal, of UTF-8 if it has escaped bytes; raises ParseError if not."""
        literal = super().parse_optional_str_literal()
        if literal is None and (raw := self.parse_optional_bytes_literal()) is not None:
            try:
                return raw.decode("utf-8")
            except UnicodeDecodeError:
                self.raise_error("a string literal is not UTF-8")
        return literal


class TextPrinter(Printer):
    """xDSL's printer; prints 64-bit numbers without their types, which are the default."""

    @cached_property
    def _types(self) -> dict[int, tuple[Attribute, str]]:
        """Types that have been printed, by identity, and their texts."""
        return {}

    def print_attribute(self, attribute: Attribute) -> None:
        """Print ``[1, 1]`` for ``[1 : i64, 1 : i64]`` and 0.1 for ``1.000000e-01 : f64``."""
        match attribute:
            case IntegerAttr() if attribute.type is i64 or attribute.type == i64:
                self.print_string(str(attribute.value.data))
            case FloatAttr() if attribute.type == f64 and math.isfinite(attribute.value.data):
                mantissa, mark, exponent = repr(float(attribute.value.data)).partition("e")
                self.print_string(mantissa + ("" if "." in mantissa else ".0") + mark + exponent)
            case TensorType():
                # Networks have few types, printed many times; who holds one keeps its identity.
                _, text = self._types.get(id(attribute), (attribute, ""))
                if not text:
                    text = self._text_of(attribute)
                    self._types[id(attribute)] = attribute, text
                self.print_string(text)
            case _:
                super().print_attribute(attribute)

    def _text_of(self, attribute: Attribute) -> str:
        stream = StringIO()
        Printer.print_attribute(TextPrinter(stream), attribute)
        return stream.getvalue()

    def print_bytes_literal(self, bytestring: bytes) -> None:
        """Print a string literal at once; xDSL prints it byte by byte, in half the time of all."""
        self.print_string(f'"{_ESCAPED.sub(_escape, bytestring.decode("latin-1"))}"')


_ESCAPED = re.compile(r'[^ -~]|["\\]')
"""Characters that are escaped in a string literal."""


def _escape(match: re.Match[str]) -> str:
    letter = match.group()
    return "\\\\" if letter == "\\" else f"\\{ord(letter):02X}"


def to_text(op: Operation) -> str:
    """The text of an operation, which ``Parser`` reads back."""
    stream = StringIO()
    TextPrinter(stream).print_op(op)
    return stream.getvalue()
