"""Train a small network with JAX and sample from it; print what came out.

XLA takes device memory by its own VMM calls (a pool, with or without one large block up front) or, with
XLA_PYTHON_CLIENT_ALLOCATOR=platform, by one driver allocation per buffer; run.sh runs all three. Kernel choice by timing
is off, so that plain runs agree. The last line of output is one JSON object (see compare.py)."""

import argparse
import hashlib
import json
import os
import sys
import time

START = time.monotonic()
parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--width", type=int, default=1024)
parser.add_argument("--device", default="cuda")
args = parser.parse_args()
os.environ["XLA_FLAGS"] = "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0 " + os.environ.get(
    "XLA_FLAGS", ""
)
os.environ["JAX_PLATFORMS"] = args.device
os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"

import jax
import jax.numpy as jnp
import numpy

VOCABULARY, LENGTH, BATCH, LAYERS = 4096, 128, 16, 4


def make_parameters(key):
    keys = iter(jax.random.split(key, 2 + 4 * LAYERS))

    def weight(*shape):
        return jax.random.normal(next(keys), shape, jnp.float32) * shape[0] ** -0.5

    width = args.width
    return {
        "embed": weight(VOCABULARY, width),
        "head": weight(width, VOCABULARY),
        "layers": [
            {
                "qkv": weight(width, 3 * width),
                "out": weight(width, width),
                "up": weight(width, 4 * width),
                "down": weight(4 * width, width),
            }
            for _ in range(LAYERS)
        ],
    }


def normed(x):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)


def forward(parameters, ids):
    length = ids.shape[1]
    # one-hot: the backward pass of a gather scatters with atomics
    x = jax.nn.one_hot(ids, VOCABULARY, dtype=jnp.bfloat16) @ parameters["embed"].astype(jnp.bfloat16)
    mask = jnp.where(jnp.tril(jnp.ones((length, length), bool)), 0.0, -1e9)
    for layer in parameters["layers"]:
        layer = jax.tree.map(lambda w: w.astype(jnp.bfloat16), layer)
        q, k, v = jnp.split((normed(x) @ layer["qkv"]).reshape(*x.shape[:2], -1, 3 * 64), 3, -1)
        scores = jnp.einsum("blhd,bmhd->bhlm", q, k).astype(jnp.float32) / 8.0 + mask
        mixed = jnp.einsum("bhlm,bmhd->blhd", jax.nn.softmax(scores, -1).astype(jnp.bfloat16), v)
        x = x + mixed.reshape(x.shape) @ layer["out"]
        x = x + jax.nn.gelu(normed(x) @ layer["up"]) @ layer["down"]
    return (normed(x) @ parameters["head"].astype(jnp.bfloat16)).astype(jnp.float32)


def loss_of(parameters, ids):
    logits = jax.nn.log_softmax(forward(parameters, ids[:, :-1]))
    wanted = jax.nn.one_hot(ids[:, 1:], VOCABULARY)
    return -jnp.mean(jnp.sum(logits * wanted, -1))


@jax.jit
def step(parameters, momentum, ids):
    loss, gradient = jax.value_and_grad(loss_of)(parameters, ids)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradient)
    parameters = jax.tree.map(lambda p, m: p - 0.05 * m, parameters, momentum)
    return parameters, momentum, loss


@jax.jit
def sample(parameters, ids, place, key):
    logits = forward(parameters, ids)
    following = jax.random.categorical(key, logits[:, place - 1])
    return ids.at[:, place].set(following)


def digest(tree):
    state = hashlib.sha256()
    for leaf in jax.tree.leaves(tree):
        state.update(numpy.asarray(leaf).tobytes())
    return state.hexdigest()


def main():
    parameters = make_parameters(jax.random.key(0))
    momentum = jax.tree.map(jnp.zeros_like, parameters)
    losses = []
    for i in range(args.steps):
        start = jax.random.randint(jax.random.key(1000 + i), (BATCH, 1), 0, 256)
        ids = (start + 17 * jnp.arange(LENGTH + 1)) % 256
        parameters, momentum, loss = step(parameters, momentum, ids)
        losses.append(repr(float(loss)))
    ids = jnp.zeros((4, 64), jnp.int32).at[:, :8].set(17 * jnp.arange(8))
    for place in range(8, 40):
        ids = sample(parameters, ids, place, jax.random.key(place))
    # blocks of many sizes, taken and given back
    total = 0.0
    for i in range(30):
        blocks = [jnp.full(((i * 7 + k * 13) % 50 + 1, 1 << 18), i + k, jnp.float32) for k in range(4)]
        total += sum(float(b[-1, -1] + b[0, 0]) for b in blocks)
        del blocks
    device = jax.devices()[0]
    statistics = device.memory_stats() or {}
    print(
        json.dumps(
            {
                "exact": {
                    "losses": losses,
                    "learnt": float(losses[-1]) < float(losses[0]),
                    "parameters": digest(parameters),
                    "sampled": digest(ids),
                    "blocks": repr(total),
                },
                "info": {
                    "jax": jax.__version__,
                    "device": device.device_kind,
                    "peak MiB": statistics.get("peak_bytes_in_use", 0) >> 20,
                    "allocator": os.environ.get("XLA_PYTHON_CLIENT_ALLOCATOR", "default"),
                    "preallocate": os.environ.get("XLA_PYTHON_CLIENT_PREALLOCATE", "default"),
                    "total s": round(time.monotonic() - START, 2),
                },
            }
        )
    )


if __name__ == "__main__":
    main()
    sys.stdout.flush()
