"""Elementwise operations as lists of vector instructions over named buffers.

Operands are x and y, the result is ``out``, others are temporaries; ``out`` is written when x and y
are not read again, or by the step that reads them last, so that results may take an operand's
place. Names in ``constants`` and ``scalars`` are blocks of elements alike: 910 has no maximum or
minimum with a scalar, and no number divided by a vector.

Functions are computed in floats; a half is converted first. Errors, relative to the result:

tanh, erf      5e-7: odd rational functions of x, in x * x of degrees 5 and 4, 5 and 5, fitted for
               the least relative error where the result is not 1 yet (|x| up to 9, and 3.92)
gelu           the error function's, relative to x from -5.6 on; 1e-6 below, where it is 0
sigmoid, silu  2e-7 from -80 on; below that they are sigmoid's at -80, 2e-35
softplus       1e-7, absolute, where x is negative
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import frexp, pi, sqrt

from tilewright.codegen.nest.value import Value
from tilewright.numerics.operators import PARAMETERS
from tilewright.targets.ascend import isa
from tilewright.targets.ascend.kernels.vectors import (
    BOOLEAN,
    CASTS,
    REPEAT,
    Choice,
    Grid,
    Vectors,
    along_row,
    number,
)
from tilewright.targets.ascend.machine import DaVinci
from tilewright.targets.ascend.program import Place, Statement

FLOATS = ("half", "float")
LARGEST = (2 - 2.0**-23) * 2.0**127
"""The largest finite float."""

NUMBERS = (*FLOATS, "int32_t")


@dataclass(frozen=True)
class Step:
    """One vector instruction over buffers; a scalar follows the sources, as a C expression."""

    name: str
    to: str
    sources: tuple[str, ...]
    scalar: str = ""

    @property
    def chooses(self) -> bool:
        """True of ``choose_`` and a relation: the third source where it holds of the first two,
        else the fourth."""
        return self.name.startswith("choose_")

    def renamed(self, names: Mapping[str, str]) -> Step:
        """The same over buffers of which some have other names."""
        sources = tuple(names.get(source, source) for source in self.sources)
        return replace(self, to=names.get(self.to, self.to), sources=sources)

    def statement(
        self,
        part: Callable[[str], tuple[Place, int, int]],
        repeats: Value,
        lanes: int | None = None,
    ) -> Statement:
        """The instruction; ``part`` gives a buffer's place and strides of blocks and repeats."""
        places, blocks, strides = zip(*map(part, (self.to, *self.sources)), strict=True)
        name = self.name
        if name == "cast":
            name = CASTS[isa.element_of(places[1]), isa.element_of(places[0])]
        return isa.vector(name, places[0], places[1:], repeats, blocks, strides, self.scalar, lanes)


@dataclass(frozen=True)
class Recipe:
    """An operation: how many operands, of which types, its steps over x, y, z, t and u.

    ``types`` maps the operands' element to the result's. The last step writes ``out``.
    """

    operands: int
    types: Mapping[str, str]
    steps: tuple[Step, ...]
    scalars: tuple[str, ...] = ()
    """Blocks whose elements the caller says."""
    constants: Mapping[str, str] = field(default_factory=dict[str, str])
    """Blocks of elements alike, as C."""
    temporaries: tuple[str, ...] = ()
    wide: bool = False
    """True if temporaries are floats, to which halves are converted first and back at last."""
    kinds: Mapping[str, str] = field(default_factory=dict[str, str])
    """Element types of buffers that are not the operands'."""


def _binary(name: str, types: Sequence[str]) -> Recipe:
    return Recipe(2, {t: t for t in types}, (Step(name, "out", ("x", "y")),))


def _unary(name: str, scalar: str = "") -> Recipe:
    return Recipe(1, {t: t for t in FLOATS}, (Step(name, "out", ("x",), scalar),))


def _function(
    *steps: Step, temporaries: str = "t", scalars: Sequence[str] = (), **constants: str
) -> Recipe:
    """A function of one float."""
    types = {t: t for t in FLOATS}
    return Recipe(1, types, steps, tuple(scalars), constants, tuple(temporaries.split()), wide=True)


def _polynomial(to: str, of: str, coefficients: Sequence[float]) -> tuple[Step, ...]:
    """to = c0 + c1 of + c2 of * of ..., in Horner's form."""
    *others, last = coefficients
    steps = [Step("vmuls", to, (of,), number(last))]
    for coefficient in reversed(others[1:]):
        steps += [Step("vadds", to, (to,), number(coefficient)), Step("vmul", to, (to, of))]
    return (*steps, Step("vadds", to, (to,), number(others[0])))


