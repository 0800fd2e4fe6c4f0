"""Static packing: offsets for buffers with lifetimes, in one arena.

>>> from tapestry.planner.solvers.pack import Buffer, pack
>>> packing = pack([Buffer("a", 0, 2, 64), Buffer("b", 1, 3, 32), Buffer("c", 2, 4, 64)], capacity=96)
>>> packing.status, packing.peak, packing.lower_bound
('packed', 96, 96)
"""

from .bounds import max_live
from .problem import Buffer, PackError, Packing, Status, Witness
from .solve import minimize_peak, pack

__all__ = ["Buffer", "PackError", "Packing", "Status", "Witness", "max_live", "minimize_peak", "pack"]
