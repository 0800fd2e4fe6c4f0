"""The contenders of `models.py`: a model of timm with a batch, its steps, and how they are timed."""

from __future__ import annotations

import contextlib
import copy
import statistics
from collections import ChainMap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

DEVICE = "cuda"
ROUNDS, SECONDS = 3, 0.12  # of one contender: rounds, and how long each takes about
HOST_ROUNDS = 15  # where the host is timed as much as the GPU
SETTLING = 2  # steps of a round before it is timed, in which torch's allocator finds the places of the last round again
ISSUES = 15  # steps of which the host's part is timed
LOSS_STEPS = 100
Step = Callable[[], Any]


@dataclass(frozen=True)
class Model:
    """A model of timm: images of a batch, their extent, and what training in a CUDA graph is to gain over cuDNN."""

    batch: int
    extent: int = 224
    goal: float = 1.1


MODELS = {
    "efficientnet_b0": Model(128, goal=1.25),
    "convnext_tiny": Model(64, goal=1.25),
    "regnety_016": Model(128, goal=1.8),
    "resnext50_32x4d": Model(128),
    "mobilenetv3_large_100": Model(128),
    "convnextv2_atto": Model(128),
    "regnety_032": Model(64, goal=1.8),
    "edgenext_small": Model(64, 256),
    "efficientnet_b4": Model(32, 380),
    "regnetx_032": Model(64),
    "tf_efficientnet_b0": Model(128),
    "eca_nfnet_l0": Model(64),
    "regnetx_120": Model(64),
    "regnety_080": Model(64),
}
# Others, most of other families, each with layers that the kernels take: none had been timed when they were chosen.
UNSEEN = {
    "mobilenetv2_100": Model(128),
    "mobilenetv4_conv_medium": Model(64, 256),
    "efficientformerv2_s1": Model(64),
    "fbnetv3_b": Model(64),
    "fastvit_t8": Model(64, 256),
    "repvit_m0_9": Model(64),
    "mobileone_s0": Model(64),
    "mixnet_s": Model(64),
    "lcnet_100": Model(128),
    "hgnetv2_b0": Model(128),
    "starnet_s1": Model(128),
    "nf_regnet_b0": Model(128, 192),
    "regnety_008": Model(128),
    "regnetz_b16": Model(64),
    "resnext101_32x8d": Model(32),
    "seresnext50_32x4d": Model(64),
    "skresnext50_32x4d": Model(64),
    "gcresnext26ts": Model(64, 256),
    "dpn68b": Model(64),
    "xception41": Model(32, 299),
    "visformer_tiny": Model(128),
    "nextvit_small": Model(64),
    "convnext_small": Model(32),
    "mambaout_tiny": Model(64),
    "rdnet_tiny": Model(64),
    "focalnet_tiny_srf": Model(64),
    "inception_next_tiny": Model(64),
    "davit_tiny": Model(64),
    "pvt_v2_b1": Model(64),
    "mobilevit_s": Model(64, 256),
    "resnet50": Model(128),
    "densenet121": Model(64),
    "vit_small_patch16_224": Model(64),
    "swin_tiny_patch4_window7_224": Model(64),
    "poolformer_s12": Model(64),
}
KNOWN = ChainMap(MODELS, UNSEEN)


def created(name: str) -> Any:
    """A model of timm as it is timed: random weights, channels-last, on the GPU."""
    import timm
    import torch

    torch.manual_seed(0)
    sizes = KNOWN[name]
    extents = {} if sizes.extent == 224 else {"img_size": sizes.extent}
    try:
        model = timm.create_model(name, **extents)
    except TypeError:  # most models take images of any size
        model = timm.create_model(name)
    return model.to(DEVICE, memory_format=torch.channels_last)


