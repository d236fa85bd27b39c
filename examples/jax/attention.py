"""An attention block in plain JAX, exported, compiled for this machine's CPU, and compared.

pip install 'tilewright[jax]'
python examples/jax/attention.py             # compile, run, compare
python examples/jax/attention.py model.mlir  # write the program, for tilewright compile
"""

import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import tilewright

TOKENS, WIDTH, HEADS = 64, 128, 4


def parameters(seed: int = 0) -> dict[str, np.ndarray]:
    """Seeded weights, scaled by what they sum over."""
    generator = np.random.default_rng(seed)
    shapes = {"qkv": (WIDTH, 3 * WIDTH), "out": (WIDTH, WIDTH)}
    shapes |= {"up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
    return {
        name: (generator.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32)
        for name, shape in shapes.items()
    }


def normalised(x: jax.Array) -> jax.Array:
    """Layer normalisation without parameters."""
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-6)


def block(x: jax.Array) -> jax.Array:
    """One layer of a Transformer: attention over tokens, then a network for each of them."""
    weights = parameters()
    with jax.named_scope("attention"):
        heads = (normalised(x) @ weights["qkv"]).reshape(-1, 3, HEADS, WIDTH // HEADS)
        q, k, v = heads[:, 0], heads[:, 1], heads[:, 2]
        scores = jnp.einsum("qhd,khd->hqk", q, k) / np.sqrt(WIDTH // HEADS)
        mixed = jnp.einsum("hqk,khd->qhd", jax.nn.softmax(scores), v)
        x = x + mixed.reshape(-1, WIDTH) @ weights["out"]
    with jax.named_scope("network"):
        return x + jax.nn.gelu(normalised(x) @ weights["up"]) @ weights["down"]


def main(target: str = "cpu") -> float:
    """Compile the block, run it, and return the largest difference from JAX."""
    spec = jax.ShapeDtypeStruct((TOKENS, WIDTH), jnp.float32)
    exported = jax.export.export(jax.jit(block))(spec)
    executable = tilewright.compile(exported, target)
    x = np.random.default_rng(1).normal(size=spec.shape).astype(np.float32)
    _ = executable.run({"x": x})  # The first run builds the program.
    start = time.perf_counter()
    (found,) = executable.run({"x": x}).values()
    spent = time.perf_counter() - start
    apart = float(np.abs(found - np.asarray(block(jnp.asarray(x)))).max())
    print(f"{target}: {1000 * spent:.2f} ms, largest difference from JAX {apart:.1e}")
    return apart


def save(path: Path) -> None:
    """Write the block's program as text, for ``tilewright compile``."""
    spec = jax.ShapeDtypeStruct((TOKENS, WIDTH), jnp.float32)
    path.write_text(str(jax.export.export(jax.jit(block))(spec).mlir_module()))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        save(Path(sys.argv[1]))
    else:
        _ = main()
