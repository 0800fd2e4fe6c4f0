"""The grouped convolution in torch: `conv2d`, differentiable, a swap of a model's layers, and fusion.

Importing this module registers `tapestry::grouped_conv2d` and its two gradients as torch operators (autograd of any
order, fake tensors, autocast; see `tensors/operators`). On CUDA they run the kernels of this package, f16 and bf16, on
torch's current stream; on CPUs torch's own convolution, any float. `fuse_for_training` has the kernels do all they can
of a training step: it swaps convolutions, and calls `fuse_norms`, `fuse_excitations`, `fuse_layer_scales`,
`fuse_biases` and `fuse_resampling`. `tune` times a model's convolutions where it runs, and keeps what was fastest.
"""

from .layers.grouped import GroupedConv2d, conv2d
from .layers.norms import NormAct2d
from .models.biases import fuse_biases
from .models.compiled import fuse_compiled
from .models.excitations import fuse_excitations
from .models.fusion import fuse_for_inference
from .models.norms import FusedNorms, fuse_norms
from .models.optimizers import lay_out_state
from .models.replacement import Replaced, replace_convolutions
from .models.resampling import fuse_resampling
from .models.scales import fuse_layer_scales
from .models.training import FusedForTraining, fuse_for_training
from .models.tuning import Tuned, TunedPass, tune
from .tensors.convolution_calls import compile_in_background

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
    "lay_out_state",
    "replace_convolutions",
    "tune",
]
