"""The text of tile programs: what is read, what is refused and why."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.ir import DiagnosticException, ParseError, Parser, VerifyException, to_text
from tilewright.planning.domain import Affine
from tilewright.tile.attributes import WindowAttr
from tilewright.tile.dialect import ProgramOp, context, programs_of
from tilewright.tile.syntax import parse_plain, plain_text, quoted

PROGRAM = """
tile.program "p" on "m" [n 2, co 8 | ci 6] {
  %x = tile.tensor "x" {role = "input"} : tensor<2x6xf32>
  %w = tile.tensor "w" {role = "weight"} : tensor<8x6xf32>
  %y = tile.tensor "y" {role = "output"} : tensor<2x8xf32>
  tile.loop "co" 0 to 8 step 4 {
    %bx = tile.buffer "x" of %x [n, ci] in "a" slots 1
    tile.move %x to %bx on "load"
    %bw = tile.buffer "w" of %w [co, ci] in "b" slots 2
    tile.move %w to %bw on "load" waits ["free w"]
    %by = tile.buffer "y" of %y [n, co] in "c" slots 1
    tile.compute "p" on "compute" to %by waits ["ready w", "free y"] {
      %0 = tile.stage "matmul"(%bx [n, ci], %bw [co, ci]) to [n, co] : tensor<2x8xf32>
      %1 = tile.stage "relu"(%0 [n, co]) to [n, co] : tensor<2x8xf32>
    }
    tile.move %by to %y on "store" waits ["ready y"]
  }
}
"""


def parse(text: str) -> ProgramOp:
    module = Parser(context(), text).parse_module()
    module.verify()
    return programs_of(module)[0]


def test_text_is_kept() -> None:
    text = to_text(parse(PROGRAM))
    assert to_text(parse(text)) == text
    assert text.splitlines()[0] == 'tile.program "p" on "m" [n 2, co 8 | ci 6] {'
    assert '    %bw = tile.buffer "w" of %w [co, ci] in "b" slots 2' in text
    assert '    tile.move %w to %bw on "load" waits ["free w"]' in text
    assert '      %0 = tile.stage "matmul"(%bx [n, ci], %bw [co, ci]) to [n, co]' in text


EVERY_PART = """\
tile.program "p" on "m" [n 2, co 8] levels ["a"] slots [["x", 2]] shared "n co" exchanged [["x", 1]] rooms [["a", 64]] nodes ["one", "two"] attributes {issuer = "host"} {
  %x = tile.tensor "x" {role = "input"} : tensor<2x8xf32>
  tile.loop "co" 0 to 8 step 4 for "a" {
    %b = tile.buffer "b" of %x [n, co] in "a" slots 1 accumulates circular 1 stays at_store role "input" shape [2, 4] address 0 bytes 32 {note}
    %g = tile.buffer "g" of %b [n, co] gathers [n, co + 1] fill -3 as tensor<2x8xf32> in "b" slots 2
    %c = tile.buffer "c" of %g [n, co] as tensor<2x8xf16> in "c" slots 2 role "output"
    tile.move %x to %b on "load" with "img2col" joined ahead waits ["free x"]
    tile.signal "load" to "compute" ids [0, 1] of %b
    tile.wait "load" to "compute" ids [2]
    tile.barrier "a \\"reason\\""
    tile.domain [co_1 = co + 1] sliding ["co_1"] {
      tile.compute "p" on "compute" to %c waits ["ready b"] options {rows = 2, kind = "a"} dims {co = "co_1"} {
        %0 = tile.stage "relu"(%g [n, co], %b [n, co]) to [n, co] with {axes = [1], scale = 0.5} node "one" : tensor<2x8xf16>
      }
    }
  }
}"""  # noqa: E501


def test_every_part_is_kept() -> None:
    (program,) = programs_of(Parser(context(), EVERY_PART).parse_module())
    assert to_text(program) == EVERY_PART


def test_unknown_attributes_are_kept() -> None:
    text = PROGRAM.replace("slots 2", 'slots 2 {note = "mine"}').replace(
        "step 4 {", "step 4 attributes {unit, list = [1, 2]} {"
    )
    again = to_text(parse(text))
    assert '{note = "mine"}' in again
    assert "attributes {unit, list = [1, 2]}" in again
    assert to_text(parse(again)) == again


def test_the_generic_form_is_read_too() -> None:
    program = parse(PROGRAM)
    generic = str(program.parent_op())
    assert "tile.program" in generic
    from io import StringIO

    from tilewright.ir import Printer

    stream = StringIO()
    Printer(stream, print_generic_format=True).print_op(program)
    assert '"tile.loop"() <{' in stream.getvalue()
    assert to_text(parse(stream.getvalue())) == to_text(program)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("[n 2, co 8 | ci 6]", "[n 2, co 8, n 3 | ci 6]", "the dim n is named twice"),
        ("[n 2, co 8 | ci 6]", "[n 0, co 8 | ci 6]", "dim n has extent 0"),
        ('"co" 0 to 8 step 4', '"oh" 0 to 8 step 4', "no dim oh"),
        ('"co" 0 to 8 step 4', '"co" 0 to 9 step 4', "leaves the interval of size 8"),
        ('"co" 0 to 8 step 4', '"co" 4 to 4 step 4', "is empty"),
        ('"co" 0 to 8 step 4', '"co" 0 to 8 step 0', "is empty"),
        ("%w [co, ci] in", "%w [co] in", "has 1 axes, the tensor 2"),
        ("%w [co, ci] in", "%w [co, kh] in", "no dim kh"),
        ("%w [co, ci] in", "%w [co, ci + ci] in", "ci is named twice"),
        ("%w [co, ci] in", "%w [co, ci*9999999999999] in", "too large"),
        ("slots 2", "slots 0", "0 slots"),
        ("slots 2", "slots 65", "65 slots"),
        ('tile.buffer "x"', 'tile.buffer "w"', "the buffer w is named twice"),
        ('tile.tensor "w"', 'tile.tensor "x"', "the tensor x is named twice"),
        ("tile.move %w to %bw", "tile.move %x to %bw", "must be what the buffer is of"),
        ('%bx on "load"', '%bx on ""', "no engine is named"),
        ('waits ["free w"]', 'waits ["free z"]', "waits for z, which is no buffer"),
        ('waits ["free w"]', 'waits ["after w"]', "a wait is 'ready NAME' or 'free NAME'"),
        ('waits ["free w"]', "waits [1]", "a wait is 'ready NAME' or 'free NAME', not 1"),
        ("slots 2", 'slots 2 shape ["4", 6]', "a shape has no number below 0"),
        ("| ci 6] {", "| ci 6] exchanged [[]] {", "() is no tensor and part of a mesh"),
        ("| ci 6] {", '| ci 6] exchanged [["w", "zz"]] {', "no tensor and part of a mesh"),
        ("| ci 6] {", '| ci 6] exchanged [["z", "all"]] {', "exchanges 'z', which is no"),
        ("| ci 6] {", '| ci 6] exchanged [["w", "all"], ["w", "row"]] {', "w is named twice"),
        ('"input"} : tensor<2x6', '"input"} : tensor<99999999999999x6', "extents are between"),
        ('"input"}', '"input", offset = -1}', "an offset is a number of bytes, not -1"),
        ('"input"}', '"input", offset = true}', "an offset is a number of bytes, not True"),
        ('"input"}', '"input", strides = [6]}', "strides are 2 numbers of elements, not (6,)"),
        ('"input"}', '"input", strides = [6, "x"]}', "strides are 2 numbers of elements"),
        (
            "to [n, co] : tensor<2x8xf32>",
            'to [n, co] with {pads = [true, "x"]} : tensor<2x8xf32>',
            "pads are whole numbers",
        ),
        ("slots 2", "slots 2 shape [4, -1]", "a shape has no number below 0"),
        ('%x to %bx on "load"', '%x to %bx on "load" joined', "joins a move"),
        ('"relu"(%0 [n, co])', '"relu"(%bx [n, ci])', "no later stage uses stage matmul"),
        ('"relu"(%0 [n, co])', '"relu"(%0 [co, n])', "reads [co, n] of a stage"),
        ('"relu"(%0 [n, co]) to [n, co]', '"relu"(%0 [n, co]) to [n, ci]', "stands after"),
        ("[n, co] : tensor<2x8xf32>\n    }", "[n, co] : tensor<2x9xf32>\n    }", "not that of the"),
        ("%y [n, co] in", "%y [n, co + 1] in", "is not that of the output's buffer"),
    ],
)
def test_the_verifier_says_what_is_wrong(old: str, new: str, reason: str) -> None:
    assert old in PROGRAM
    with pytest.raises(VerifyException) as caught:
        parse(PROGRAM.replace(old, new, 1))
    assert reason in str(caught.value)


def test_scopes_are_checked() -> None:
    lines = PROGRAM.splitlines()
    buffer = next(line for line in lines if 'tile.buffer "w"' in line)
    move = next(line for line in lines if "tile.move %w" in line)
    swapped = PROGRAM.replace(buffer + "\n" + move, move + "\n" + buffer)
    with pytest.raises(ParseError, match="%bw is not defined here"):
        parse(swapped)
    store = next(line for line in lines if "tile.move" in line and "to %y" in line)
    for each in (move, store):
        inner = PROGRAM.replace(each, f'tile.loop "n" 0 to 2 step 1 {{\n{each}\n}}')
        with pytest.raises(VerifyException, match="must stand in the block of its buffer"):
            parse(inner)
    outside = PROGRAM.replace(buffer, f'tile.loop "n" 0 to 2 step 1 {{\n{buffer}\n}}')
    with pytest.raises((VerifyException, ParseError)):
        parse(outside)


@pytest.mark.parametrize(
    "text",
    [
        'tile.program "p" on "m" [n',
        'tile.program "p" on "m" [n 2] { tile.loop "n" 0 to }',
        'tile.program "p" on "m" [n 2] { %x = tile.buffer "x" of %nothing [n] in "a" slots 1 }',
        'tile.program "p" on "m" [n 2] { %x = tile.tensor "x" {role = "a"} : tensor<2xf32>\n'
        '%b = tile.buffer "x" of %x [n**2] in "a" slots 1 }',
        'tile.program "p" on "m" [n 2] slots ' + "[" * 40 + "]" * 40 + " {}",
        'tile.program "p" on "m" [n 2] { tile.stage "s"() to [] : tensor<f32> }',
        'tile.program "p" on "m" [n 2] { tile.compute "s" on "c" to %x {} }',
        'tile.tensor "x"',
        'tile.loop "x" 0 to 1 step 1 {}',
        'tile.program "p" on "m" [n 2] { %x = tile.tensor "x" {role = "a"} : '
        "tensor<2x!tilewright.fixed<0, 5>> }",
    ],
)
def test_bad_text_is_refused_without_a_traceback(text: str) -> None:
    with pytest.raises((ParseError, VerifyException, DiagnosticException)):
        parse(text)


@pytest.mark.slow
@given(st.text(max_size=60))
@settings(max_examples=60, deadline=None)
def test_any_name_is_kept(name: str) -> None:
    name = name.encode("utf-8", "replace").decode()
    text = PROGRAM.replace('tile.program "p"', f"tile.program {quoted(name)}")
    program = parse(text)
    assert program.symbol.data == name
    assert parse(to_text(program)).symbol.data == name


PLAIN = st.recursive(
    st.one_of(
        st.integers(-(2**62), 2**62),
        st.booleans(),
        st.floats(allow_nan=False),
        st.text(st.characters(codec="utf-8"), max_size=8),
    ),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=6,
)


@given(PLAIN)
@settings(max_examples=100, deadline=None)
def test_plain_values_are_kept(value: object) -> None:
    text = plain_text(value)  # type: ignore[arg-type]
    again = parse_plain(Parser(context(), text))
    assert again == value
    assert type(again) is type(value)
    if isinstance(value, float):
        assert math.copysign(1, value) == math.copysign(1, float(again))  # type: ignore[arg-type]


@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from(["n", "oh", "kh"]), st.integers(-9, 9)),
            st.integers(-99, 99),
        ),
        max_size=4,
    )
)
@settings(max_examples=60, deadline=None)
def test_windows_are_kept(axes: list[tuple[dict[str, int], int]]) -> None:
    window = WindowAttr(tuple(Affine(tuple(terms.items()), offset) for terms, offset in axes))
    again = WindowAttr(WindowAttr.parse_axes(Parser(context(), str(window))))
    box = {"n": (3, 2), "oh": (0, 7), "kh": (1, 3)}
    assert again.box(box) == window.box(box)
