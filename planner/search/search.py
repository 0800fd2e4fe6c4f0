"""The best plan by simulation: the solver's answers under a few views of overlap, then single decisions changed where
that helps.

The model adds up what a machine overlaps; how much is hidden only the simulator knows. So the solver is asked with
transfers of values counted fully, by half and not at all, and where memory is nearly full also for a little less of
it; every answer is lowered and simulated, and the shortest is improved by changing one decision at a time, the most
promising by the model first. The number of trials is fixed by the size of the program, never by the clock.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from ...errors import TimeLimit
from ..sharding.assignment import Solution, Translation, least_memory, solve
from ..sharding.model import PICO, TIE, Model, evaluate
from ..sharding.shortage import shortage
from .pipeline import Candidate, Context, best_candidate, decide, lower

# Transfers of values count fully, half, not at all (numerators over 2).
EXPOSED = (2, 1, 0)
# Lowered operations in all trials of the refinement together: what a few seconds afford.
EFFORT = 2500
WORTH = 0.999
# Programs of more operations are looked at in one view of overlap only.
MANY = 300
# Hundredths of CP-SAT's deterministic seconds for each answer in another view: good choices are enough there.
VIEW_WORK = 50
# A choice proved to be this near to the best is not improved further by the solver.
ENOUGH = 0.005


@dataclass(frozen=True, eq=False)
class Found:
    """A plan with the choice it came from. ``solution`` is the solver's answer to the model itself."""

    candidate: Candidate
    choice: dict[int, int]
    solution: Solution

    @property
    def makespan_s(self) -> float:
        return self.candidate.timeline.makespan_s


class Search:
    """One planning problem being searched."""

    def __init__(self, context: Context, model: Model, started: float) -> None:
        self.context, self.model, self.started = context, model, started
        self.translation = Translation(model)

    def run(self) -> Found:
        """Raises Infeasible or TimeLimit."""
        best = self.fitting()
        if self.context.objective == "time" and best.makespan_s > 0:
            self.context.say("refining")
            best = self.refined(self.other_views(best))
        return best

    def left(self) -> float:
        """Seconds of the time limit that remain, at least one."""
        return max(1.0, self.context.time_limit - (time.perf_counter() - self.started))

    def asked(self, budget: int, exposed: int = EXPOSED[0]) -> Solution:
        """The best choice within a budget, or one proved to be near enough to it."""
        self.model.capacity = budget
        c = self.context
        return solve(
            self.translation, time_limit=self.left(), seed=c.seed, jobs=c.jobs, exposed=exposed, gap=ENOUGH,
            work_limit=VIEW_WORK if exposed != EXPOSED[0] else None,
        )  # fmt: skip

    def fitting(self) -> Found:
        """Solve, lower and place; while the packed arena is over capacity, ask for a plan that much smaller."""
        c = self.context
        budget = c.capacity
        for _ in range(6):
            solution = self.asked(budget)
            if solution.status == "infeasible":
                break
            if solution.status == "unknown":
                raise TimeLimit(
                    f"no plan found within {c.time_limit:g} s",
                    where="solver",
                    hint="give a longer --time-limit, or pin part of the program",
                )
            c.say("lowering")
            found = self.lowered(solution.choice, solution)
            if found.candidate.peak <= c.capacity:
                return found
            # Packing loses a little, and how much depends on the choice: ask for somewhat less than was too much.
            budget -= 2 * (found.candidate.peak - c.capacity) + c.capacity // 128
        return self.leanest()

    def leanest(self) -> Found:
        """The choice of least memory if that fits once packed. Raises Infeasible with what it takes, or TimeLimit."""
        c, model = self.context, self.model
        model.capacity = c.capacity
        least = least_memory(self.translation, time_limit=self.left(), seed=c.seed, jobs=c.jobs)
        if least is None:
            raise TimeLimit(f"no plan was found within {c.time_limit:g} s, nor that there is none", where="solver")
        choice = least[1]
        found = self.lowered(choice, Solution("feasible", choice, evaluate(model, choice)[0], 0))
        if found.candidate.peak <= c.capacity:
            return found
        raise shortage(model, choice, found.candidate.peak, c.capacity, c.tier)

    def lowered(self, choice: dict[int, int], solution: Solution) -> Found:
        ideal = evaluate(self.model, choice)[0] / (TIE * PICO) if self.context.objective == "time" else 0.0
        return Found(
            best_candidate(self.context, decide(self.model.nodes, self.model, choice), ideal), choice, solution
        )

    def other_views(self, best: Found) -> Found:
        """The shortest of the answers when less of the transfers counts, and when memory is left for running ahead."""
        c, ideal = self.context, best.solution.objective / (TIE * PICO)
        small = len(c.program.operations) <= MANY
        asked = [(c.capacity, exposed) for exposed in EXPOSED[1:]] if small else []
        if best.makespan_s > 1.02 * ideal and best.candidate.peak > c.capacity * 9 // 10:
            asked += [(c.capacity * share // 20, EXPOSED[0]) for share in ((19, 18) if small else (18,))]
            asked += [(c.capacity * 18 // 20, EXPOSED[1])] if small else []
        seen = [best.choice]
        for budget, exposed in asked:
            other = self.asked(budget, exposed)
            if other.choice and other.choice not in seen:
                seen.append(other.choice)
                found = self.lowered(other.choice, best.solution)
                best = self.shorter(best, found)
        self.model.capacity = c.capacity
        return best

    def shorter(self, best: Found, other: Found) -> Found:
        fits = other.candidate.peak <= self.context.capacity
        return other if fits and other.makespan_s < WORTH * best.makespan_s else best

    def refined(self, best: Found) -> Found:
        """Change one decision at a time while the simulated makespan falls."""
        trials = min(200, EFFORT // max(1, len(self.context.program.operations)))
        schedule = best.candidate.schedule
        improved = True
        while improved and trials > 0:
            improved = False
            for choice in self.neighbours(best.choice)[:trials]:
                trials -= 1
                decisions = decide(self.model.nodes, self.model, choice)
                found = Found(lower(self.context, decisions, schedule), choice, best.solution)
                if self.shorter(best, found) is found:
                    best, improved = found, True
                    break
        return best

    def neighbours(self, choice: Mapping[int, int]) -> list[dict[int, int]]:
        """All choices one decision away, the cheapest by the model first."""
        changed = [
            {**choice, node: option}
            for node in sorted(choice)
            for option in range(len(self.model.nodes[node].labels))
            if option != choice[node]
        ]
        if len(changed) * len(self.model.nodes) > 300_000:
            return []
        return sorted(changed, key=lambda c: evaluate(self.model, c)[0])
