"""Sequential tree-reweighted message passing (TRW-S) with multipliers on the memory limits: the dual bound.

For messages m and multipliers λ ≥ 0, with θ' = θ + Σ_places λ·load and the reparametrised costs

    θ̂_g = θ'_g + Σ_e m_(e→g),        θ̂_gh = θ_gh − m_(e→g) − m_(e→h),

    Σ_g min θ̂_g + Σ_gh min θ̂_gh − Σ_places λ·slack

is a lower bound for any m and λ whatsoever (Kolmogorov 2006, "Convergent tree-reweighted message passing for energy
minimization"). Messages are swept forwards and backwards in the order of the groups; the backward sweep yields the
bound. λ follows the excess of the labels that a sweep decodes, only at the worst place of each block of time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...compiled import compiled
from ..problem import Ints
from .flat import Flat, Floats
from .reduced import Loads

BLOCKS = 64
_SWEEPS = 3  # forward and backward sweeps between two moves of the multipliers
_LEAST_RATE = 5e-3
_RATES = (0.2, 0.15, 0.25, 0.1)  # of the first steps, run after run
_PATIENCE = 8  # moves without a better bound, before going back to the best with a smaller step


@dataclass(eq=False)
class Duals:
    """The best messages and multipliers so far and their bound."""

    messages: Floats
    multipliers: Floats
    bound: float


@compiled
def price(flat, loads, multipliers):  # type: ignore[no-untyped-def]
    """θ': the unary costs and what their loads cost under the multipliers."""
    total = flat.unary.copy()
    paid = np.zeros(len(multipliers) + 1)
    for t in range(len(multipliers)):
        paid[t + 1] = paid[t] + multipliers[t]
    for q in range(len(loads.group)):
        g = loads.group[q]
        rate = paid[loads.stop[q]] - paid[loads.start[q]]
        if rate > 0.0:
            base = flat.label_first[g]
            for k in range(flat.label_first[g + 1] - base):
                total[base + k] += rate * loads.values[loads.first[q] + k]
    return total


@compiled
def _belief(flat, unary, messages, g, out):  # type: ignore[no-untyped-def]
    """θ̂_g into `out`; returns the numbers of neighbours before and after g."""
    base = flat.label_first[g]
    size = flat.label_first[g + 1] - base
    for k in range(size):
        out[k] = unary[base + k]
    before = after = 0
    for i in range(flat.near_first[g], flat.near_first[g + 1]):
        e = flat.near_edge[i]
        inward = flat.to_low[e] if flat.low[e] == g else flat.to_high[e]
        if flat.low[e] == g:
            after += 1
        else:
            before += 1
        for k in range(size):
            out[k] += messages[inward + k]
    return before, after


@compiled
def _send(flat, messages, e, to_high, source):  # type: ignore[no-untyped-def]
    """The message of edge e: min over the sender's labels of source + matrix; normalised, its minimum returned."""
    g, h = flat.low[e], flat.high[e]
    rows = flat.label_first[g + 1] - flat.label_first[g]
    cols = flat.label_first[h + 1] - flat.label_first[h]
    at = flat.matrix_first[e]
    if to_high:
        out, size = flat.to_high[e], cols
        for j in range(cols):
            messages[out + j] = np.inf
        for i in range(rows):
            a = source[i]
            row = at + i * cols
            for j in range(cols):
                value = a + flat.matrix[row + j]
                messages[out + j] = min(messages[out + j], value)
    else:
        out, size = flat.to_low[e], rows
        for i in range(rows):
            row = at + i * cols
            best = np.inf
            for j in range(cols):
                best = min(best, source[j] + flat.matrix[row + j])
            messages[out + i] = best
    least = np.inf
    for k in range(size):
        least = min(least, messages[out + k])
    for k in range(size):
        messages[out + k] -= least
    return least


@compiled
def send_messages(flat, unary, messages, forward, keep):  # type: ignore[no-untyped-def]
    """One sweep; a backward one returns the bound, and with `keep` leaves the messages that reproduce it."""
    groups = len(flat.label_first) - 1
    widest = 1
    for g in range(groups):
        widest = max(widest, flat.label_first[g + 1] - flat.label_first[g])
    belief, source = np.empty(widest), np.empty(widest)
    bound = 0.0
    for step in range(groups):
        g = step if forward else groups - 1 - step
        size = flat.label_first[g + 1] - flat.label_first[g]
        before, after = _belief(flat, unary, messages, g, belief)
        share = 1.0 / max(before, after, 1)
        if not forward:
            least = np.inf
            for k in range(size):
                least = min(least, belief[k])
            bound += (1.0 - before * share) * least
        for i in range(flat.near_first[g], flat.near_first[g + 1]):
            e = flat.near_edge[i]
            to_high = flat.low[e] == g
            if to_high != forward:
                continue
            inward = flat.to_low[e] if to_high else flat.to_high[e]
            for k in range(size):
                source[k] = share * belief[k] - messages[inward + k]
            bound += _send(flat, messages, e, to_high, source)
            if keep:
                for k in range(size):
                    messages[inward + k] = -source[k]
    return bound


