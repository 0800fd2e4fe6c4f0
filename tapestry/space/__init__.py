"""Index spaces: integer sets, boxes, grids, regions; accesses and partitions; isl for proofs.

Every public name is loaded from its module at first use, so that isl is loaded by those who prove something with it.
"""

from .intset import IntSet, parse_intset
from .region import Box, Grid, Region, parse_region

__all__ = ["Box", "Grid", "IntSet", "Region", "parse_intset", "parse_region"]
