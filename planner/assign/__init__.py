"""One strategy per node at the least cost, within limited resources over time, with a certified bound."""

from .answer import Assignment, Conflict, DualCertificate, EngineProof
from .problem import FORBIDDEN, AssignmentProblem, InvalidProblem, ProblemBuilder
from .solve import solve

__all__ = [
    "FORBIDDEN",
    "Assignment",
    "AssignmentProblem",
    "Conflict",
    "DualCertificate",
    "EngineProof",
    "InvalidProblem",
    "ProblemBuilder",
    "solve",
]