@compiled
def decode(flat, unary, messages):  # type: ignore[no-untyped-def]
    """Labels chosen one group after the other: exact costs towards what is chosen, messages from what is not."""
    groups = len(flat.label_first) - 1
    labels = np.zeros(groups, dtype=np.int64)
    for g in range(groups):
        base = flat.label_first[g]
        size = flat.label_first[g + 1] - base
        scores = unary[base : base + size].copy()
        for i in range(flat.near_first[g], flat.near_first[g + 1]):
            e = flat.near_edge[i]
            if flat.low[e] == g:
                for k in range(size):
                    scores[k] += messages[flat.to_low[e] + k]
            else:
                row = flat.matrix_first[e] + labels[flat.low[e]] * size
                for k in range(size):
                    scores[k] += flat.matrix[row + k]
        labels[g] = np.argmin(scores)
    return labels


@compiled
def excess(loads, labels):  # type: ignore[no-untyped-def]
    """Per place, how far the labels' load is above the limit."""
    over = np.zeros(len(loads.slack) + 1, dtype=np.int64)
    for q in range(len(loads.group)):
        held = loads.values[loads.first[q] + labels[loads.group[q]]]
        over[loads.start[q]] += held
        over[loads.stop[q]] -= held
    total = 0
    for t in range(len(loads.slack)):
        total += over[t]
        over[t] = total - loads.slack[t]
    return over[:-1]


@compiled
def _direction(over, multipliers):  # type: ignore[no-untyped-def]
    """Where λ moves: down wherever it is positive and there is room, up at the worst place of each block."""
    places = len(over)
    direction = np.zeros(places)
    for block in range(BLOCKS):
        begin, end = block * places // BLOCKS, (block + 1) * places // BLOCKS
        worst = -1
        for t in range(begin, end):
            if multipliers[t] > 0.0:
                direction[t] = over[t]
            if over[t] > 0 and (worst < 0 or over[t] > over[worst]):
                worst = t
        if worst >= 0:
            direction[worst] = over[worst]
    return direction


@dataclass(eq=False)
class Ascent:
    """Moves messages and multipliers upwards; `best` holds the highest bound, `labels` the last decoded labels.

    The multipliers follow the mean of this and the last direction, by a step that would reach `target` if the bound
    rose as steeply as the direction promises; when the bound stalls, the best point of this run is taken up again with
    a smaller step. Where a run ends depends on its first steps, so once settled another may `restart` from nothing.
    """

    flat: Flat
    loads: Loads
    messages: Floats
    multipliers: Floats
    direction: Floats
    best: Duals
    local: Duals  # the best of this run
    labels: Ints
    rate: float = _RATES[0]
    stalled: int = 0
    steps: int = 0  # of this run
    runs: int = 1

    @staticmethod
    def begin(flat: Flat, loads: Loads) -> Ascent:
        messages, multipliers = np.zeros(flat.message_size), np.zeros(len(loads.slack))
        labels = np.zeros(len(flat.label_first) - 1, dtype=np.int64)
        nothing = Duals(messages.copy(), multipliers.copy(), -math.inf)
        return Ascent(flat, loads, messages, multipliers, np.zeros(len(loads.slack)), nothing, nothing, labels)

    @property
    def settled(self) -> bool:
        return self.rate < _LEAST_RATE

    def restart(self) -> None:
        """Begins another run with another first step size; `best` stays."""
        self.messages, self.multipliers = np.zeros_like(self.messages), np.zeros_like(self.multipliers)
        self.direction = np.zeros_like(self.direction)
        self.local = Duals(self.messages.copy(), self.multipliers.copy(), -math.inf)
        self.rate, self.stalled, self.steps = _RATES[self.runs % len(_RATES)], 0, 0
        self.runs += 1

    def step(self, target: float) -> float:
        """A few sweeps, then a move of the multipliers; returns the bound."""
        unary = price(self.flat, self.loads, self.multipliers)
        bound = -math.inf
        for _ in range(_SWEEPS):
            send_messages(self.flat, unary, self.messages, True, False)
            bound = send_messages(self.flat, unary, self.messages, False, False)
        bound -= float(self.multipliers @ self.loads.slack)
        self.steps += 1
        self.labels = decode(self.flat, unary, self.messages)
        self._remember(bound)
        current = _direction(excess(self.loads, self.labels), self.multipliers)
        self.direction = current if not self.direction.any() else 0.5 * (self.direction + current)
        square = float(current @ current)
        if square > 0.0:
            size = self.rate * max(target - bound, 1e-4 * abs(bound) + 1.0) / square
            self.multipliers = np.maximum(self.multipliers + size * self.direction, 0.0)
        return bound

    def _remember(self, bound: float) -> None:
        self.stalled = 0 if bound > self.local.bound + 1e-5 * abs(bound) else self.stalled + 1
        if bound > self.local.bound:
            self.local = Duals(self.messages.copy(), self.multipliers.copy(), bound)
            self.best = self.local if bound > self.best.bound else self.best
        if self.stalled >= _PATIENCE:
            self.rate, self.stalled = self.rate * 0.7, 0
            self.messages, self.multipliers = self.local.messages.copy(), self.local.multipliers.copy()
            self.direction = np.zeros_like(self.direction)


def certified(flat: Flat, loads: Loads, duals: Duals) -> Duals:
    """The same duals after one more backward sweep, with messages in both directions that reproduce its bound."""
    messages = duals.messages.copy()
    bound = send_messages(flat, price(flat, loads, duals.multipliers), messages, False, True)
    return Duals(messages, duals.multipliers, bound - float(duals.multipliers @ loads.slack))
