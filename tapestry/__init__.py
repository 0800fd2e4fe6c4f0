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
    """`tapestry.program` is a module and `tp.program` a decorator: importing the module does not hide the decorator."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name == "program" and isinstance(value, ModuleType)):
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
    from .dsl.annotations import f16 as f16
    from .dsl.annotations import f32 as f32
    from .dsl.annotations import f64 as f64
    from .dsl.annotations import int8 as int8
    from .dsl.annotations import int32 as int32
    from .dsl.annotations import int64 as int64
    from .dsl.annotations import num as num
    from .dsl.declare import constant as constant
    from .dsl.declare import input as input  # noqa: A004
    from .dsl.declare import replicate as replicate
    from .dsl.declare import shard as shard
    from .dsl.declare import update as update
    from .dsl.index import Index as Index
    from .dsl.index import indices as indices
    from .dsl.op import op as op
    from .dsl.program import program as program
    from .dsl.roles import param as param
    from .dsl.roles import state as state
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
    from .ops.attention import attention as attention
    from .ops.convolution import conv1d as conv1d
    from .ops.convolution import conv2d as conv2d
    from .ops.convolution import conv3d as conv3d
    from .ops.elementwise import abs as abs  # noqa: A004
    from .ops.elementwise import add as add
    from .ops.elementwise import cast as cast
    from .ops.elementwise import ceil as ceil
    from .ops.elementwise import cos as cos
    from .ops.elementwise import divide as divide
    from .ops.elementwise import equal as equal
    from .ops.elementwise import erf as erf
    from .ops.elementwise import exp as exp
    from .ops.elementwise import floor as floor
    from .ops.elementwise import floor_divide as floor_divide
    from .ops.elementwise import full as full
    from .ops.elementwise import gelu as gelu
    from .ops.elementwise import greater as greater
    from .ops.elementwise import greater_equal as greater_equal
    from .ops.elementwise import less as less
    from .ops.elementwise import less_equal as less_equal
    from .ops.elementwise import log as log
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
    from .ops.elementwise import rsqrt as rsqrt
    from .ops.elementwise import sigmoid as sigmoid
    from .ops.elementwise import sign as sign
    from .ops.elementwise import silu as silu
    from .ops.elementwise import sin as sin
    from .ops.elementwise import sqrt as sqrt
    from .ops.elementwise import subtract as subtract
    from .ops.elementwise import tanh as tanh
    from .ops.elementwise import where as where
    from .ops.linear import einsum as einsum
    from .ops.linear import matmul as matmul
    from .ops.normalization import layer_norm as layer_norm
    from .ops.normalization import rms_norm as rms_norm
    from .ops.normalization import softmax as softmax
    from .ops.pooling import avg_pool1d as avg_pool1d
    from .ops.pooling import avg_pool2d as avg_pool2d
    from .ops.pooling import avg_pool3d as avg_pool3d
    from .ops.pooling import max_pool1d as max_pool1d
    from .ops.pooling import max_pool2d as max_pool2d
    from .ops.pooling import max_pool3d as max_pool3d
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
    from .ops.rotary import rotary as rotary
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

_NAMES_OF = {
    "": "optim rewrites",
    "autodiff.gradient": "grad stop_gradient value_and_grad",
    "dsl.annotations": "anyfloat anyint anytype bf16 bool_ f16 f32 f64 int32 int64 int8 num",
    "dsl.declare": "constant input replicate shard update",
    "dsl.index": "Index indices",
    "dsl.op": "op",
    "dsl.program": "program",
    "dsl.roles": "param state",
    "dsl.tensor": "Tensor",
    "dsl.trace": "composite name",
    "errors": "CheckFailed Infeasible ProgramError ReadOutOfBounds TapestryError TimeLimit UsageError",
    "ops.attention": "attention",
    "ops.convolution": "conv1d conv2d conv3d",
    "ops.elementwise": (
        "abs add cast ceil cos divide equal erf exp floor floor_divide full gelu greater greater_equal "
        "less less_equal log logical_and logical_not logical_or maximum minimum multiply negative "
        "not_equal power relu remainder rsqrt sigmoid sign silu sin sqrt subtract tanh where"
    ),
    "ops.linear": "einsum matmul",
    "ops.normalization": "layer_norm rms_norm softmax",
    "ops.pooling": "avg_pool1d avg_pool2d avg_pool3d max_pool1d max_pool2d max_pool3d",
    "ops.reduction": "all any argmax argmin logsumexp max mean min prod sum variance",
    "ops.rotary": "rotary",
    "ops.views": "broadcast_to concat expand_dims flip pad reshape reverse squeeze stack transpose",
}

if not TYPE_CHECKING:  # a type checker would take any name for a public one
    __all__ = [name for names in _NAMES_OF.values() for name in names.split()]
    __getattr__, __dir__ = lazy_names(__name__, _NAMES_OF)