TANH = (
    (0.999999999, 0.136809957, 0.00386968086, 2.80346939e-05, 3.06502061e-08, -1.22514884e-11),
    (1.0, 0.470143278, 0.0272507935, 0.000394101451, 1.28926552e-06),
    9.02,
)
"""Numerator and denominator in x * x, and where the result becomes 1: what is beyond is computed
there. The quotient, rounded as instructions do, is 1 at that place."""

ERF = (
    (1.12837914, 0.193479333, 0.0530928695, 0.00388050541, 0.000284497962, 1.98720697e-06),
    (1.0, 0.504799164, 0.115322669, 0.0152015323, 0.00118487782, 3.74210888e-05),
    3.98,
)

HALF_ERF = (tuple(coefficient / 2 for coefficient in ERF[0]), *ERF[1:])
"""The coefficients of x (1/2 + erf(x / sqrt 2) / 2), whose sum has the bits of 1 + erf. It is 0, or
a rounding of 1, below the bound; x counts as the bound there, so that the product is as small."""


def _odd(source: str, of: tuple[Sequence[float], Sequence[float], float]) -> tuple[Step, ...]:
    """u = an odd rational function of a buffer, which may be u; t and s are overwritten."""
    return (
        Step("vmax", "u", (source, "low")),
        Step("vmin", "u", ("u", "high")),
        Step("vmul", "s", ("u", "u")),
        *_polynomial("t", "s", of[0]),
        Step("vmul", "u", ("u", "t")),
        *_polynomial("t", "s", of[1]),
        Step("vdiv", "u", ("u", "t")),
    )


def _bounds(of: tuple[Sequence[float], Sequence[float], float]) -> dict[str, str]:
    return {"low": number(-of[2]), "high": number(of[2])}


def _of_odd(of: tuple[Sequence[float], Sequence[float], float]) -> Recipe:
    """An odd rational function of x."""
    copied = Step("vmuls", "out", ("u",), "1.0f")
    return _function(*_odd("x", of), copied, temporaries="t s u", **_bounds(of))


_LEAKY = _function(
    Step("vmin", "t", ("x", "zero")),
    Step("vmul", "t", ("t", "alpha")),
    Step("vrelu", "u", ("x",)),
    Step("vadd", "out", ("u", "t")),
    temporaries="t u",
    scalars=("alpha",),
    zero="0.0f",
)

_LOGISTIC = (
    Step("vmuls", "t", ("x",), "-1.0f"),
    Step("vmin", "t", ("t", "most")),
    Step("vexp", "t", ("t",)),
    Step("vadds", "t", ("t",), "1.0f"),
)
"""t = 1 + exp(-x)."""

_GELU_TANH = (
    Step("vmul", "t", ("x", "x")),
    Step("vmul", "t", ("t", "x")),
    Step("vmuls", "t", ("t",), "0.044715f"),
    Step("vadd", "t", ("t", "x")),
    Step("vmuls", "t", ("t",), f"{-2 * sqrt(2 / pi):.9g}f"),
    Step("vmin", "t", ("t", "most")),
    Step("vexp", "t", ("t",)),
    Step("vadds", "t", ("t",), "1.0f"),
    Step("vdiv", "out", ("x", "t")),
)
"""x / (1 + exp(-2 sqrt(2/pi) (x + 0.044715 x^3))), which is the form with tanh."""


def _quantise(scaled: str) -> Recipe:
    """x / scale, or x times its inverse, which is as exact of a power of two, to the nearest
    integer, plus the zero point. The last conversion saturates what the others have left."""
    return Recipe(
        1,
        {"half": "int8_t"},
        (
            Step("cast", "t", ("x",)),
            Step(scaled, "t", ("t", "scale")),
            Step("cast", "n", ("t",)),
            Step("cast", "t", ("n",)),
            Step("vadd", "t", ("t", "zero")),
            Step("cast", "h", ("t",)),
            Step("cast", "out", ("h",)),
        ),
        scalars=("scale", "zero"),
        temporaries=("t", "n", "h"),
        kinds={
            **dict.fromkeys(("t", "scale", "zero"), "float"),
            "n": "int32_t",
            "h": "half",
        },
    )


def _relation(relation: str) -> Recipe:
    """A boolean: 1 where a relation of halves holds, 0 where it does not."""
    steps = Step(f"choose_{relation}", "h", ("x", "y", "yes", "no")), Step("cast", "out", ("h",))
    constants = {"yes": "1.0f", "no": "0.0f"}
    return Recipe(2, {"half": BOOLEAN}, steps, constants=constants, temporaries=("h",))


