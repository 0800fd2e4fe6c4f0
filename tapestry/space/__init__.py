"""Index spaces: integer sets, boxes, grids, regions; accesses and partitions; isl for proofs."""

from .intset import IntSet, parse_intset
from .region import Box, Grid, Region, parse_region

__all__ = ["Box", "Grid", "IntSet", "Region", "parse_intset", "parse_region"]
