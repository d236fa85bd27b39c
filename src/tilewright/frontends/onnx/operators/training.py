"""Steps of optimisers, as ONNX's training preview defines them: Adagrad, Adam, Momentum.

Each takes a rate, the number of steps so far, and lists of tensors of equal length: weights,
gradients, and what it keeps of the past.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.frontends.onnx.lowering import Lowering, Value, dtype_of
from tilewright.ir import SSAValue
from tilewright.ir.types import shape_of


def _groups(at: Lowering, kinds: int) -> list[list[SSAValue]]:
    """The tensors by weight: each with its gradient and its past."""
    values = [at.tensor(index) for index in range(2, len(at.operands))]
    if not values or len(values) % kinds:
        raise at.refuse(f"it takes {kinds} tensors for each weight, and has {len(values)} in all")
    count = len(values) // kinds
    return [values[i::count] for i in range(count)]


def _listed(groups: Sequence[Sequence[SSAValue]]) -> list[Value]:
    """New weights first, then what is kept, kind by kind."""
    return [value for kind in zip(*groups, strict=True) for value in kind]


def _regularised(at: Lowering, x: SSAValue, gradient: SSAValue) -> SSAValue:
    norm = at.number("norm_coefficient")
    return at.emit("add", at.apply("mul", x, norm), gradient) if norm else gradient


def _scalar(at: Lowering, index: int, like: SSAValue) -> SSAValue:
    if np.prod(at.shape(index), dtype=np.int64) != 1:
        raise at.misfit(f"its input {index} is not one number")
    return at.cast(at.reshape(at.tensor(index), ()), dtype_of(like))


def adagrad(at: Lowering) -> Sequence[Value]:
    """Duchi, Hazan, Singer, "Adaptive Subgradient Methods", 2011."""
    groups: list[list[SSAValue]] = []
    for x, gradient, past in _groups(at, 3):
        steps = at.apply("mul", _scalar(at, 1, x), at.number("decay_factor"))
        rate = at.emit("div", _scalar(at, 0, x), at.apply("add", steps, 1.0))
        g = _regularised(at, x, gradient)
        new = at.emit("add", past, at.emit("mul", g, g))
        root = at.apply("add", at.emit("sqrt", new), at.number("epsilon", 1e-6))
        move = at.emit("div", at.emit("mul", rate, g), root)
        groups.append([at.emit("sub", x, move), new])
    return _listed(groups)


def adam(at: Lowering) -> Sequence[Value]:
    """Kingma and Ba, "Adam", 2015 (algorithm 1)."""
    alpha, beta = at.number("alpha", 0.9), at.number("beta", 0.999)
    groups: list[list[SSAValue]] = []
    for x, gradient, momentum, past in _groups(at, 4):
        g = _regularised(at, x, gradient)
        v = _mixed(at, momentum, g, alpha)
        h = _mixed(at, past, at.emit("mul", g, g), beta)
        rate = _corrected(at, _scalar(at, 0, x), _scalar(at, 1, x), alpha, beta)
        root = at.apply("add", at.emit("sqrt", h), at.number("epsilon", 1e-6))
        new = at.emit("sub", x, at.emit("mul", rate, at.emit("div", v, root)))
        norm = at.number("norm_coefficient_post")
        groups.append([at.apply("mul", new, 1 - norm) if norm else new, v, h])
    return _listed(groups)


def _mixed(at: Lowering, old: SSAValue, new: SSAValue, share: float) -> SSAValue:
    return at.emit("add", at.apply("mul", old, share), at.apply("mul", new, 1 - share))


def _corrected(
    at: Lowering, rate: SSAValue, steps: SSAValue, alpha: float, beta: float
) -> SSAValue:
    """The rate after the first step, made up for averages that began at zero."""

    def left(share: float) -> SSAValue:
        base = at.made(share, rate, "share")
        unit = at.made(1, rate, "one")
        return at.emit("sub", unit, at.emit("pow", base, steps))

    later = at.emit("div", at.emit("mul", rate, at.emit("sqrt", left(beta))), left(alpha))
    return at.emit("select", at.apply("less_equal", steps, 0.0), rate, later)


def momentum(at: Lowering) -> Sequence[Value]:
    """Momentum, plain or Nesterov's (Sutskever et al., 2013, section 2)."""
    mode, alpha, beta = at.text("mode"), at.number("alpha"), at.number("beta")
    if mode not in ("standard", "nesterov"):
        raise at.refuse(f"mode {mode!r} is not known")
    groups: list[list[SSAValue]] = []
    for x, gradient, past in _groups(at, 3):
        steps, rate = _scalar(at, 1, x), _scalar(at, 0, x)
        unit, share = (at.made(v, x, "share") for v in (1, beta))
        factor = at.emit("select", at.apply("less_equal", steps, 0.0), unit, share)
        g = _regularised(at, x, gradient)
        kept = at.apply("mul", past, alpha)
        v = at.emit("add", kept, at.emit("mul", factor, g))
        move = v if mode == "standard" else at.emit("add", g, at.apply("mul", v, alpha))
        new = at.emit("sub", x, at.emit("mul", rate, move))
        assert shape_of(new) == shape_of(x)
        groups.append([new, v])
    return _listed(groups)
