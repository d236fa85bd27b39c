"""Bad StableHLO programs are refused by code, and what jaxlib's parser does harms nobody."""

import importlib.util
import random

import pytest

import tilewright
from tests.errors.stablehlo_texts import CASES, main, returning
from tilewright.errors import TilewrightError
from tilewright.frontends.stablehlo import import_stablehlo, reader

INSTALLED = importlib.util.find_spec("jaxlib") is not None
needs_jaxlib = pytest.mark.skipif(
    not INSTALLED, reason="jaxlib is not installed; make test-frontends installs it"
)
GOOD = returning("stablehlo.add %x, %x : tensor<4xf32>")


def problems_of(source):
    with pytest.raises(TilewrightError) as caught:
        import_stablehlo(source)
    return caught.value.problems


@pytest.mark.skipif(INSTALLED, reason="jaxlib is installed")
def test_without_jaxlib_the_message_says_what_to_install():
    (problem,) = problems_of(GOOD.encode())
    assert problem.code == "stablehlo-extra"
    assert "tilewright[jax]" in problem.help


def test_a_missing_file(tmp_path):
    with pytest.raises(TilewrightError) as caught:
        tilewright.load(tmp_path / "none.mlir")
    assert caught.value.problems[0].code == "stablehlo-missing-file"
    with pytest.raises(TilewrightError) as caught:
        (tmp_path / "folder.mlir").mkdir()
        tilewright.load(tmp_path / "folder.mlir")
    assert caught.value.problems[0].code == "stablehlo-missing-file"


def test_weights_beside_a_program(tmp_path):
    with pytest.raises(TilewrightError) as caught:
        tilewright.load(tmp_path / "model.mlir", caffemodel=tmp_path / "weights")
    assert caught.value.problems[0].code == "model-weights"


def test_a_large_file(tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "MAX_FILE_BYTES", 10)
    path = tmp_path / "model.mlir"
    path.write_text(GOOD)
    assert problems_of(path)[0].code == "stablehlo-too-large"
    assert problems_of(str(path))[0].code == "stablehlo-too-large"


@needs_jaxlib
@pytest.mark.parametrize("name", CASES)
def test_refusals(name):
    text, code, words = CASES[name]
    problems = problems_of(text.encode())
    found = [problem for problem in problems if problem.code == code and words in str(problem)]
    assert found, problems


@needs_jaxlib
def test_all_problems_come_in_one_report():
    body = "\n".join(
        f"%{i} = stablehlo.bitcast_convert %x : (tensor<4xf32>) -> tensor<4xi32>" for i in range(3)
    )
    assert len(problems_of(main(f"{body}\nreturn %x : tensor<4xf32>").encode())) == 3


@needs_jaxlib
def test_shapes_may_only_confirm():
    import_stablehlo(GOOD.encode(), shapes={"arg0": [4]})
    for shapes in ({"arg0": [5]}, {"other": [4]}):
        with pytest.raises(TilewrightError) as caught:
            import_stablehlo(GOOD.encode(), shapes=shapes)
        assert caught.value.problems[0].code == "stablehlo-shape"


@needs_jaxlib
def test_too_many_operations(monkeypatch):
    monkeypatch.setattr(reader, "MAX_OPERATIONS", 2)
    assert problems_of(GOOD.encode())[0].code == "stablehlo-too-large"


@needs_jaxlib
def test_a_crash_of_the_parser_is_a_refusal(monkeypatch):
    """Nesting without end overflows the stack of the parser's process."""
    deep = "module {" * 200_000
    assert problems_of(deep.encode())[0].code == "stablehlo-syntax"


@needs_jaxlib
@pytest.mark.slow
def test_damaged_programs():
    """Bytes cut, changed, repeated: each is read, or refused with a code of this front-end."""
    dice = random.Random(7)
    texts = [text.encode() for text, _, _ in CASES.values()] + [GOOD.encode()]
    for _ in range(60):
        _must_not_crash(_damaged(dice.choice(texts), dice))


@needs_jaxlib
@pytest.mark.slow
def test_damaged_bytecode():
    """The same for the portable form."""
    jax = pytest.importorskip("jax")
    export = jax.export.export(jax.jit(lambda x: jax.nn.softmax(x @ x.T)[:, 1:3]))
    code = export(jax.ShapeDtypeStruct((4, 4), "float32")).mlir_module_serialized
    dice = random.Random(8)
    for _ in range(60):
        _must_not_crash(_damaged(code, dice))
    _must_not_crash(code[:40] + bytes(10_000))


def _damaged(data: bytes, dice: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(dice.randint(1, 4)):
        place = dice.randrange(len(changed) + 1)
        match dice.randrange(4):
            case 0:
                changed[place : place + dice.randint(1, 20)] = b""
            case 1:
                changed[place:place] = bytes(dice.randrange(256) for _ in range(4))
            case 2 if place < len(changed):
                changed[place] = dice.randrange(256)
            case _:
                changed[place:place] = changed[max(0, place - 30) : place]
    return bytes(changed)


def _must_not_crash(data: bytes) -> None:
    try:
        import_stablehlo(data)
    except TilewrightError as error:
        assert all(problem.code.startswith("stablehlo-") for problem in error.problems)
