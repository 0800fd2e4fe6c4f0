"""Which activations of torch the kernels compute, and their names there."""

from __future__ import annotations

from torch import nn

from .gelu import SummedGELU

ACTIVATIONS: dict[type, str] = {
    nn.Identity: "",
    nn.ReLU: "relu",
    nn.ReLU6: "relu6",
    nn.SiLU: "silu",
    nn.GELU: "gelu",
    SummedGELU: "gelu",
    nn.Hardswish: "hardswish",
}


def activation_name(module: nn.Module) -> str | None:
    """What the kernels call an activation of torch; None for one that they do not compute, or that was given tensors of
    its own, which have their place in a model.
    """
    if module._parameters or module._buffers:
        return None
    named = {"GELU": "gelu"} if type(module).__module__.startswith("timm.layers.") else {}  # the exact one, as torch's
    found = named.get(type(module).__name__, ACTIVATIONS.get(type(module)))
    return None if found == "gelu" and getattr(module, "approximate", "none") != "none" else found
