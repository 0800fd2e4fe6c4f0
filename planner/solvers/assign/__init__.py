"""One strategy per node at the least cost, within limited resources over time, with a certified bound."""

from .answer import (
    Assignment,
    Conflict,
    DualCertificate,
    EliminationCertificate,
    EngineClaim,
    NarrowedCertificate,
    ShareCertificate,
    SplitCertificate,
)
from .outlook import Outlook, least_cost, outlook
from .problem import FORBIDDEN, AssignmentProblem, InvalidProblem, ProblemBuilder
from .solve import solve
from .supply import Supply, SupplyUse

__all__ = [
    "FORBIDDEN",
    "Assignment",
    "AssignmentProblem",
    "Conflict",
    "DualCertificate",
    "EliminationCertificate",
    "EngineClaim",
    "InvalidProblem",
    "NarrowedCertificate",
    "Outlook",
    "ProblemBuilder",
    "ShareCertificate",
    "SplitCertificate",
    "Supply",
    "SupplyUse",
    "least_cost",
    "outlook",
    "solve",
]
