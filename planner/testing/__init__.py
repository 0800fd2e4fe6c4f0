"""The part of `tapestry.testing` that plans and runs: machines, plans, and what an operation is held to."""

from .operations import check_operation
from .strategies import machines, plans

__all__ = ["check_operation", "machines", "plans"]
