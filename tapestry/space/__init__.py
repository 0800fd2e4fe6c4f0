"""Index spaces: integer sets, boxes, grids, regions; accesses and partitions; isl for proofs.

The sets that everything uses are here at once; the other names load their module at first use, and isl is loaded by the
first question that needs it.
"""

from typing import TYPE_CHECKING

from ..lazy import lazy_names
from .intset import IntSet as IntSet
from .intset import parse_intset as parse_intset
from .region import Box as Box
from .region import Grid as Grid
from .region import Region as Region
from .region import parse_region as parse_region

# The lazy names, once for the type checker and once for run time; a test holds the two equal.
if TYPE_CHECKING:
    from .access import Access as Access
    from .counting import Count as Count
    from .counting import Exact as Exact
    from .counting import count as count
    from .image import Image as Image
    from .indexset import IndexSet as IndexSet
    from .partition import CutBy as CutBy
    from .partition import Partition as Partition
    from .projection import count_points as count_points
    from .projection import operand_images as operand_images
    from .projection import read_image as read_image
    from .projection import write_image as write_image
    from .proofs import PartitionError as PartitionError
    from .proofs import prove_regions as prove_regions
    from .proofs import prove_relation as prove_relation

_NAMES_OF = {
    "access": "Access",
    "counting": "Count Exact count",
    "image": "Image",
    "indexset": "IndexSet",
    "partition": "CutBy Partition",
    "projection": "count_points operand_images read_image write_image",
    "proofs": "PartitionError prove_regions prove_relation",
}
_EAGER = ["Box", "Grid", "IntSet", "Region", "parse_intset", "parse_region"]

if not TYPE_CHECKING:  # a type checker would take any name for a public one
    __all__ = [*_EAGER, *(name for names in _NAMES_OF.values() for name in names.split())]
    __getattr__, __dir__ = lazy_names(__name__, _NAMES_OF)
