"""Whole models of flax and of plain JAX match JAX on the interpreter and on targets."""

import runpy
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tests.frontends.stablehlo.programs import (
    REASON,
    check,
    compare,
    exported,
    feeds_of,
    normal,
    operations,
)
from tilewright.graph.interpreter import interpret

EXAMPLES = Path(__file__).parents[3] / "examples"

jax = pytest.importorskip("jax", reason=REASON)
jnp = jax.numpy
nn = pytest.importorskip("flax.linen", reason=REASON)


def varied(module, *arrays):
    """Variables of a module, none of them trivial, so that outputs vary and nothing is skipped.

    Only their shapes are asked of flax, which would compile every operation that fills them."""
    leaves, tree = jax.tree_util.tree_flatten_with_path(
        jax.eval_shape(module.init, jax.random.key(0), *arrays)
    )
    made = []
    for index, (path, leaf) in enumerate(leaves):
        noise = normal(*leaf.shape, seed=index)
        match path[-1].key:
            case "scale" | "var":
                made.append(1 + np.abs(noise) * 0.1)
            case "kernel":
                made.append(noise / np.sqrt(np.prod(leaf.shape[:-1])))
            case _:
                made.append(noise * 0.1)
    return jax.tree_util.tree_unflatten(tree, made)


def applied(module, *arrays):
    """The module as a function of its inputs, its variables constants."""
    variables = varied(module, *arrays)
    return lambda *given: module.apply(variables, *given)


class Mlp(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Dense(32)(x))
        x = nn.tanh(nn.Dense(24, use_bias=False)(x))
        return nn.log_softmax(nn.Dense(10)(x))


class Block(nn.Module):
    channels: int
    stride: int = 1

    @nn.compact
    def __call__(self, x):
        y = nn.Conv(self.channels, (3, 3), self.stride, use_bias=False)(x)
        y = nn.relu(nn.BatchNorm(use_running_average=True)(y))
        y = nn.Conv(self.channels, (3, 3), use_bias=False)(y)
        y = nn.BatchNorm(use_running_average=True)(y)
        if x.shape != y.shape:
            x = nn.Conv(self.channels, (1, 1), self.stride)(x)
        return nn.relu(x + y)


class Cnn(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.BatchNorm(use_running_average=True)(nn.Conv(8, (5, 5), 2)(x)))
        x = nn.max_pool(x, (3, 3), (2, 2), "SAME")
        x = Block(8)(x)
        x = Block(16, 2)(x)
        x = nn.avg_pool(x, (2, 2), (2, 2))
        x = nn.swish(nn.Conv(16, (3, 3), feature_group_count=16)(x))
        return nn.Dense(10)(x.mean((1, 2)))


class Attention(nn.Module):
    heads: int = 4

    @nn.compact
    def __call__(self, x):
        width = x.shape[-1]
        y = nn.LayerNorm()(x)
        q, k, v = (nn.DenseGeneral((self.heads, width // self.heads))(y) for _ in range(3))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(width // self.heads)
        mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
        weights = nn.softmax(jnp.where(mask, scores, -1e9))
        y = jnp.einsum("bhqk,bkhd->bqhd", weights, v)
        x = x + nn.DenseGeneral(width, axis=(-2, -1))(y)
        y = nn.Dense(4 * width)(nn.LayerNorm()(x))
        return x + nn.Dense(width)(nn.gelu(y))


class Encoder(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(50, 32)(tokens)
        x = x + self.param("positions", nn.initializers.normal(0.1), (tokens.shape[1], 32))
        x = Attention()(x)
        return nn.Dense(50)(nn.RMSNorm()(x))


def test_flax_mlp():
    check(applied(Mlp(), normal(4, 20)), normal(4, 20))


def test_flax_cnn():
    x = normal(2, 32, 32, 3)
    model = check(applied(Cnn(), x), x, tolerance=1e-4)
    made = operations(model)
    # NHWC costs one transposition of the input: between convolutions nothing moves.
    assert made.count("transpose") == 1, made
    assert made.count("average_pool") == 2  # The window's, and the mean over whole images.
    assert "Cnn/Block_0/Conv_0/conv_general_dilated" in [node.name for node in model.nodes]


def test_flax_attention():
    x = normal(2, 12, 32)
    model = check(applied(Attention(), x), x, tolerance=1e-4)
    assert operations(model).count("softmax") == 1


def test_flax_encoder_of_tokens():
    tokens = np.random.default_rng(3).integers(0, 50, (2, 9)).astype(np.int32)
    check(applied(Encoder(), tokens), tokens, tolerance=1e-4)


def test_weights_may_be_inputs():
    """Without closing over parameters, a program takes them as inputs."""

    def layer(x, w, b):
        return jax.nn.relu(x @ w + b)

    check(layer, normal(3, 5), normal(5, 7), normal(7))


def plain_cnn(x):
    weights = [normal(3, 3, 3, 8, seed=1) * 0.3, normal(3, 3, 8, 16, seed=2) * 0.2]
    for w in weights:
        numbers = ("NHWC", "HWIO", "NHWC")
        x = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers)
        x = jax.nn.relu(x + normal(w.shape[-1], seed=3) * 0.1)
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return x.reshape(x.shape[0], -1) @ (normal(4 * 4 * 16, 10, seed=4) * 0.1)


def test_plain_cnn():
    check(plain_cnn, normal(2, 16, 16, 3), tolerance=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_an_accelerator_computes_what_the_interpreter_does(seed):
    """Convolutions, pools and products run in 16-bit fixed point, close to JAX."""
    x = normal(1, 16, 16, 3, seed=seed)
    made = tilewright.compile(exported(plain_cnn, [x]), "cambricon-x")
    wanted = np.asarray(plain_cnn(x))
    (found,) = made.run({"x": x}).values()
    assert np.abs(found - wanted).max() < 0.05 * np.abs(wanted).max()


def test_a_file_is_loaded_by_its_name(tmp_path):
    x = normal(3, 5)
    program = exported(lambda x: jnp.exp(x) @ x.T, [x])
    text, code = tmp_path / "model.mlir", tmp_path / "model.mlirbc"
    text.write_text(str(program.mlir_module()))
    code.write_bytes(program.mlir_module_serialized)
    for path in (text, code):
        model = tilewright.load(path)
        (found,) = interpret(model.module, model.weights, feeds_of(model, [x])).values()
        compare(found, np.exp(x) @ x.T, path.name, 1e-5)


def test_the_example(tmp_path, capsys):
    example = runpy.run_path(str(EXAMPLES / "jax" / "attention.py"))
    assert example["main"]() < 1e-4
    assert "largest difference" in capsys.readouterr().out
    example["save"](tmp_path / "block.mlir")
    nodes = [node.name for node in tilewright.load(tmp_path / "block.mlir").nodes]
    assert any(name.startswith("attention/") for name in nodes)


def test_import_is_deterministic():
    x = normal(2, 12, 32)
    function = applied(Attention(), x)
    first, second = (tilewright.load(exported(function, [x])) for _ in range(2))
    assert str(first.module) == str(second.module)
    assert first.digest == second.digest