RECIPES: dict[str, Recipe] = {
    "less": _relation("lt"),
    "less_equal": _relation("le"),
    "equal": _relation("eq"),
    "select": Recipe(
        3,
        {"half": "half"},
        (Step("cast", "h", ("c",)), Step("choose_ne", "out", ("h", "nothing", "x", "y"))),
        constants={"nothing": "0.0f"},
        temporaries=("h",),
    ),
    **{name: _binary(f"v{name}", NUMBERS) for name in ("add", "sub", "mul", "max", "min")},
    "div": _binary("vdiv", FLOATS),
    **{name: _unary(f"v{name}") for name in ("relu", "abs", "exp", "sqrt")},
    "log": _unary("vln"),
    "copy": _unary("vmuls", "1.0f"),
    "neg": _unary("vmuls", "-1.0f"),
    # x ** 0.5, where the root of minus infinity is no number: both infinities become the positive
    # one, x - x, which is 0, is added to all else, and makes 0 of -0.
    "root": _function(
        Step("vmax", "t", ("x", "low")),
        Step("vmin", "t", ("t", "high")),
        Step("vsub", "u", ("x", "t")),
        Step("vabs", "u", ("u",)),
        Step("vadd", "t", ("t", "u")),
        Step("vsqrt", "out", ("t",)),
        temporaries="t u",
        low=number(-LARGEST),
        high=number(LARGEST),
    ),
    "square": Recipe(1, {t: t for t in FLOATS}, (Step("vmul", "out", ("x", "x")),)),
    "cube": _function(Step("vmul", "t", ("x", "x")), Step("vmul", "out", ("t", "x"))),
    "reciprocal": _function(Step("vdiv", "out", ("one", "x")), temporaries="", one="1.0f"),
    "clamp": Recipe(
        1,
        {t: t for t in NUMBERS},
        (Step("vmax", "out", ("x", "low")), Step("vmin", "out", ("out", "high"))),
        scalars=("low", "high"),
    ),
    "cast": Recipe(1, {"half": "float", "float": "half"}, (Step("cast", "out", ("x",)),)),
    "quantise": _quantise("vdiv"),
    "quantise_power": _quantise("vmul"),
    "dequantise": Recipe(
        2,
        {"int8_t": "half"},
        (
            Step("cast", "h", ("x",)),
            Step("cast", "t", ("h",)),
            Step("vadd", "t", ("t", "less")),
            Step("vmul", "t", ("t", "y")),
            Step("cast", "out", ("t",)),
        ),
        scalars=("less",),
        temporaries=("h", "t"),
        kinds={"h": "half", **dict.fromkeys(("t", "less"), "float")},
    ),
    "gelu_tanh": _function(*_GELU_TANH, most="80.0f"),
    "gelu": _function(
        Step("vmuls", "u", ("x",), number(sqrt(0.5))),
        *_odd("u", HALF_ERF),
        Step("vadds", "u", ("u",), "0.5f"),
        Step("vmax", "t", ("x", "least")),
        Step("vmul", "out", ("t", "u")),
        temporaries="t s u",
        **_bounds(ERF),
        least=number(-ERF[2] * sqrt(2)),
    ),
    "erf": _of_odd(ERF),
    "tanh": _of_odd(TANH),
    "sigmoid": _function(*_LOGISTIC, Step("vdiv", "out", ("one", "t")), one="1.0f", most="80.0f"),
    "silu": _function(*_LOGISTIC, Step("vdiv", "out", ("x", "t")), most="80.0f"),
    "softplus": _function(
        Step("vabs", "t", ("x",)),
        Step("vmuls", "t", ("t",), "-1.0f"),
        Step("vexp", "t", ("t",)),
        Step("vadds", "t", ("t",), "1.0f"),
        Step("vln", "t", ("t",)),
        Step("vrelu", "u", ("x",)),
        Step("vadd", "out", ("u", "t")),
        temporaries="t u",
    ),
    "elu": _function(
        Step("vmin", "t", ("x", "zero")),
        Step("vexp", "t", ("t",)),
        Step("vadds", "t", ("t",), "-1.0f"),
        Step("vmul", "t", ("t", "alpha")),
        Step("vrelu", "u", ("x",)),
        Step("vadd", "out", ("u", "t")),
        temporaries="t u",
        scalars=("alpha",),
        zero="0.0f",
    ),
    "leaky_relu": _LEAKY,
    "prelu": replace(
        _LEAKY,
        operands=2,
        steps=tuple(step.renamed({"alpha": "y"}) for step in _LEAKY.steps),
        scalars=(),
    ),
    "hard_sigmoid": _function(
        Step("vmul", "t", ("x", "alpha")),
        Step("vadd", "t", ("t", "beta")),
        Step("vrelu", "t", ("t",)),
        Step("vmin", "out", ("t", "one")),
        scalars=("alpha", "beta"),
        one="1.0f",
    ),
    "hard_swish": _function(
        Step("vmuls", "t", ("x",), number(1 / 6)),
        Step("vadds", "t", ("t",), "0.5f"),
        Step("vrelu", "t", ("t",)),
        Step("vmin", "t", ("t", "one")),
        Step("vmul", "out", ("x", "t")),
        one="1.0f",
    ),
}
"""The recipes of elementwise operations, by name."""

