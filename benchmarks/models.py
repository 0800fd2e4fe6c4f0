"""`make bench-models`: timm's models with our convolutions beside cuDNN's, in one run on one GPU.

Training is forward and backward under bf16 autocast: with our convolutions alone, after `fuse_norms` too, and after
`fuse_for_training`, which is everything. Inference is forward alone. All are channels-last, with random weights and
images. Fused inference is of `fuse_for_inference`, beside the model in bf16. `cudnn.benchmark` is off, as torch has it,
unless asked for. Models come in the order of `MODELS`, and what was measured is written as it comes: a limit on time
leaves out the last ones, and a second run goes on there. With `--jobs` several models are made ready side by side, each
in a process of its own (cuDNN takes half a second for each pass of each layer that it meets first), and timed one at a
time, when nobody makes anything ready: eager steps are the host's work.

    python benchmarks/models.py [--limit 300] [--only efficientnet_b0] [--modes eager graph] [--doc docs/models.md]

Needs an NVIDIA GPU, torch with CUDA, timm and CuPy.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import datetime as dt
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any

import model_compile  # type: ignore[import-not-found, unused-ignore]
from model_steps import (  # type: ignore[import-not-found, unused-ignore]
    DEVICE,
    KNOWN,
    MODELS,
    UNSEEN,
    Contender,
    Step,
    alone,
    by_host,
    captured,
    created,
    first_s,
    in_turns,
)

from tapestry.files import write_file

ROOT = Path(__file__).resolve().parent.parent
NO_GPU = 2
MODES = {  # what is measured, and what of the results says that it was
    "first": "first_ours_s", "graph": "inference_graph_ms", "eager": "inference_eager_ms", "fused": "fused_graph_ms",
    "loss": "loss", "memory": "memory_bytes", "halves": "halves_graph_ms", "callables": "callables_ms",
    "compile": "training_compile_ms", "compile-inference": "fused_compile_ms",
}  # fmt: skip
PARTS = ("excitations", "scales", "biases", "resampling")  # of `fuse_for_training`, beside convolutions and norms
COMPILE = "compile"  # training of compiled models, each in processes of its own
KEEPING = threading.Lock()  # models that are timed by turns note what they have side by side
LOCK: Path | None = None  # held by one process while it times, by all others while they make ready


class Measurement:
    """What is measured of one model, each part by itself: one that fails is noted, and the others go on."""

    def __init__(self, name: str, note: Callable[[dict[str, Any]], None]) -> None:
        from tapestry.kernels.torch import fuse_for_training, fuse_norms, replace_convolutions

        self.name, self.note, self.case, sizes = name, note, {}, KNOWN[name]
        model = created(name)
        self.theirs, self.ours = Contender(model, sizes), Contender(copy.deepcopy(model), sizes)
        report = replace_convolutions(self.ours.model)
        self.case["taken"], self.case["left"] = len(report.taken), len(report.left)
        self.normed = Contender(copy.deepcopy(self.ours.model), sizes)
        self.case["norms"] = len(fuse_norms(self.normed.model).taken)
        self.whole = Contender(copy.deepcopy(model), sizes)
        everything = fuse_for_training(self.whole.model)
        for what in PARTS:
            self.case[what] = len(getattr(everything, what))
        self.case["batch"], self.case["extent"] = sizes.batch, sizes.extent
        self.inferring: dict[str, Step] = {}
        self.halved: dict[str, Step] = {}

    def run(self, modes: Sequence[str], deadline: float) -> None:
        parts = {
            "graph": self.graph, "eager": self.eager, "fused": self.fused, "loss": self.loss,
            "memory": self.memory, "halves": self.halves, "callables": self.callables,
            "compile-inference": self.compiled_inference,
        }  # fmt: skip
        ready = {
            "graph": self.met, "eager": self.met, "memory": self.met, "callables": self.met, "fused": self.fusion,
            "halves": self.met_in_halves,
            "compile-inference": self.inference_compilation,
        }  # fmt: skip
        with alone(LOCK, shared=True):
            self._run({"first": self.first} if "first" in modes else {}, deadline)
            self._run({f"ready for {mode}": part for mode, part in ready.items() if mode in modes}, deadline)
        with alone(LOCK):
            self._run({mode: part for mode, part in parts.items() if mode in modes}, deadline)

    def _run(self, parts: dict[str, Callable[[], None]], deadline: float) -> None:
        for mode, part in parts.items():
            if monotonic() > deadline:
                self.case.setdefault("left_out", []).append(mode)
                self.note(self.case)
                continue
            try:
                part()
            except Exception as error:
                self.case[f"{mode}_failed"] = f"{type(error).__name__}: {error}"[:400]
            self.note(self.case)

    def first(self) -> None:
        """Of everything, from `fuse_for_training` on. cuDNN's comes first: what it looks up for the layers that are
        left to it is there for ours.
        """
        import torch

        from tapestry.kernels.torch import fuse_for_training
        from tapestry.kernels.warm_up import warm_up

        self.case["first_cudnn_s"] = first_s(self.theirs.training())
        made = Contender(copy.deepcopy(self.theirs.model), KNOWN[self.name])
        begun = perf_counter()
        fuse_for_training(made.model)
        self.case["fuse_s"] = round(perf_counter() - begun, 2)
        begun = perf_counter()
        with torch.autocast(DEVICE, torch.bfloat16):
            self.case["kernels"] = len(warm_up(made.model, made.images))
        self.case["warm_up_s"] = round(perf_counter() - begun, 2)
        self.case["first_ours_s"] = first_s(made.training())
        torch.cuda.empty_cache()

    def met(self) -> None:
        """What is asked once for each layer is known: cuDNN's algorithms, and kernels of ours; so is the extension."""
        import torch

        from tapestry.kernels.tensors import native_calls

        self.case["native"] = native_calls.wait()
        try:
            for step in self._training().values():
                step()
        finally:
            torch.cuda.empty_cache()  # others share the GPU

    def graph(self) -> None:
        self.case["training_graph_ms"] = in_turns(self._training(captured))
        self.case["inference_graph_ms"] = self._in_evaluation(captured)

    def eager(self) -> None:
        self.case["training_eager_ms"] = by_host(self._training())
        self.case["inference_eager_ms"] = self._in_evaluation()

    def met_in_halves(self) -> None:
        """The same of models that are bf16 altogether."""
        import torch

        from tapestry.kernels.tensors import native_calls
        from tapestry.kernels.torch import fuse_for_training

        theirs, whole = self.theirs.halved(), self.theirs.halved()
        fuse_for_training(whole.model)
        self.halved = {"cudnn": theirs.training(), "everything": whole.training()}
        self.case["native"] = native_calls.wait()
        for step in self.halved.values():
            step()
        torch.cuda.empty_cache()

    def halves(self) -> None:
        self.case["halves_eager_ms"] = by_host(self.halved)
        self.case["halves_graph_ms"] = in_turns({who: captured(step) for who, step in self.halved.items()})

    def callables(self) -> None:
        """Forward and backward as `torch.cuda.make_graphed_callables` captures them."""
        contenders = {"cudnn": self.theirs.callables(), "everything": self.whole.callables()}
        self.case["callables_ms"] = by_host({who: made.training() for who, made in contenders.items()})

    def memory(self) -> None:
        """Bytes that a step has at most beside weights, buffers and images: what forward keeps, gradients and the like.
        The second step of each is measured: the first one has what is made once.
        """
        import torch

        found = {}
        for who, step in self._training().items():
            step()
            for contender in (self.theirs, self.ours, self.normed, self.whole):
                contender.model.zero_grad(set_to_none=True)
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            step()
            found[who] = torch.cuda.max_memory_allocated() - before
        self.case["memory_bytes"] = found

    def _training(self, made: Callable[[Step], Step] | None = None) -> dict[str, Step]:
        """cuDNN's, ours, ours with fused norms too, and everything: where there is any of what makes them differ."""
        steps = self._steps(Contender.training, made)
        more = {"norms": self.normed} if self.case["norms"] else {}
        if any(self.case[what] for what in PARTS):
            more["everything"] = self.whole
        for who, contender in more.items():
            step = contender.training()
            steps[who] = made(step) if made else step
        return steps

    def _steps(self, kind: Callable[[Contender], Step], made: Callable[[Step], Step] | None = None) -> dict[str, Step]:
        steps = {"cudnn": kind(self.theirs), "ours": kind(self.ours)}
        return {who: made(step) if made else step for who, step in steps.items()}

    def _in_evaluation(self, made: Callable[[Step], Step] | None = None) -> dict[str, float]:
        """Milliseconds of inference of both."""
        models = (self.theirs.model, self.ours.model)
        for model in models:
            model.eval()
        try:
            return (in_turns if made else by_host)(self._steps(Contender.inference, made))
        finally:
            for model in models:
                model.train()

    def _narrow(self) -> dict[str, Contender]:
        """The model in bf16 in evaluation, as it is and fused."""
        import torch

        from tapestry.kernels.torch import fuse_for_inference

        plain, made = copy.deepcopy(self.theirs.model).eval(), {}
        for who, model in (("cudnn", plain.to(torch.bfloat16)), ("fused", fuse_for_inference(self.theirs.model))):
            made[who] = copy.copy(self.theirs)
            made[who].model = model.to(memory_format=torch.channels_last)
            made[who].images = self.theirs.images.to(torch.bfloat16)
        return made

    def fused(self) -> None:
        import torch

        steps = {who: contender.inference() for who, contender in self._narrow().items()}
        results = {who: step().float() for who, step in steps.items()}
        exact = self.theirs.exact()
        self.case["fused_error"] = {who: float((found - exact).norm() / exact.norm()) for who, found in results.items()}
        torch.cuda.synchronize()
        self.case["fused_eager_ms"] = by_host(steps)
        self.case["fused_graph_ms"] = in_turns({who: captured(step) for who, step in steps.items()})

    def fusion(self) -> None:
        """Everything that inference needs is compiled."""
        from tapestry.kernels.tensors import native_calls

        self.case["native"] = native_calls.wait()
        for contender in self._narrow().values():
            contender.inference()()

    def inference_compilation(self) -> None:
        import torch

        for who, contender in self._narrow().items():
            self.inferring[who] = contender.inference(torch.compile(contender.model))
            self.case[f"compile_inference_{who}_s"] = first_s(self.inferring[who])
            self.note(self.case)

    def compiled_inference(self) -> None:
        self.case["fused_compile_ms"] = in_turns(
            {who: captured(step, compiled=True) for who, step in self.inferring.items()}
        )

    def loss(self) -> None:
        """The largest difference of the curves, ours from cuDNN's, and two of cuDNN's from one another: the second
        one's tensors lie in memory in torch's own order, for which it has other algorithms. And of each from that of
        the model in f32.
        """
        import torch

        def apart(one: Sequence[float], other: Sequence[float]) -> float:
            return max(abs(a - b) for a, b in zip(one, other, strict=True))

        other = copy.copy(self.theirs)
        other.model = copy.deepcopy(self.theirs.model).to(memory_format=torch.contiguous_format)
        other.images = self.theirs.images.contiguous()
        others = {"cudnn_again": other, "ours": self.ours, "norms": self.normed, "everything": self.whole}
        first = self.theirs.losses()
        with torch.backends.cudnn.flags(True, torch.backends.cudnn.benchmark, allow_tf32=False):
            exact = self.theirs.losses(lowered=False)
        loss = self.case["loss"] = {"first": first[0], "last": first[-1], "cudnn_exact": apart(exact, first)}
        for who, contender in others.items():
            found = contender.losses()
            loss |= {who: apart(first, found), f"{who}_exact": apart(exact, found)}


