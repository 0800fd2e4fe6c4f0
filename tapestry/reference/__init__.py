"""The oracle: evaluates any program, or any partitioned program, with NumPy, plainly.

It shares no code with workers, kernels or the projections of `tapestry.space`: it enumerates the points of every
operation as index arrays, gathers, computes and folds. Each function computes in the type that the language states
(f32, f64, int64 or bool); sums of floats are added up in float64, whatever the accumulator, and rounded once.
"""

from .evaluation import evaluate, evaluate_all
from .rounding import Shaken

__all__ = ["Shaken", "evaluate", "evaluate_all"]
