"""A small convolutional network learns scikit-learn's digits: a step of training is one program, planned over workers.

    python examples/digits.py
    tapestry plan examples/digits.py:train_step --machine cpu-4

The forward pass, its gradient and AdamW are operations of one program, so that the planner decides about all of them
together. Weights and what AdamW remembers are states: they stay with the workers from step to step.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import numpy as np

import tapestry as tp
from tapestry import Tensor, f32, int32, param, state
from tapestry.planner import Plan, plan
from tapestry.program import Program

Arrays = dict[str, np.ndarray]


@tp.op
def cross_entropy(logits: f32[Tensor, "n k"], labels: int32[Tensor, "n"]) -> f32[Tensor, "n"]:
    """log of the sum of exp(logits), less the logit of the label."""
    n, k, j = tp.indices("n k j")
    chosen = tp.sum[k](tp.where(labels[n] == k, logits[n, k], 0.0))
    return tp.logsumexp[j](logits[n, j]) - chosen


@tp.program
def network(
    images: f32[Tensor, "n 1 8 8"],
    w1: param[f32[Tensor, "c1 1 3 3"]],
    b1: param[f32[Tensor, "c1"]],
    w2: param[f32[Tensor, "c2 c1 3 3"]],
    b2: param[f32[Tensor, "c2"]],
    w3: param[f32[Tensor, "f 10"]],
    b3: param[f32[Tensor, "10"]],
) -> Tensor:
    """Two convolutions, each with a pooling behind it, and a product: images [n, 1, 8, 8] -> logits [n, 10]."""
    h = tp.max_pool2d(tp.relu(tp.conv2d(images, w1, padding=1) + b1[:, None, None]), 2)
    h = tp.max_pool2d(tp.relu(tp.conv2d(h, w2, padding=1) + b2[:, None, None]), 2)
    logits: Tensor = tp.reshape(h, (h.shape[0], -1)) @ w3 + b3
    return logits


@tp.program
def loss(
    images: f32[Tensor, "n 1 8 8"],
    labels: int32[Tensor, "n"],
    w1: param[f32[Tensor, "c1 1 3 3"]],
    b1: param[f32[Tensor, "c1"]],
    w2: param[f32[Tensor, "c2 c1 3 3"]],
    b2: param[f32[Tensor, "c2"]],
    w3: param[f32[Tensor, "f 10"]],
    b3: param[f32[Tensor, "10"]],
) -> Tensor:
    """The mean cross-entropy."""
    return tp.mean(cross_entropy(network(images, w1, b1, w2, b2, w3, b3), labels))


@tp.program
def train_step(
    images: f32[Tensor, "n 1 8 8"],
    labels: int32[Tensor, "n"],
    w1: state[f32[Tensor, "c1 1 3 3"]],
    b1: state[f32[Tensor, "c1"]],
    w2: state[f32[Tensor, "c2 c1 3 3"]],
    b2: state[f32[Tensor, "c2"]],
    w3: state[f32[Tensor, "f=4*c2 10"]],
    b3: state[f32[Tensor, "10"]],
    *,
    n: int = 64,
    c1: int = 16,
    c2: int = 32,
    rate: float = 3e-3,
) -> dict[str, Tensor]:
    """One step of AdamW on a batch."""
    weights = {"w1": w1, "b1": b1, "w2": w2, "b2": b2, "w3": w3, "b3": b3}
    value, grads = tp.value_and_grad(loss)(tp.shard(images, mesh0="n"), labels, *weights.values())
    tp.optim.adamw(weights, grads, rate=rate, weight_decay=1e-2)
    return {"loss": value}


def data() -> tuple[Arrays, Arrays]:
    """1,437 images to learn from and 360 to be tested on, shuffled once: pixels in [0, 1], labels."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images = (digits.images / 16).astype(np.float32)[order, None]
    labels = digits.target.astype(np.int32)[order]
    return {"images": images[:-360], "labels": labels[:-360]}, {"images": images[-360:], "labels": labels[-360:]}


def first_weights(step: Program, seed: int = 0) -> Arrays:
    """Normal numbers of variance 2 / (elements that are added up): He et al., arXiv:1502.01852. The rest is zeros."""
    rng = np.random.default_rng(seed)
    found = {}
    for tensor in step.of_role("state"):
        is_filter = tensor.name in ("w1", "w2", "w3")
        inner = np.prod(tensor.shape[1:]) if tensor.name != "w3" else tensor.shape[0]
        values = rng.normal(size=tensor.shape) * np.sqrt(2 / inner) if is_filter else np.zeros(tensor.shape)
        found[tensor.name] = values.astype(tensor.dtype.replace("f", "float"))
    return found


def batches(samples: Arrays, size: int, epochs: int) -> Iterator[Arrays]:
    """Full batches, the samples in another order each epoch."""
    rng = np.random.default_rng(1)
    count = len(samples["labels"])
    for _ in range(epochs):
        order = rng.permutation(count)
        for first in range(0, count - size + 1, size):
            chosen = order[first : first + size]
            yield {name: values[chosen] for name, values in samples.items()}


def trained(made: Plan, samples: Arrays, size: int, epochs: int) -> tuple[list[float], Arrays]:
    """The losses step by step, and the weights at the end."""
    with made.compile(first_weights(made.program)) as step:
        losses = [float(step(batch)["loss"]) for batch in batches(samples, size, epochs)]
        return losses, step.states


def accuracy(states: Arrays, samples: Arrays) -> float:
    """The share of images whose largest logit is that of their label."""
    weights = {name: states[name] for name in ("w1", "b1", "w2", "b2", "w3", "b3")}
    count, (c1, *_), (f, _) = len(samples["labels"]), weights["w1"].shape, weights["w3"].shape
    made = plan(network.bind(n=count, c1=c1, c2=len(weights["w2"]), f=f), "cpu-4", mesh=(1,))
    (logits,) = made.run({"images": samples["images"], **weights}).outputs.values()
    return float((logits.argmax(-1) == samples["labels"]).mean())


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--epochs", type=int, default=12)
    options.add_argument("--batch", type=int, default=64)
    options.add_argument("--workers", type=int, default=4)
    given = options.parse_args()
    learn, test = data()
    curves = {}
    for workers in (1, given.workers):
        made = plan(train_step.bind(n=given.batch), "cpu-4", mesh=(workers,))
        began = time.perf_counter()
        curves[workers], states = trained(made, learn, given.batch, given.epochs)
        spent = (time.perf_counter() - began) / len(curves[workers])
        moved = made.document.traffic.bytes_total
        print(f"{workers} workers: {len(curves[workers])} steps, {spent * 1e3:.1f} ms and {moved:,} bytes moved a step")
    apart = max(abs(a - b) / abs(a) for a, b in zip(*curves.values(), strict=True))
    print(f"loss {curves[1][0]:.3f} -> {curves[1][-1]:.4f}, with 1 and {given.workers} workers equal to {apart:.1e}")
    print(f"accuracy on 360 images that were not learned from: {accuracy(states, test):.1%}")


if __name__ == "__main__":
    main()
