"""Functions of JAX taken through export, import and both engines, against JAX itself.

Programs are parsed in this process: starting the importer's own takes longer than all else that is
done for a small function. What is loaded or compiled as users do (``tilewright.load``) starts it.
"""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tilewright
from tilewright.frontends import Imported
from tilewright.frontends.stablehlo import import_stablehlo, limits, reader
from tilewright.graph.dialect import network_of
from tilewright.graph.interpreter import interpret

Array = NDArray[Any]

REASON = "jax is not installed; make test-frontends installs it"


def exported(function: Callable[..., Any], arrays: Sequence[Array]) -> Any:
    """The function as JAX exports it for arrays of these shapes."""
    jax = pytest.importorskip("jax", reason=REASON)
    specs = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arrays]
    return jax.export.export(jax.jit(function))(*specs)


@cache
def worker() -> dict[str, Any]:
    """The functions of the script that parses programs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["worker", str(limits.MAX_OPERATIONS), str(limits.MAX_SECONDS)])
        return runpy.run_path(reader.__file__.replace("reader.py", "worker.py"))


def parsed_here(data: bytes, title: str) -> tuple[Any, Array]:
    """What the importer gets from its worker: the program as JSON, and the constants' bytes."""
    document, blobs = worker()["parse"](data)
    return json.loads(json.dumps(document)), np.frombuffer(bytearray().join(blobs), np.uint8)


def network_from(program: Any) -> Imported:
    """An export or a text as a network."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "parsed", parsed_here)
        return import_stablehlo(program)


def imported(function: Callable[..., Any], *arrays: Array) -> Imported:
    """The function as a network, from bytecode."""
    return network_from(exported(function, arrays))


def feeds_of(model: Imported, arrays: Sequence[Array]) -> dict[str, Array]:
    """Arrays by the names of the inputs."""
    inputs = network_of(model.module).inputs
    return {name: array for (name, _), array in zip(inputs, arrays, strict=True)}


def check(
    function: Callable[..., Any],
    *arrays: Array,
    tolerance: float = 1e-5,
    target: str | None = "cpu",
) -> Imported:
    """Compare the interpreter and a target with JAX; integers and booleans must be equal."""
    jax = pytest.importorskip("jax", reason=REASON)
    program = exported(function, arrays)
    model = network_from(program)
    text = network_from(str(program.mlir_module()).encode())
    assert str(text.module) == str(model.module)
    expected = [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(jax.jit(function)(*arrays))]
    # JAX leaves out inputs that nothing uses.
    feeds = feeds_of(model, [arrays[index] for index in program.module_kept_var_idx])
    results = [("interpreter", interpret(model.module, model.weights, feeds))]
    if target is not None:
        results.append((target, tilewright.compile(model, target).run(feeds)))
    for engine, found in results:
        for (name, array), wanted in zip(found.items(), expected, strict=True):
            compare(array, wanted, f"{name} on {engine}", tolerance)
    return model


def compare(found: Array, wanted: Array, what: str, tolerance: float) -> None:
    """Equal in type and shape; in value up to a tolerance if they are floats."""
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), what
    if wanted.dtype.kind in "iub":
        np.testing.assert_array_equal(found, wanted, what)
    else:
        left, right = found.astype(np.float64), wanted.astype(np.float64)
        np.testing.assert_allclose(left, right, tolerance, tolerance, err_msg=what)


def operations(model: Imported) -> list[str]:
    """Names of the network's operations, constants left out."""
    names = (op.name.removeprefix("graph.") for op in network_of(model.module).block.ops)
    return [name for name in names if name not in ("weight", "output")]


def normal(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    """Normally distributed numbers."""
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(np.float32)


def integers(high: int, *shape: int, low: int = 0, seed: int = 0) -> NDArray[np.int32]:
    """Integers in [low, high)."""
    generator = np.random.default_rng([seed, *shape])
    return generator.integers(low, high, size=shape).astype(np.int32)
