"""One strategy per node at the least cost, within limited resources over time, with a certified bound."""

from .conflict import Conflict
from .problem import FORBIDDEN, AssignmentProblem, InvalidProblem, ProblemBuilder
from .solve import Assignment, solve

__all__ = ["FORBIDDEN", "Assignment", "AssignmentProblem", "Conflict", "InvalidProblem", "ProblemBuilder", "solve"]
