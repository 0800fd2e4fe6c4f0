"""The rows of `make bench-gpu`: programs, GPUs, and whom they stand beside."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from tapestry.program import Program

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "examples"))


def bound_program(module: str, program: str, extents: Mapping[str, int]) -> Program:
    """The program of an example, or of a module beside this one, at these extents."""
    bound: Program = getattr(import_module(module), program).bind(**extents)
    return bound


@dataclass(frozen=True)
class Row:
    """A program on so many GPUs. ``model``: torch's of `gpu_torch` and its extents, which takes turns with it.
    ``beside``: the job whose figures named ``rivals`` it is held against. ``factor``: so many times shorter than the
    best of them the step has to be, ``most_s``: and no longer than this. ``memory``: bytes of a GPU, as `--memory` has
    it. ``given``: inputs that are not drawn.
    """

    name: str
    title: str
    example: str
    program: str
    gpus: int
    extents: dict[str, int] = field(default_factory=dict)
    memory: str | None = None
    beside: str = ""
    rivals: tuple[str, ...] = ()
    factor: float = 1.0
    most_s: float | None = None
    model: tuple[str, dict[str, int]] | None = None
    given: dict[str, Any] = field(default_factory=dict)

    def bound(self) -> Program:
        return bound_program(self.example, self.program, self.extents)


LLAMA = {"layers": 8, "tokens": 8192}
LONG = {"layers": 4, "tokens": 32768}
LONGER = {"layers": 8, "tokens": 32768}
IMAGE = {"y": 2048, "x": 2048}
TITLE = "Llama, 8 layers, 8,192 tokens"
TRAINED = "a step of training of Llama, 8 layers, 8,192 tokens"
BY_HAND = ("Megatron", "Megatron with sequence parallelism", "context parallel")
DATA_PARALLEL = ("DDP", "FSDP")

SIXTEEN, ONE = (f"ConvNeXt-like, {images} of 2,048 x 2,048" for images in ("16 images", "1 image"))
PLACED = {"t": 4096, "d": 512, "f": 2048}
ROWS = (
    Row("llama1", TITLE, "llama", "forward", 1, LLAMA, most_s=51e-3, model=("llama", LLAMA)),
    Row("corners1", "corners of a 4,096 x 4,096 image", "corners", "corners", 1, {"y": 4096, "x": 4096}, factor=1.5,
        model=("corners", {"side": 4096})),
    Row("convnet16x1", SIXTEEN, "convnet", "forward", 1, {"n": 16, **IMAGE}, model=("convnet", {"images": 16})),
    Row("convnet1x1", ONE, "convnet", "forward", 1, {"n": 1, **IMAGE}, model=("convnet", {"images": 1})),
    Row("llama2", TITLE, "llama", "forward", 2, LLAMA, beside="hand-8192", rivals=BY_HAND, most_s=27.5e-3),
    Row("llama2cut", f"{TITLE}, 2.5 GiB a GPU", "llama", "forward", 2, LLAMA, "2560MiB", "hand-8192", BY_HAND[:2],
        most_s=29e-3),
    Row("convnet16x2", SIXTEEN, "convnet", "forward", 2, {"n": 16, **IMAGE}, beside="convnet16x1",
        rivals=("one GPU",), factor=1.9),
    Row("convnet1x2", ONE, "convnet", "forward", 2, {"n": 1, **IMAGE}, beside="convnet1x1", rivals=("one GPU",),
        factor=1.9),
    Row("llama2long", "Llama, 4 layers, 32,768 tokens", "llama", "forward", 2, LONG, beside="hand-32768",
        rivals=BY_HAND, factor=1.2),
    Row("llama2backward", f"{TITLE}, forward and backward", "goals", "gradients", 2, beside="hand-backward",
        rivals=BY_HAND[:2]),
    Row("llama4", TITLE, "llama", "forward", 4, LLAMA, beside="hand4-8192", rivals=BY_HAND, most_s=14e-3),
    Row("llama4cut", f"{TITLE}, 2 GiB a GPU", "llama", "forward", 4, LLAMA, "2GiB", "hand4-8192", BY_HAND[:2]),
    Row("llama4long", "Llama, 8 layers, 32,768 tokens", "llama", "forward", 4, LONGER, beside="hand4-32768",
        rivals=BY_HAND, most_s=80e-3),
    Row("llama4backward", f"{TITLE}, forward and backward", "goals", "gradients", 4, beside="hand4-backward",
        rivals=BY_HAND[:2]),
    Row("convnet1x4", ONE, "convnet", "forward", 4, {"n": 1, **IMAGE}, beside="convnet1x1", rivals=("one GPU",),
        factor=3.5),
    Row("train4", "a step of training of Llama, 8 layers, 4 sequences of 8,192 tokens", "goals", "train_sequences", 4,
        {"b": 4}, beside="train4-hand", rivals=DATA_PARALLEL, factor=1.1),
    Row("decode1", "Llama, 8 layers, one token more of 8,192", "llama", "decode_step", 1, {"layers": 8},
        model=("decode", {}), given={"at": np.int32(4000)}),
    Row("moe1", "mixture of experts, 4,096 tokens", "moe", "layer", 1, PLACED, model=("moe", PLACED)),
    Row("moe1small", "mixture of experts, as the example has it", "moe", "layer", 1, model=("moe", {})),
    Row("mlp1", "perceptron, 8,192 rows, 4,096 hidden", "mlp", "forward", 1, {"n": 8192, "hidden": 4096},
        model=("perceptron", {})),
    Row("train1", TRAINED, "llama", "train_step", 1, LLAMA, model=("llama_step", LLAMA)),
    Row("train2", TRAINED, "llama", "train_step", 2, LLAMA, beside="train1", rivals=("one GPU",)),
    Row("train2b", "a step of training of Llama, 8 layers, 2 sequences of 8,192 tokens", "goals", "train_sequences", 2,
        {"b": 2}, beside="train2-hand", rivals=DATA_PARALLEL, factor=1.1),
    Row("digits1", "a step of training on 512 digits", "digits", "train_step", 1, {"n": 512}, model=("digits", {})),
)  # fmt: skip
BY_NAME = {row.name: row for row in ROWS}