def machine() -> dict[str, Any]:
    import timm
    import torch

    return {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version(),
        "timm": timm.__version__,
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
    }


def missing() -> str | None:
    """Why nothing can be measured here."""
    try:
        import cupy  # noqa: F401
        import timm  # noqa: F401
        import torch
    except ImportError as error:
        return f"{error.name} is not installed"
    return None if torch.cuda.is_available() else f"torch {torch.__version__} sees no CUDA device"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds; what is missing is left for a next run")
    parser.add_argument("--unseen", action="store_true", help="models that nobody looked at before, instead")
    parser.add_argument("--only", nargs="+", choices=list(KNOWN))
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument(
        "--contenders", nargs="+", choices=model_compile.CONTENDERS, default=list(model_compile.CONTENDERS),
        help="whose compiled steps are timed",
    )  # fmt: skip
    parser.add_argument("--jobs", type=int, default=1, help="models that are made ready side by side")
    parser.add_argument("--profile", type=Path, help="a folder for profiles of compiled steps")
    parser.add_argument("--lock", type=Path, help="a file that is locked while something is timed")
    parser.add_argument(
        "--cudnn-benchmark", action="store_true", help="let cuDNN time its algorithms (minutes a model)"
    )
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "models.json")
    parser.add_argument("--doc", type=Path, help="put the tables between the markers of this file")
    parser.add_argument("--render", action="store_true", help="only write the tables of results that are there")
    given = parser.parse_args()
    given.only = given.only or list(UNSEEN if given.unseen else MODELS)
    if given.render:
        write_page(json.loads(given.results.read_text(encoding="utf-8")), given.doc, given.unseen)
        return 0
    if why := missing():
        print(f"bench-models: {why}", file=sys.stderr)
        return NO_GPU
    import torch

    torch.backends.cudnn.benchmark = given.cudnn_benchmark
    found: dict[str, Any] = json.loads(given.results.read_text()) if given.results.exists() else {"models": {}}
    found["machine"] = {**machine(), "cudnn_benchmark": given.cudnn_benchmark}
    wanted = {name: missing_modes(found["models"].get(name, {}), given.modes, given.contenders) for name in given.only}
    measure = side_by_side if given.jobs > 1 else one_by_one
    measure(without(COMPILE, wanted), given, found)
    compiled = [name for name, modes in wanted.items() if COMPILE in modes]

    def note(name: str, case: dict[str, Any]) -> None:
        keep(found, name, case, given.results)
        print(name, json.dumps(case), flush=True)

    model_compile.measure(compiled, given.limit, given.jobs, note, given.profile, given.contenders)
    write_page(found, given.doc, given.unseen)
    return 0


