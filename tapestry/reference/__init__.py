"""The oracle: evaluates any program, or any partitioned program, with NumPy, plainly.

It shares no code with workers, kernels or the projections of `tapestry.space`: it enumerates the points of every
operation as index arrays, gathers, computes and folds. Floats are computed in float64 whatever their dtype, from
operands as stored, and rounded once at the write; integers are computed in int64 and wrap at the write.
"""

from .evaluation import evaluate, evaluate_all

__all__ = ["evaluate", "evaluate_all"]
