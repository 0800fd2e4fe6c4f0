"""Compiling what a run will ask for on all cores before the GPU is kept waiting; the results go to the cubin cache."""

from __future__ import annotations

import multiprocessing as mp
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures import TimeoutError as Late
from time import monotonic
from typing import Any

Recipe = tuple[str, str]  # name of the kernel, source


def recipes_of(problem: Any, gpu: Any) -> list[Recipe]:
    """The kernels of the three passes of a problem, with the configurations the cost model chooses."""
    from tapestry.kernels.convolution.recipes import PASSES, recipes

    return [(recipe.name, recipe.source) for what in PASSES for recipe in recipes(problem, what, gpu)]


def compile_ahead(problems: Sequence[Any], gpu: Any, deadline: float) -> tuple[int, list[str]]:
    """Compile the kernels of `problems` on a GPU, which need not be here: how many, and what failed.

    Stops waiting at the deadline; what is compiled by then is kept.
    """
    wanted: dict[Recipe, None] = {}
    failed = []
    for problem in dict.fromkeys(problems):
        try:
            wanted.update(dict.fromkeys(recipes_of(problem, gpu)))
        except Exception as error:
            failed.append(f"{problem}: {error!r}")
    done, complaints = compile_all(wanted, deadline)
    return done, failed + complaints


def compile_all(wanted: Iterable[Recipe], deadline: float) -> tuple[int, list[str]]:
    """Compile (name, source) pairs in as many processes as there are cores."""
    pairs, failed, done = list(wanted), [], 0
    with ProcessPoolExecutor(os.cpu_count(), mp_context=mp.get_context("spawn")) as pool:
        running = {pool.submit(_compile, *pair): pair for pair in pairs}
        try:
            for future in as_completed(running, timeout=max(1.0, deadline - monotonic())):
                if complaint := future.result():
                    failed.append(f"{running[future][0]}: {complaint}")
                else:
                    done += 1
        except Late:
            pool.shutdown(wait=False, cancel_futures=True)
    return done, failed


def _compile(name: str, source: str) -> str:
    from tapestry.kernels.runtime.compiler import compile_source

    try:
        compile_source(source, name=name)
    except Exception as error:
        return repr(error)[:300]
    return ""