def missing_modes(case: dict[str, Any], modes: Sequence[str], contenders: Sequence[str]) -> list[str]:
    """What was not measured of a model, of what is asked for."""

    def measured(mode: str) -> bool:
        value = case.get(MODES[mode])
        return bool(value) and (mode != COMPILE or set(contenders) <= set(value))

    return [mode for mode in modes if not measured(mode)]


def without(mode: str, wanted: dict[str, list[str]]) -> dict[str, list[str]]:
    """The others, of models that have any."""
    others = {name: [other for other in modes if other != mode] for name, modes in wanted.items()}
    return {name: modes for name, modes in others.items() if modes}


def keep(found: dict[str, Any], name: str, case: dict[str, Any], results: Path) -> None:
    """Write what is known of a model, beside what an earlier run found of it: whole or not at all, one at a time."""
    with KEEPING:
        before = {
            what: value
            for what, value in found["models"].get(name, {}).items()
            if what != "left_out" and not what.endswith("failed")
        }
        found["models"][name] = before | case
        results.parent.mkdir(parents=True, exist_ok=True)
        write_file(results, json.dumps(found, indent=1), replace=True)


def one_by_one(wanted: dict[str, list[str]], given: argparse.Namespace, found: dict[str, Any]) -> None:
    """In this process."""
    global LOCK
    import torch

    LOCK, deadline = given.lock, monotonic() + given.limit
    for name, modes in wanted.items():
        if monotonic() > deadline:
            return
        begun = monotonic()
        try:
            with alone(LOCK, shared=True):
                measured = Measurement(name, lambda case, name=name: keep(found, name, case, given.results))
            measured.run(modes, deadline)
        except Exception as error:
            keep(found, name, {"failed": f"{type(error).__name__}: {error}"[:400]}, given.results)
        print(name, f"{monotonic() - begun:.0f} s", json.dumps(found["models"][name]), flush=True)
        torch.cuda.empty_cache()


