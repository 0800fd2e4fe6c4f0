"""Index spaces: integer sets, boxes, grids, regions; accesses and partitions; isl for proofs.

The sets that everything uses are here at once; the other names load their module at first use (PEP 562), and isl is loaded
by the first question that needs it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from .intset import IntSet, parse_intset
from .region import Box, Grid, Region, parse_region

# The lazy names, once for the type checker and once for run time; a test holds the two equal.
if TYPE_CHECKING:
    from .access import Access as Access
    from .counting import Bound as Bound
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
    "counting": "Bound Count Exact count",
    "image": "Image",
    "indexset": "IndexSet",
    "partition": "CutBy Partition",
    "projection": "count_points operand_images read_image write_image",
    "proofs": "PartitionError prove_regions prove_relation",
}
_MODULE_OF = {name: module for module, names in _NAMES_OF.items() for name in names.split()}

__all__ = ["Box", "Grid", "IntSet", "Region", "parse_intset", "parse_region", *sorted(_MODULE_OF)]


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