class Contender:
    """One model on the GPU with a batch: steps of training and of inference."""

    def __init__(self, model: Any, sizes: Model) -> None:
        import torch

        self.torch, self.model = torch, model
        random = torch.Generator(DEVICE).manual_seed(1)
        shape = (sizes.batch, 3, sizes.extent, sizes.extent)
        images = torch.randn(shape, generator=random, device=DEVICE)
        self.images = images.contiguous(memory_format=torch.channels_last)
        self.labels = torch.randint(1000, (sizes.batch,), generator=random, device=DEVICE)

    def halved(self) -> Contender:
        """The same with parameters, buffers and images of bf16."""
        made = copy.copy(self)
        made.model = copy.deepcopy(self.model).to(self.torch.bfloat16)
        made.images = self.images.to(self.torch.bfloat16)
        return made

    def callables(self) -> Contender:
        """A copy whose forward and backward are CUDA graphs, as torch makes them of a module."""
        torch, made = self.torch, copy.copy(self)
        made.model = copy.deepcopy(self.model)
        with torch.device(DEVICE), torch.autocast(DEVICE, torch.bfloat16, cache_enabled=False):
            made.model = torch.cuda.make_graphed_callables(made.model, (self.images,))
        return made

    def training(self, called: Any = None, lowered: bool = True) -> Step:
        """Forward and backward; gradients are new every time. Gives the loss. Autocast lowers images of f32."""
        torch, model, parameters = self.torch, self.model if called is None else called, list(self.model.parameters())
        lowered = lowered and self.images.dtype is torch.float32

        def step() -> Any:
            for parameter in parameters:
                parameter.grad = None
            with torch.autocast(DEVICE, torch.bfloat16, enabled=lowered, cache_enabled=False):
                loss = torch.nn.functional.cross_entropy(model(self.images), self.labels)
            loss.backward()
            return loss

        return step

    def inference(self, called: Any = None) -> Step:
        torch, model = self.torch, self.model if called is None else called

        def step() -> Any:
            lowered = self.images.dtype is torch.float32
            with torch.no_grad(), torch.autocast(DEVICE, torch.bfloat16, enabled=lowered, cache_enabled=False):
                return model(self.images)

        return step

    def exact(self) -> Any:
        """The results in f32, in evaluation."""
        self.model.eval()
        try:
            with self.torch.no_grad():
                return self.model(self.images)
        finally:
            self.model.train()

    def losses(self, lowered: bool = True) -> list[float]:
        """Of steps of SGD on the one batch, from the weights the model has, which are put back."""
        torch = self.torch
        saved = copy.deepcopy(self.model.state_dict())
        update, step = torch.optim.SGD(self.model.parameters(), 0.02, momentum=0.9), self.training(None, lowered)
        found = []
        for _ in range(LOSS_STEPS):
            found.append(step().detach())
            update.step()
        self.model.load_state_dict(saved)
        return [float(loss) for loss in found]


def captured(step: Step, *, compiled: bool = False) -> Step:
    """A step as a CUDA graph. What it makes without saying where is made on the GPU: no graph takes a copy from the
    host's memory (edgenext's encoding of positions begins with such zeros). A step that is compiled has no such, and
    would be compiled anew for another default.
    """
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with contextlib.nullcontext() if compiled else torch.device(DEVICE):
        with torch.cuda.stream(stream):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
    return graph.replay


@contextlib.contextmanager
def alone(lock: Path | None, *, shared: bool = False) -> Iterator[None]:
    """One process at a time, where several share a GPU; those that make ready are `shared`: beside one another."""
    if lock is None:
        yield
        return
    import fcntl

    with lock.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield


def in_turns(steps: dict[str, Step]) -> dict[str, float]:
    """Median milliseconds of a step of each, which are timed in turns."""
    return {who: round(statistics.median(times), 3) for who, times in _timed(steps, ROUNDS).items()}


def by_host(steps: dict[str, Step]) -> dict[str, float]:
    """The same of steps that take the host as long as the GPU: the first one's median, and the others' by the median of
    their ratios to it within a round. A host that others use changes from one second to the next, for all of a round.
    """
    rounds = _timed(steps, HOST_ROUNDS)
    first = next(iter(rounds.values()))
    usual = statistics.median(first)

    def beside(times: list[float]) -> float:
        return statistics.median(time / other for time, other in zip(times, first, strict=True))

    return {who: round(usual * beside(times), 3) for who, times in rounds.items()}


def _timed(steps: dict[str, Step], rounds: int) -> dict[str, list[float]]:
    """Milliseconds of a step of each in each round."""
    import torch

    for step in steps.values():
        step()
    torch.cuda.synchronize()
    counts: dict[str, int] = {}
    times: dict[str, list[float]] = {who: [] for who in steps}
    for who, step in steps.items():
        begun = perf_counter()
        step()
        torch.cuda.synchronize()
        counts[who] = max(3, min(40, int(SECONDS / (perf_counter() - begun))))
    for _ in range(rounds):
        for who, step in steps.items():
            for _ in range(SETTLING):
                step()
            torch.cuda.synchronize()
            begun = perf_counter()
            for _ in range(counts[who]):
                step()
            torch.cuda.synchronize()
            times[who].append((perf_counter() - begun) / counts[who] * 1e3)
    return times


def issued(steps: dict[str, Step]) -> dict[str, float]:
    """Median milliseconds that the host takes to queue a step of each on an idle GPU, in turns."""
    import torch

    times: dict[str, list[float]] = {who: [] for who in steps}
    for _ in range(ISSUES):
        for who, step in steps.items():
            torch.cuda.synchronize()
            begun = perf_counter()
            step()
            times[who].append((perf_counter() - begun) * 1e3)
    torch.cuda.synchronize()
    return {who: round(statistics.median(found), 3) for who, found in times.items()}


def first_s(step: Step) -> float:
    """Seconds of a step that nobody made before."""
    import torch

    torch.cuda.synchronize()
    begun = perf_counter()
    step()
    torch.cuda.synchronize()
    return round(perf_counter() - begun, 2)
