"""Tapestry: tensor programs as block operations with exact index projections.

`import tapestry as tp` costs nothing until a name is used: every public name is loaded from its module at first use,
so that the command line starts without isl, torch or a solver.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING

from .lazy import lazy_names

__version__ = "0.1.0"


class _Package(ModuleType):
    """`tapestry.program` and `tapestry.parse` are modules too, beside a decorator and a function
    of these names: importing the modules does not hide them."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in ("program", "parse") and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package

# The public names, once for the type checker and once for run time; a test holds the two equal.
if TYPE_CHECKING:
    from . import optim as optim
    from . import rewrites as rewrites
    from .autodiff.gradient import grad as grad
    from .autodiff.gradient import stop_gradient as stop_gradient
    from .autodiff.gradient import value_and_grad as value_and_grad
    from .dsl.annotations import anyfloat as anyfloat
    from .dsl.annotations import anyint as anyint
    from .dsl.annotations import anytype as anytype
    from .dsl.annotations import bf16 as bf16
    from .dsl.annotations import bool_ as bool_
    from .dsl.annotations import f8e4m3 as f8e4m3
    from .dsl.annotations import f8e5m2 as f8e5m2
    from .dsl.annotations import f16 as f16
    from .dsl.annotations import f32 as f32
    from .dsl.annotations import f64 as f64
    from .dsl.annotations import int8 as int8
    from .dsl.annotations import int16 as int16
    from .dsl.annotations import int32 as int32
    from .dsl.annotations import int64 as int64
    from .dsl.annotations import num as num
    from .dsl.annotations import uint8 as uint8
    from .dsl.annotations import uint16 as uint16
    from .dsl.annotations import uint32 as uint32
    from .dsl.block import block as block
    from .dsl.declare import constant as constant
    from .dsl.declare import forbid as forbid
    from .dsl.declare import input as input  # noqa: A004
    from .dsl.declare import replicate as replicate
    from .dsl.declare import shard as shard
    from .dsl.declare import update as update
    from .dsl.index import Index as Index
    from .dsl.index import indices as indices
    from .dsl.op import op as op
    from .dsl.program import program as program
    from .dsl.repeat import repeat as repeat
    from .dsl.roles import param as param
    from .dsl.roles import state as state
    from .dsl.table import table as table
    from .dsl.tensor import Tensor as Tensor
    from .dsl.trace import composite as composite
    from .dsl.trace import name as name
    from .errors import CheckFailed as CheckFailed
    from .errors import Infeasible as Infeasible
    from .errors import ProgramError as ProgramError
    from .errors import ReadOutOfBounds as ReadOutOfBounds
    from .errors import TapestryError as TapestryError
    from .errors import TimeLimit as TimeLimit
    from .errors import UsageError as UsageError
    from .ops.activation import celu as celu
    from .ops.activation import elu as elu
    from .ops.activation import glu as glu
    from .ops.activation import hardshrink as hardshrink
    from .ops.activation import hardsigmoid as hardsigmoid
    from .ops.activation import hardswish as hardswish
    from .ops.activation import hardtanh as hardtanh
    from .ops.activation import leaky_relu as leaky_relu
    from .ops.activation import logsigmoid as logsigmoid
    from .ops.activation import mish as mish
    from .ops.activation import prelu as prelu
    from .ops.activation import relu6 as relu6
    from .ops.activation import selu as selu
    from .ops.activation import softplus as softplus
    from .ops.activation import softshrink as softshrink
    from .ops.activation import softsign as softsign
    from .ops.activation import tanhshrink as tanhshrink
    from .ops.activation import threshold as threshold
    from .ops.adaptive import adaptive_avg_pool1d as adaptive_avg_pool1d
    from .ops.adaptive import adaptive_avg_pool2d as adaptive_avg_pool2d
    from .ops.adaptive import adaptive_avg_pool3d as adaptive_avg_pool3d
    from .ops.adaptive import adaptive_max_pool1d as adaptive_max_pool1d
    from .ops.adaptive import adaptive_max_pool2d as adaptive_max_pool2d
    from .ops.adaptive import adaptive_max_pool3d as adaptive_max_pool3d
    from .ops.arranging import diag as diag
    from .ops.arranging import diag_embed as diag_embed
    from .ops.arranging import diagonal as diagonal
    from .ops.arranging import flatten as flatten
    from .ops.arranging import fliplr as fliplr
    from .ops.arranging import flipud as flipud
    from .ops.arranging import hstack as hstack
    from .ops.arranging import meshgrid as meshgrid
    from .ops.arranging import moveaxis as moveaxis
    from .ops.arranging import repeat_interleave as repeat_interleave
    from .ops.arranging import roll as roll
    from .ops.arranging import rot90 as rot90
    from .ops.arranging import split as split
    from .ops.arranging import swapaxes as swapaxes
    from .ops.arranging import tile as tile
    from .ops.arranging import trace as trace
    from .ops.arranging import tril as tril
    from .ops.arranging import triu as triu
    from .ops.arranging import unbind as unbind
    from .ops.arranging import vstack as vstack
    from .ops.attention import attention as attention
    from .ops.channels import batch_norm as batch_norm
    from .ops.channels import group_norm as group_norm
    from .ops.channels import instance_norm as instance_norm
    from .ops.channels import local_response_norm as local_response_norm
    from .ops.convolution import conv1d as conv1d
    from .ops.convolution import conv2d as conv2d
    from .ops.convolution import conv3d as conv3d
    from .ops.counting import bincount as bincount
    from .ops.counting import histogram as histogram
    from .ops.einops import rearrange as rearrange
    from .ops.einops import reduce as reduce
    from .ops.elementwise import abs as abs  # noqa: A004
    from .ops.elementwise import acos as acos
    from .ops.elementwise import acosh as acosh
    from .ops.elementwise import add as add
    from .ops.elementwise import asin as asin
    from .ops.elementwise import asinh as asinh
    from .ops.elementwise import atan as atan
    from .ops.elementwise import atan2 as atan2
    from .ops.elementwise import atanh as atanh
    from .ops.elementwise import bitwise_and as bitwise_and
    from .ops.elementwise import bitwise_not as bitwise_not
    from .ops.elementwise import bitwise_or as bitwise_or
    from .ops.elementwise import bitwise_xor as bitwise_xor
    from .ops.elementwise import cast as cast
    from .ops.elementwise import cbrt as cbrt
    from .ops.elementwise import ceil as ceil
    from .ops.elementwise import cos as cos
    from .ops.elementwise import cosh as cosh
    from .ops.elementwise import divide as divide
    from .ops.elementwise import equal as equal
    from .ops.elementwise import erf as erf
    from .ops.elementwise import erfc as erfc
    from .ops.elementwise import exp as exp
    from .ops.elementwise import exp2 as exp2
    from .ops.elementwise import expm1 as expm1
    from .ops.elementwise import floor as floor
    from .ops.elementwise import floor_divide as floor_divide
    from .ops.elementwise import fmod as fmod
    from .ops.elementwise import full as full
    from .ops.elementwise import gelu as gelu
    from .ops.elementwise import greater as greater
    from .ops.elementwise import greater_equal as greater_equal
    from .ops.elementwise import left_shift as left_shift
    from .ops.elementwise import less as less
    from .ops.elementwise import less_equal as less_equal
    from .ops.elementwise import log as log
    from .ops.elementwise import log1p as log1p
    from .ops.elementwise import log2 as log2
    from .ops.elementwise import log10 as log10
    from .ops.elementwise import logical_and as logical_and
    from .ops.elementwise import logical_not as logical_not
    from .ops.elementwise import logical_or as logical_or
    from .ops.elementwise import maximum as maximum
    from .ops.elementwise import minimum as minimum
    from .ops.elementwise import multiply as multiply
    from .ops.elementwise import negative as negative
    from .ops.elementwise import not_equal as not_equal
    from .ops.elementwise import power as power
    from .ops.elementwise import relu as relu
    from .ops.elementwise import remainder as remainder
    from .ops.elementwise import right_shift as right_shift
    from .ops.elementwise import round as round  # noqa: A004
    from .ops.elementwise import rsqrt as rsqrt
    from .ops.elementwise import sigmoid as sigmoid
    from .ops.elementwise import sign as sign
    from .ops.elementwise import silu as silu
    from .ops.elementwise import sin as sin
    from .ops.elementwise import sinh as sinh
    from .ops.elementwise import sqrt as sqrt
    from .ops.elementwise import subtract as subtract
    from .ops.elementwise import tan as tan
    from .ops.elementwise import tanh as tanh
    from .ops.elementwise import trunc as trunc
    from .ops.elementwise import where as where
    from .ops.filling import arange as arange
    from .ops.filling import eye as eye
    from .ops.filling import full_like as full_like
    from .ops.filling import linspace as linspace
    from .ops.filling import ones as ones
    from .ops.filling import ones_like as ones_like
    from .ops.filling import zeros as zeros
    from .ops.filling import zeros_like as zeros_like
    from .ops.fourier import fft as fft
    from .ops.fourier import ifft as ifft
    from .ops.fourier import irfft as irfft
    from .ops.fourier import rfft as rfft
    from .ops.gathering import cross_entropy as cross_entropy
    from .ops.gathering import dynamic_slice as dynamic_slice
    from .ops.gathering import dynamic_update_slice as dynamic_update_slice
    from .ops.gathering import embedding as embedding
    from .ops.gathering import one_hot as one_hot
    from .ops.gathering import scatter_add as scatter_add
    from .ops.gathering import segment_sum as segment_sum
    from .ops.gathering import take as take
    from .ops.gathering import take_along_axis as take_along_axis
    from .ops.linear import einsum as einsum
    from .ops.linear import matmul as matmul
    from .ops.losses import binary_cross_entropy as binary_cross_entropy
    from .ops.losses import binary_cross_entropy_with_logits as binary_cross_entropy_with_logits
    from .ops.losses import cosine_embedding_loss as cosine_embedding_loss
    from .ops.losses import cosine_similarity as cosine_similarity
    from .ops.losses import gaussian_nll_loss as gaussian_nll_loss
    from .ops.losses import hinge_embedding_loss as hinge_embedding_loss
    from .ops.losses import huber_loss as huber_loss
    from .ops.losses import kl_div as kl_div
    from .ops.losses import l1_loss as l1_loss
    from .ops.losses import margin_ranking_loss as margin_ranking_loss
    from .ops.losses import mse_loss as mse_loss
    from .ops.losses import nll_loss as nll_loss
    from .ops.losses import pairwise_distance as pairwise_distance
    from .ops.losses import poisson_nll_loss as poisson_nll_loss
    from .ops.losses import smooth_l1_loss as smooth_l1_loss
    from .ops.losses import soft_margin_loss as soft_margin_loss
    from .ops.losses import triplet_margin_loss as triplet_margin_loss
    from .ops.normalization import layer_norm as layer_norm
    from .ops.normalization import log_softmax as log_softmax
    from .ops.normalization import normalize as normalize
    from .ops.normalization import rms_norm as rms_norm
    from .ops.normalization import softmax as softmax
    from .ops.normalization import softmin as softmin
    from .ops.numbers import clip as clip
    from .ops.numbers import deg2rad as deg2rad
    from .ops.numbers import frac as frac
    from .ops.numbers import heaviside as heaviside
    from .ops.numbers import hypot as hypot
    from .ops.numbers import isclose as isclose
    from .ops.numbers import isfinite as isfinite
    from .ops.numbers import isinf as isinf
    from .ops.numbers import isnan as isnan
    from .ops.numbers import lerp as lerp
    from .ops.numbers import logaddexp as logaddexp
    from .ops.numbers import logaddexp2 as logaddexp2
    from .ops.numbers import nan_to_num as nan_to_num
    from .ops.numbers import rad2deg as rad2deg
    from .ops.numbers import reciprocal as reciprocal
    from .ops.numbers import square as square
    from .ops.ordering import argsort as argsort
    from .ops.ordering import kthvalue as kthvalue
    from .ops.ordering import max_with_index as max_with_index
    from .ops.ordering import median as median
    from .ops.ordering import min_with_index as min_with_index
    from .ops.ordering import sort as sort
    from .ops.ordering import topk as topk
    from .ops.pooling import avg_pool1d as avg_pool1d
    from .ops.pooling import avg_pool2d as avg_pool2d
    from .ops.pooling import avg_pool3d as avg_pool3d
    from .ops.pooling import lp_pool1d as lp_pool1d
    from .ops.pooling import lp_pool2d as lp_pool2d
    from .ops.pooling import lp_pool3d as lp_pool3d
    from .ops.pooling import max_pool1d as max_pool1d
    from .ops.pooling import max_pool2d as max_pool2d
    from .ops.pooling import max_pool3d as max_pool3d
    from .ops.products import addmm as addmm
    from .ops.products import bilinear as bilinear
    from .ops.products import bmm as bmm
    from .ops.products import cross as cross
    from .ops.products import inner as inner
    from .ops.products import kron as kron
    from .ops.products import linear as linear
    from .ops.products import outer as outer
    from .ops.products import tensordot as tensordot
    from .ops.products import vdot as vdot
    from .ops.random import bernoulli as bernoulli
    from .ops.random import dropout as dropout
    from .ops.random import normal as normal
    from .ops.random import random_bits as random_bits
    from .ops.random import random_integers as random_integers
    from .ops.random import uniform as uniform
    from .ops.records import components as components
    from .ops.reduction import all as all  # noqa: A004
    from .ops.reduction import any as any  # noqa: A004
    from .ops.reduction import argmax as argmax
    from .ops.reduction import argmin as argmin
    from .ops.reduction import logsumexp as logsumexp
    from .ops.reduction import max as max  # noqa: A004
    from .ops.reduction import mean as mean
    from .ops.reduction import min as min  # noqa: A004
    from .ops.reduction import prod as prod
    from .ops.reduction import sum as sum  # noqa: A004
    from .ops.reduction import variance as variance
    from .ops.resizing import channel_shuffle as channel_shuffle
    from .ops.resizing import interpolate as interpolate
    from .ops.resizing import pixel_shuffle as pixel_shuffle
    from .ops.resizing import pixel_unshuffle as pixel_unshuffle
    from .ops.rotary import rotary as rotary
    from .ops.sampling import affine_grid as affine_grid
    from .ops.sampling import grid_sample as grid_sample
    from .ops.scan import cummax as cummax
    from .ops.scan import cummin as cummin
    from .ops.scan import cumprod as cumprod
    from .ops.scan import cumsum as cumsum
    from .ops.scan import logcumsumexp as logcumsumexp
    from .ops.scan import recurrence as recurrence
    from .ops.scan import scan as scan
    from .ops.statistics import aminmax as aminmax
    from .ops.statistics import average as average
    from .ops.statistics import count_nonzero as count_nonzero
    from .ops.statistics import nansum as nansum
    from .ops.statistics import norm as norm
    from .ops.statistics import ptp as ptp
    from .ops.statistics import std as std
    from .ops.statistics import std_mean as std_mean
    from .ops.statistics import var as var
    from .ops.statistics import var_mean as var_mean
    from .ops.transposed import conv_transpose1d as conv_transpose1d
    from .ops.transposed import conv_transpose2d as conv_transpose2d
    from .ops.transposed import conv_transpose3d as conv_transpose3d
    from .ops.views import broadcast_to as broadcast_to
    from .ops.views import concat as concat
    from .ops.views import expand_dims as expand_dims
    from .ops.views import flip as flip
    from .ops.views import pad as pad
    from .ops.views import reshape as reshape
    from .ops.views import reverse as reverse
    from .ops.views import squeeze as squeeze
    from .ops.views import stack as stack
    from .ops.views import transpose as transpose
    from .ops.windows import fold as fold
    from .ops.windows import unfold as unfold
    from .reading import constants_of as constants_of
    from .reading import parse as parse