QUOTIENTS = ("div", "reciprocal", "quantise")
"""Operations whose divisors may be 0 or infinite, or whose quotients have to be exact to the last
bit. Those of functions are from 1e-4 to 1e35."""


def recipe_of(operation: str, core: DaVinci) -> Recipe | None:
    """The recipe of an operation on a core; None where there is none.

    A core without ``vdiv`` has estimates of reciprocals (``vrec``), which two steps of Newton's
    method refine to a float's precision: r (2 - d r). They are right for divisors other than 0 that
    are finite, as those of functions are; quotients of any two numbers have no recipe there.
    """
    recipe = RECIPES.get(operation)
    if recipe is None or core.divides or not any(step.name == "vdiv" for step in recipe.steps):
        return recipe
    if operation in QUOTIENTS:
        return None
    steps: list[Step] = []
    for step in recipe.steps:
        if step.name != "vdiv":
            steps.append(step)
            continue
        dividend, divisor = step.sources
        steps.append(Step("vrec", "r", (divisor,)))
        for _ in range(2):
            steps += [
                Step("vmul", "q", (divisor, "r")),
                Step("vmuls", "q", ("q",), "-1.0f"),
                Step("vadds", "q", ("q",), "2.0f"),
                Step("vmul", "r", ("r", "q")),
            ]
        steps.append(Step("vmul", step.to, (dividend, "r")))
    return replace(recipe, steps=tuple(steps), temporaries=(*recipe.temporaries, "r", "q"))


def compute(
    vectors: Vectors,
    steps: Sequence[Step],
    grids: Mapping[str, Grid],
    rows: int,
    columns: int,
    scratch: Choice | None = None,
) -> None:
    """The statements of an operation on rows in UB; ``grids`` has each of its buffers, and choices
    need ``scratch``. Of a single row the last columns come after the others, under one mask."""
    lanes = REPEAT // max(grid.width for grid in grids.values())
    whole = columns // lanes * lanes if rows == 1 and scratch is None else columns
    for first, count in ((0, whole), (whole, columns - whole)):
        parts = {name: along_row(grid, first) for name, grid in grids.items()}
        for step in steps if count else ():
            to, sources = parts[step.to], [parts[name] for name in step.sources]
            if step.chooses:
                a, b, yes, no = sources
                assert scratch is not None
                relation, ends = step.name.removeprefix("choose_"), ((a, b), (yes, no))
                vectors.choose(relation, to, *ends, rows, count, scratch)
            elif sources and sources[0].element == BOOLEAN:
                # Whole blocks, which are compared on.
                vectors.operation("cast", to, sources, rows, -(-count // 16) * 16)
            else:
                vectors.operation(step.name, to, sources, rows, count, step.scalar)


NAMES = {
    "clip": "clamp",
    "identity": "copy",
    "quantise_linear": "quantise",
    "dequantise_linear": "dequantise",
}
"""Operations of the graph whose recipe has another name."""


def is_power(scale: float) -> bool:
    """Return True if a scale is a power of two of which the inverse is a float, too."""
    fraction, exponent = frexp(scale)
    return fraction == 0.5 and -120 < exponent < 120


def scalars_of(operation: str, attributes: Mapping[str, object]) -> tuple[float, ...]:
    """The scalars of an operation's recipe; of a dequantisation all but its factor, an operand."""
    if operation == "quantise_linear":
        scale, zero = float(str(attributes["scale"])), float(str(attributes["zero"]))
        return 1 / scale if is_power(scale) else scale, zero
    if operation == "dequantise_linear":
        return (-float(str(attributes["zero"])),)
    parameters = PARAMETERS.get(operation, {})
    return tuple(float(str(attributes.get(*parameter))) for parameter in parameters.items())
