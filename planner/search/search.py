"""The best plan by simulation: the solver's answers under a few views of overlap, then single decisions changed where
that helps.

The model adds up what a machine overlaps; how much is hidden only the simulator knows. So the solver is asked with
transfers of values counted fully, by half and not at all, and where memory is nearly full also for a little less of
it; every answer is lowered and simulated, and the shortest is improved by changing one decision at a time, the most
promising by the model first. The number of trials is fixed by the size of the program; the clock only ends it all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import cached_property

from ...errors import Infeasible, TimeLimit
from ..clock import Clock, now
from ..sharding.assignment import OutOfTime, Translation
from ..sharding.model import PICO, TIE, Costs, Model, build_model, evaluate
from ..sharding.nodes import all_nodes
from ..sharding.shortage import least_held, shortage
from ..sharding.solving import Solution, least_memory, solve
from ..strategy.calls import calls_of
from .blocks import Blocks
from .candidates import Trials, best_candidate, decide, fitting, needed, placed_within, shorter_candidate
from .copies import with_copies
from .effort import EXPOSED, FEW, WORTH
from .found import Found
from .hiding import hiding
from .near import changed, cheapest, elsewhere
from .otherwise import otherwise
from .pieces import PieceSearch, promising
from .question import Question
from .rows import as_one_row, beside
from .shifted import shifted
from .unsolved import shortest, unsolved
from .views import other_views
from .waiting import waiting_less

# Lowered operations in all trials of the refinement together: what a few seconds afford.
EFFORT = 2500
# Trials of decisions that are moved together, and lowered operations in all of them.
TOGETHER, BESIDE = 40, 400
# The share of the time after which, while there is no plan, no solver is asked: the rest is for lowering one.
FIRST_UNTIL = 0.8
# The share of the time after which a plan that needs no solver comes first, and the share of the rest that it may take.
SHORT, EARLY = 0.15, 0.5
# Hundredths of CP-SAT's deterministic seconds for an answer: good choices come early. The one that is kept gets so
# many for every second of the time limit, to be bettered or proved.
QUICK, PROVING = 20, 5
# Of programs of few operations: answers that are improved beside the shortest, and lowered operations in the trials of
# each of them.
STARTS, LATER = 3, 150
# A choice is tried in another order, too, if it takes no more of the shortest.
ABOUT = 1.1
# An answer is improved beside the shortest if hiding all that it waits for would take that much off.
HOPE = 0.95
# A choice proved to be this near to the best is not improved further by the solver. In another view than the
# objective's own answers are told apart by simulation.
ENOUGH, ENOUGH_ELSEWHERE = 0.005, 0.02


def searched(question: Question, *, turning: bool = False, kept: bool = False) -> Search:
    """The problem of a question, ready to be solved. ``turning``: operations may be computed in turns. ``kept``: what
    is gathered of resident tensors stays for the whole run.
    """
    question.say("strategies in turns" if turning else "strategies")
    prices = question.pricing if turning else None
    nodes = all_nodes(question.program, question.table, question.objective, question.pins, question.clock, prices)
    question.clock.demand()
    model = build_model(
        question.program, nodes, question.repetitions, question.pricing, question.objective, question.rooms, kept=kept,
        calls=calls_of(question.program, question.machine),
    )  # fmt: skip
    question.say("solving")
    return Search(question, model)


class OutOfReach(Infeasible):
    """The model has nothing that fits: by the solver, or by adding up what each tensor takes at least. What would do is
    still to be found out.
    """

    def __init__(self, search: Search, least: int) -> None:
        super().__init__("nothing fits")
        self.search, self.least = search, least


class Search:
    """One planning problem being searched."""

    def __init__(self, question: Question, model: Model) -> None:
        self.question, self.model = question, model
        self.budget = question.capacity  # bytes that the solver was last told of
        self.seen: list[Found] = []  # answers in other views of overlap that fit
        self.quickest_s: float | None = None  # what the quickest answer of the solver took

    @cached_property
    def translation(self) -> Translation:
        """The model for the solver. Raises OutOfTime."""
        return Translation(self.model, self.question.clock)

    @cached_property
    def costs(self) -> Costs:
        """What choices cost by the model."""
        return self.translation.costs if self.written else Costs(self.model)

    @cached_property
    def least_held(self) -> int:
        """Bytes that what is there before the run takes at least."""
        return least_held(self.model)

    @property
    def written(self) -> bool:
        """Whether the model has been written down for the solver."""
        return "translation" in vars(self)

    def allow(self, clock: Clock) -> None:
        """Take what time is left on another clock from now on."""
        self.question = replace(self.question, clock=clock)

    def improved(self, best: Found) -> Found:
        """What other views of overlap and changes of single decisions make of an answer."""
        if self.question.objective == "time" and best.makespan_s > 0 and not self.question.clock.up:
            self.question.say("refining")
            asked = best.solution.status != "fallback"  # where the model was not written down, nothing can be asked
            refined = self.refined(with_copies(self, other_views(self, best)) if asked else best)
            moved, best = waiting_less(self, self.moved_together(refined)), self.in_pieces(refined)
            if moved is not refined:  # what is shorter at once may be longer in pieces
                best = min(best, self.in_pieces(moved), key=lambda found: found.makespan_s)
            # What moves more may hide more of it: an answer that works less may be shorter once it is improved, too.
            few = self.question.toil <= FEW
            self.seen += hiding(self, best) if few else []
            for other in sorted(self.seen, key=lambda found: found.least_s + found.makespan_s)[: STARTS if few else 1]:
                if promising(other, best) and not self.question.clock.up:
                    full = few and other.least_s < HOPE * best.makespan_s
                    start = self.refined(other, LATER // self.question.toil) if full else other
                    best = min(best, self.in_pieces(start), key=lambda found: found.makespan_s)
                    # What waits less may have less to hide.
                    if other.least_s < HOPE * start.least_s and promising(other, best):
                        best = min(best, self.in_pieces(other), key=lambda found: found.makespan_s)
            best = shifted(self, best)
        return best

    def in_pieces(self, found: Found) -> Found:
        """The answer with operations beside exposed transfers in pieces, where that is shorter."""
        return PieceSearch(self.question, self.model).run(found)

    def first(self) -> Found:
        """What the solver finds, or what can be had without it when the time is up. Raises Infeasible or TimeLimit."""
        return self._in_time(self.fitting)

    def least(self) -> Found:
        """The same, of least memory. Raises Infeasible where that is too much, or TimeLimit."""
        return self._in_time(self.leanest)

    def _in_time(self, answer: Callable[[], Found | None]) -> Found:
        """Where much of the time is gone already, what needs no solver comes first. Raises TimeLimit."""
        clock = self.question.clock
        known = clock.secured
        short = clock.spent(SHORT) and not known and self.least_held <= self.question.capacity
        choices = unsolved(self)
        early = shortest(self, choices, EARLY) if short else None
        clock.secured = clock.secured or early is not None
        try:
            found = answer()
        except OutOfTime:
            found = None
        found = found or early or (None if known else shortest(self, choices))
        if found is None:
            raise TimeLimit(
                f"no plan that fits was found within {clock.limit:g} s, nor that there is none",
                where="solver",
                hint="give a longer --time-limit, or pin part of the program",
            )
        clock.secured = True
        return found if early is None or found.makespan_s <= early.makespan_s else early

    def asked(
        self,
        budget: int,
        exposed: int = EXPOSED[0],
        *,
        start: Mapping[int, int] | None = None,
        without: Collection[tuple[int, int]] = (),
    ) -> Solution:
        """A good choice within a budget. Where none is found soon, it is looked for as long as the time allows.
        ``start``: a choice to begin with. ``without``: nodes with options that they may not take, which is not looked
        for longer.
        """
        began = now()
        quick = self._solved(budget, QUICK, exposed, start, without)
        self.quickest_s = now() - began if self.quickest_s is None else min(self.quickest_s, now() - began)
        known = quick.choice or quick.infeasible or exposed != EXPOSED[0] or without
        return quick if known else self._solved(budget, self._proving, exposed)

    def _solved(
        self,
        budget: int,
        work: int,
        exposed: int,
        start: Mapping[int, int] | None = None,
        without: Collection[tuple[int, int]] = (),
    ) -> Solution:
        q, gap = self.question, ENOUGH if exposed == EXPOSED[0] else ENOUGH_ELSEWHERE
        return solve(
            self.translation, budget, time_limit=max(0.05, self._asking), seed=q.seed, jobs=q.jobs, exposed=exposed,
            gap=gap, work_limit=work, prove=work != QUICK, start=start, without=without,
        )  # fmt: skip

    @property
    def late(self) -> bool:
        """Whether no further answer would come in time."""
        return self.question.clock.left <= (self.quickest_s or 0.0)

    @property
    def _asking(self) -> float:
        """Seconds for the solver."""
        clock = self.question.clock
        return clock.left if clock.secured else clock.left_of(FIRST_UNTIL)

    @property
    def _proving(self) -> int:
        return max(QUICK + 1, int(PROVING * self.question.clock.limit))

    def settled(self, found: Found) -> Found:
        """An answer that the solver found soon, bettered by it or proved to be near the best, as far as time allows."""
        solution = found.solution
        if solution.status == "fallback" or solution.gap <= ENOUGH or solution.exhausted or self.late:
            return found
        self.question.say("proving")
        solution = self._solved(self.budget, self._proving, EXPOSED[0], found.choice)
        if not solution.choice:
            return found
        mine = replace(found, solution=solution)
        if solution.objective >= (1 - ENOUGH) * found.solution.objective:
            return mine
        return self.shorter(mine, self.lowered(solution.choice, solution))

    def fitting(self) -> Found | None:
        """Solve, lower and place; while the packed arena is over capacity, ask for a plan that much smaller.

        None where the time ends first. Raises Infeasible, OutOfReach where that is said quickly.
        """
        q = self.question
        budget = q.capacity
        if self.least_held > budget:
            raise OutOfReach(self, self.least_held)
        row = as_one_row(self)
        for _ in range(6):
            if not q.clock.secured and q.clock.spent(FIRST_UNTIL):
                return None
            solution, self.budget = self.asked(budget, start=None if row is None else row.choice), budget
            if solution.infeasible and budget == q.capacity:
                raise OutOfReach(self, self.least_held)
            if solution.infeasible:
                break
            if not solution.choice:
                return row
            q.say("lowering")
            found = beside(self, row, solution)
            if found.candidate.peak <= q.capacity:
                return found
            if q.clock.up:
                return row
            if q.toil <= FEW and (other := otherwise(self, solution)) is not None:
                return other
            # Packing loses a little, and how much depends on the choice: ask for somewhat less than was too much.
            budget -= 2 * (found.candidate.peak - q.capacity) + q.capacity // 128
            if budget < self.least_held:
                break
        return row or self.leanest()

    def leanest(self) -> Found | None:
        """The choice of least memory if that fits once packed; None if none is found in time. Raises Infeasible."""
        c, model = self.question, self.model
        least = least_memory(self.translation, time_limit=max(0.05, self._asking), seed=c.seed, jobs=c.jobs)
        if least is None:
            return None
        choice = least.choice
        found = self.lowered(choice, Solution("feasible", choice, evaluate(model, choice)[0], 0))
        if found.candidate.peak <= c.capacity:
            return found
        raise shortage(model, choice, needed(c, found.candidate), least.least, c.capacity, c.tier)

    def lowered(self, choice: dict[int, int], solution: Solution) -> Found:
        decisions = decide(self.model.nodes, self.model, choice)
        return Found(best_candidate(self.question, decisions, self.ideal(choice)), choice, solution)

    def lowered_below(self, other: Found, choice: dict[int, int], solution: Solution) -> Found | None:
        """The same; None where it would be no shorter than another answer, which is mostly told without places."""
        decisions = decide(self.model.nodes, self.model, choice)
        candidate = shorter_candidate(self.question, decisions, self.ideal(choice), other.candidate)
        return None if candidate is None else Found(candidate, choice, solution)

    def ideal(self, choice: Mapping[int, int]) -> float:
        """Seconds of a choice by the model."""
        return evaluate(self.model, choice)[0] / (TIE * PICO) if self.question.objective == "time" else 0.0

    def shorter(self, best: Found, other: Found) -> Found:
        fits = other.candidate.peak <= self.question.capacity
        return other if fits and other.makespan_s < WORTH * best.makespan_s else best

    def refined(self, best: Found, most: int = 200) -> Found:
        """Change one decision at a time while the simulated makespan falls, in so many trials at most. Of homes of a
        source that cost the same one that fits is tried, or one that is no shorter.
        """
        trials = min(most, EFFORT // self.question.toil)
        schedule = best.candidate.schedule
        improved = True
        while improved and trials > 0:
            improved, tried = False, set[tuple[int, ...]]()
            for choice in self.neighbours(best.choice, trials):
                if self.question.clock.up:
                    return best
                trials -= 1
                home = elsewhere(self.costs, best.choice, choice)
                if home in tried:
                    continue
                trial = Trials(self.question, decide(self.model.nodes, self.model, choice)).of(schedule)
                shorter = trial.seconds < WORTH * best.makespan_s
                candidate = placed_within(self.question, trial) if shorter else None
                if home is not None and (candidate is not None or not shorter):
                    tried.add(home)
                if candidate is not None and candidate.timeline.makespan_s < WORTH * best.makespan_s:
                    best, improved = Found(candidate, choice, best.solution), True
                    break
        return best

    def moved_together(self, best: Found) -> Found:
        """Change one decision, and those around it with it, while the simulated makespan falls."""
        trials = min(TOGETHER, BESIDE // self.question.toil)
        improved = True
        while improved and trials > 0:
            improved = False
            readers, blocks = self.question.toil <= FEW, Blocks(self.model, self.least_costs, self.question.clock)
            for choice in blocks.around(best.choice, self.costs.of, trials, readers=readers):
                if self.question.clock.up:
                    return best
                trials -= 1
                found = self._best_order(choice, best)
                if found is not None and found.makespan_s < WORTH * best.makespan_s:
                    best, improved = self.refined(found), True
                    break
        return best

    def _best_order(self, choice: dict[int, int], best: Found) -> Found | None:
        """A choice under the schedule of the best. Where a small program takes about as long so, in list-scheduled
        order too: which of two choices that cost the same is shorter, the order may decide. None where it does not fit,
        or takes longer.
        """
        decisions, mine = decide(self.model.nodes, self.model, choice), best.candidate.schedule
        once = mine.listed or self.question.toil > FEW
        candidate = fitting(self.question, decisions, mine, (WORTH if once else ABOUT) * best.makespan_s)
        if candidate is None:
            return None
        found = Found(candidate, choice, best.solution)
        if once:
            return found
        other = fitting(self.question, decisions, replace(mine, listed=True), found.makespan_s)
        return found if other is None else min(found, replace(found, candidate=other), key=lambda f: f.makespan_s)

    def neighbours(self, choice: Mapping[int, int], count: int) -> list[dict[int, int]]:
        """The choices one decision away, so many at most, the cheapest by the model first."""
        if sum(len(self.model.nodes[node].labels) - 1 for node in choice) * len(self.model.nodes) > 300_000:
            return []
        return cheapest(changed(self.least_costs, choice, self.question.clock), self.costs.of, count)

    @property
    def least_costs(self) -> Costs:
        """What choices cost at least, as far as prices are known: all of it where they are asked for at once."""
        if not self.written or not self.translation.lazy:
            return self.costs
        return self.translation.least_costs
