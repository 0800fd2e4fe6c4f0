"""The grouped convolution in torch: `conv2d`, differentiable, a swap of a model's layers, and fusion.

Importing this module registers `tapestry::grouped_conv2d` and its two gradients as torch operators (autograd of any
order, fake tensors, autocast; see `torch_operators`). On CUDA they run the kernels of this package, f16 and bf16, on
torch's current stream; on CPUs torch's own convolution, any float. `fuse_for_training` has the kernels do all they can
of a training step: it swaps convolutions, and calls `fuse_norms`, `fuse_excitations`, `fuse_layer_scales`,
`fuse_biases` and `fuse_resampling`. `tune` times a model's convolutions where it runs, and keeps what was fastest.
"""

from .torch_biases import fuse_biases
from .torch_calls import compile_in_background
from .torch_excitation import fuse_excitations
from .torch_fusion import fuse_compiled, fuse_for_inference
from .torch_layers import GroupedConv2d, conv2d
from .torch_norms import FusedNorms, NormAct2d, fuse_norms
from .torch_replacement import Replaced, replace_convolutions
from .torch_resampling import fuse_resampling
from .torch_scales import fuse_layer_scales
from .torch_training import FusedForTraining, fuse_for_training
from .torch_tuning import Tuned, TunedPass, tune

__all__ = [
    "FusedForTraining",
    "FusedNorms",
    "GroupedConv2d",
    "NormAct2d",
    "Replaced",
    "Tuned",
    "TunedPass",
    "compile_in_background",
    "conv2d",
    "fuse_biases",
    "fuse_compiled",
    "fuse_excitations",
    "fuse_for_inference",
    "fuse_for_training",
    "fuse_layer_scales",
    "fuse_norms",
    "fuse_resampling",
    "replace_convolutions",
    "tune",
]
