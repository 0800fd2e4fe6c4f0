"""All that is done to a model for training.

Whatever the order, it ends as the same layers. Convolutions come first so that the biases that are reported are those
of layers that are left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from .arguments import check_model
from .biases import fuse_biases
from .excitations import fuse_excitations
from .norms import FusedNorms, fuse_norms
from .replacement import Replaced, replace_convolutions
from .resampling import fuse_resampling
from .scales import fuse_layer_scales


@dataclass(frozen=True)
class FusedForTraining:
    """What `fuse_for_training` did: what each of its parts returned. Printed, the whole report."""

    convolutions: Replaced
    norms: FusedNorms
    excitations: tuple[str, ...]
    biases: tuple[str, ...]
    scales: tuple[str, ...] = ()
    resampling: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [str(self.convolutions), str(self.norms)]
        parts = {
            "squeeze-and-excitations": self.excitations, "layer scales": self.scales, "biases": self.biases,
            "resampling layers": self.resampling,
        }  # fmt: skip
        for what, names in parts.items():
            lines += [f"{len(names)} {what} taken", *(f"  {name}" for name in names)]
        return "\n".join(lines)


def fuse_for_training(
    model: nn.Module,
    example: Any = None,
    *,
    norms: bool = True,
    excitations: bool = True,
    scales: bool = True,
    biases: bool = True,
    resampling: bool = True,
    gpu: str = "H200",
) -> FusedForTraining:
    """Have our kernels compute whatever they can of a training step of `model`, in place.

    Calls `replace_convolutions` with `example` and `gpu`, then `fuse_norms`, `fuse_excitations`, `fuse_layer_scales`,
    `fuse_biases` and `fuse_resampling`, each unless it is switched off. Parameters and buffers stay the same objects
    under the same names, so optimizers and state_dicts from before hold; a second call finds nothing to do. Filters lie
    channels-last in memory afterwards, of which an optimizer with ``fused=True`` that has steps behind it, or loads
    such a state, is told by `lay_out_state`. Call it before the model is wrapped or compiled. Gains are largest where
    steps are captured in a CUDA graph; in eager ones, which are the host's, `biases` gain less.

    Raises `WrongType` for what is no model or an example without a tensor, and `WrongValue` for an example that the
    model does not take and, where there is one, a GPU that is not known.
    """
    check_model(model, "fuse_for_training")
    convolutions = replace_convolutions(model, example, gpu=gpu)
    return FusedForTraining(
        convolutions,
        fuse_norms(model) if norms else FusedNorms({}, {}),
        tuple(fuse_excitations(model)) if excitations else (),
        scales=tuple(fuse_layer_scales(model)) if scales else (),
        biases=tuple(fuse_biases(model)) if biases else (),
        resampling=tuple(fuse_resampling(model)) if resampling else (),
    )