_NAMES_OF = {
    "": "optim rewrites",
    "autodiff.gradient": "grad stop_gradient value_and_grad",
    "dsl.annotations": (
        "anyfloat anyint anytype bf16 bool_ f16 f32 f64 f8e4m3 f8e5m2 int16 int32 int64 int8 num uint16 uint32 uint8"
    ),
    "dsl.block": "block",
    "dsl.declare": "constant forbid input replicate shard update",
    "dsl.index": "Index indices",
    "dsl.table": "table",
    "dsl.op": "op",
    "dsl.program": "program",
    "dsl.repeat": "repeat",
    "dsl.roles": "param state",
    "dsl.tensor": "Tensor",
    "dsl.trace": "composite name",
    "errors": "CheckFailed Infeasible ProgramError ReadOutOfBounds TapestryError TimeLimit UsageError",
    "ops.activation": (
        "celu elu glu hardshrink hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish prelu relu6 selu "
        "softplus softshrink softsign tanhshrink threshold"
    ),
    "ops.adaptive": (
        "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d "
        "adaptive_max_pool3d"
    ),
    "ops.arranging": (
        "diag diag_embed diagonal flatten fliplr flipud hstack meshgrid moveaxis repeat_interleave roll rot90 "
        "split swapaxes tile trace tril triu unbind vstack"
    ),
    "ops.attention": "attention",
    "ops.channels": "batch_norm group_norm instance_norm local_response_norm",
    "ops.convolution": "conv1d conv2d conv3d",
    "ops.counting": "bincount histogram",
    "ops.einops": "rearrange reduce",
    "ops.elementwise": (
        "abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_not bitwise_or bitwise_xor cast cbrt "
        "ceil cos cosh divide equal erf erfc exp exp2 expm1 floor floor_divide fmod full gelu greater "
        "greater_equal left_shift less less_equal log log10 log1p log2 logical_and logical_not logical_or maximum "
        "minimum multiply negative not_equal power relu remainder right_shift round rsqrt sigmoid sign silu sin "
        "sinh sqrt subtract tan tanh trunc where"
    ),
    "ops.filling": "arange eye full_like linspace ones ones_like zeros zeros_like",
    "ops.fourier": "fft ifft irfft rfft",
    "ops.gathering": (
        "cross_entropy dynamic_slice dynamic_update_slice embedding one_hot scatter_add segment_sum take "
        "take_along_axis"
    ),
    "ops.linear": "einsum matmul",
    "ops.losses": (
        "binary_cross_entropy binary_cross_entropy_with_logits cosine_embedding_loss cosine_similarity "
        "gaussian_nll_loss hinge_embedding_loss huber_loss kl_div l1_loss margin_ranking_loss mse_loss nll_loss "
        "pairwise_distance poisson_nll_loss smooth_l1_loss soft_margin_loss triplet_margin_loss"
    ),
    "ops.normalization": "layer_norm log_softmax normalize rms_norm softmax softmin",
    "ops.numbers": (
        "clip deg2rad frac heaviside hypot isclose isfinite isinf isnan lerp logaddexp logaddexp2 nan_to_num "
        "rad2deg reciprocal square"
    ),
    "ops.ordering": "argsort kthvalue max_with_index median min_with_index sort topk",
    "ops.pooling": "avg_pool1d avg_pool2d avg_pool3d lp_pool1d lp_pool2d lp_pool3d max_pool1d max_pool2d max_pool3d",
    "ops.products": "addmm bilinear bmm cross inner kron linear outer tensordot vdot",
    "ops.random": "bernoulli dropout normal random_bits random_integers uniform",
    "ops.records": "components",
    "ops.reduction": "all any argmax argmin logsumexp max mean min prod sum variance",
    "ops.resizing": "channel_shuffle interpolate pixel_shuffle pixel_unshuffle",
    "ops.rotary": "rotary",
    "ops.sampling": "affine_grid grid_sample",
    "ops.scan": "cummax cummin cumprod cumsum logcumsumexp recurrence scan",
    "ops.statistics": "aminmax average count_nonzero nansum norm ptp std std_mean var var_mean",
    "ops.transposed": "conv_transpose1d conv_transpose2d conv_transpose3d",
    "ops.views": "broadcast_to concat expand_dims flip pad reshape reverse squeeze stack transpose",
    "ops.windows": "fold unfold",
    "reading": "constants_of parse",
}

if not TYPE_CHECKING:  # a type checker would take any name for a public one
    __all__ = [name for names in _NAMES_OF.values() for name in names.split()]
    __getattr__, __dir__ = lazy_names(__name__, _NAMES_OF)
