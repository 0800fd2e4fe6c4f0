"""Rewrites: rules that turn a program into another that computes the same, one module a family.

    found = tp.rewrites.apply(program, "dead_values", "common_subexpressions")
    found.program, found.steps, found.origins

`RULES` has every rule by name. `rule` makes one (see `tapestry.rewrites.rule`), `tapestry.testing.check_rule`
proves it.
"""

from . import cleaning as cleaning
from . import convolutions as convolutions
from . import fusion as fusion
from . import norms as norms
from . import products as products
from . import softmax as softmax
from . import splitting as splitting
from . import sums as sums
from . import unfusing as unfusing
from . import views as views
from .applying import Match, Rewritten, Step, apply, matches
from .rule import RULES, Change, Rule, rule
from .search import improve

__all__ = ["RULES", "Change", "Match", "Rewritten", "Rule", "Step", "apply", "improve", "matches", "rule"]