def side_by_side(wanted: dict[str, list[str]], given: argparse.Namespace, found: dict[str, Any]) -> None:
    """A process a model, so many at a time; what one has when the time is over is taken."""
    deadline = monotonic() + given.limit
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(given.jobs) as pool:

        def run(name: str) -> None:
            part, left = Path(folder) / f"{name}.json", deadline - monotonic()
            if left <= 0:
                return
            command = [sys.executable, __file__, "--only", name, "--modes", *wanted[name], "--results", str(part)]
            command += ["--lock", str(given.lock or Path(folder) / "lock"), "--limit", str(left)]
            command += ["--cudnn-benchmark"] if given.cudnn_benchmark else []
            with contextlib.suppress(subprocess.TimeoutExpired):
                subprocess.run(command, timeout=left, check=False, stdout=subprocess.DEVNULL)
            if part.exists():
                keep(found, name, json.loads(part.read_text(encoding="utf-8"))["models"][name], given.results)
                print(name, json.dumps(found["models"][name]), flush=True)

        list(pool.map(run, wanted))


def write_page(found: dict[str, Any], document: Path | None, unseen: bool = False) -> None:
    """Print the tables of models of the list or of those unseen, and put them between their markers of a document."""
    from marked import into  # type: ignore[import-not-found, unused-ignore]
    from model_tables import tables  # type: ignore[import-not-found, unused-ignore]

    models = UNSEEN if unseen else MODELS
    text = tables(found, {name: None if unseen else model.goal for name, model in models.items()})
    print(text)
    if document:
        into(document, "models of others" if unseen else "models", text)


if __name__ == "__main__":
    sys.exit(main())
