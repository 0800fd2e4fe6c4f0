"""The heuristic side: feasible labels from the duals, then large moves until the time is up.

Feasibility comes from prices: forest sweeps minimise the priced cost, and the multipliers near every violated
instant rise a little until nothing is violated. The raised multipliers then price the moves, because they say what
memory is worth where it is scarce.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.ndimage import maximum_filter1d

from ..problem import Ints
from .flat import Flat, Floats
from .incumbent import Incumbent
from .moves import Scratch, scratch_for, sweep_forest, try_moves, uniform
from .reduced import HALF, Loads
from .trws import Ascent, Duals, decode, excess, price, send_messages

_LARGE_STEPS = 20  # of a run of the ascent
_RUNS = 8  # of the ascent
_NEAR = 20  # places on either side of a violated one whose multipliers rise with it
_RAISE = 1.02
_RUSH, _FASTEST = 0.3, 0.5  # by how much more per factor e that the load is too high, and at most
_ROUNDS = 300
_DEAR = 1e6  # what a limit is worth in costs of everything while nothing but memory matters
_RISE, _FALL = 1.02, 0.02  # of prices while oscillating: by this factor, and by this share at most
_ROOMY = 0.05  # the share of a limit from which on there is room enough
_HOTTEST = 3.0  # the largest noise of a perturbed sweep, in shares of a group
_CHUNK = 500  # moves between two looks at the clock
_LARGEST = 256  # groups in one move


@dataclass(eq=False)
class Search:
    """Improves one incumbent; all randomness comes from `state`."""

    flat: Flat
    loads: Loads
    incumbent: Incumbent
    state: np.ndarray
    scratch: Scratch
    roots: Ints
    decoded: Ints  # the labels that the last duals led to

    @staticmethod
    def begin(flat: Flat, loads: Loads, incumbent: Incumbent, seed: int) -> Search:
        several = np.diff(flat.label_first) > 1
        state, none = np.array([seed], dtype=np.uint64), np.zeros(len(several), dtype=np.int64)
        return Search(flat, loads, incumbent, state, scratch_for(flat, loads), np.flatnonzero(several), none)

    def first(self) -> None:
        """The first answer: labels that hold as little as can be, whatever they cost; then cheaper and cheaper ones."""
        labels = np.zeros(len(self.flat.label_first) - 1, dtype=np.int64)
        worth = _DEAR * (1.0 + abs(self.incumbent.tally.parts(labels)[1]))
        multipliers = worth / np.maximum(self.loads.slack, 1.0)
        priced = price(self.flat, self.loads, multipliers)
        messages = np.zeros(self.flat.message_size)
        for forward in (True, False):
            send_messages(self.flat, priced, messages, forward, False)
        labels = decode(self.flat, priced, messages)
        self.settle(labels, multipliers, sweeps=1)
        over = excess(self.loads, labels)
        while self._taken(labels, over) and multipliers.any() and self.incumbent.left > 0.0:
            multipliers *= 0.5
            multipliers[multipliers < worth * 1e-30] = 0.0
            priced = price(self.flat, self.loads, multipliers)
            sweep_forest(self.flat, self.loads, self.scratch, priced, labels, over, 0.0, self.state)

    def from_duals(self, duals: Duals) -> Floats:
        """Decodes labels, drives them to feasibility and offers them; returns the multipliers this took."""
        self.decoded = decode(self.flat, price(self.flat, self.loads, duals.multipliers), duals.messages)
        return self.settle(self.decoded, duals.multipliers.copy())

    def settle(self, labels: Ints, multipliers: Floats, sweeps: int = 3) -> Floats:
        """Sweeps under rising multipliers until the labels keep every limit, or the rounds or the time run out."""
        over = excess(self.loads, labels)
        least = self._least_price(labels)
        for round_ in range(_ROUNDS):
            if self._taken(labels, over) or self.incumbent.left <= 0.0:
                return multipliers
            if round_ > 0:
                rise = _RAISE + 0.001 * round_ + _steepness(over, self.loads.slack)
                raise_near(multipliers, over, least * 1.05**round_, rise)
            priced = price(self.flat, self.loads, multipliers)
            for _ in range(sweeps):
                sweep_forest(self.flat, self.loads, self.scratch, priced, labels, over, 0.0, self.state)
        self._repair(labels, multipliers, over)
        return multipliers

    def _taken(self, labels: Ints, over: Ints) -> bool:
        """Whether the labels keep every limit and choose nothing forbidden; then they are offered."""
        return not (over > 0).any() and (self.incumbent.offer(labels) or self.incumbent.tally.cost(labels) < HALF)

    def _least_price(self, labels: Ints) -> float:
        """What a unit of memory is worth if all of the cost paid for all of the limits, and a little of that."""
        return 0.02 * abs(self.incumbent.tally.parts(labels)[1]) / max(1.0, float(self.loads.slack.sum()))

    def _repair(self, labels: Ints, multipliers: Floats, over: Ints) -> None:
        """Moves that only ever lower what is above the limits."""
        priced = price(self.flat, self.loads, multipliers)
        for _ in range(100):
            self._moves(labels, priced, over, self.heat())
            if self._taken(labels, over):
                return
            if self.incumbent.left <= 0.0:
                return

    def _moves(self, labels: Ints, priced: Floats, over: Ints, heat: float) -> float:
        return float(
            try_moves(
                self.flat,
                self.loads,
                self.scratch,
                priced,
                labels,
                over,
                self.roots,
                _CHUNK,
                _LARGEST,
                heat,
                0.0,
                self.state,
            )
        )

    def heat(self) -> float:
        """The noise of a move: a group's share of the bound or of the cost."""
        known = self.incumbent.bound if self.incumbent.bound else self.incumbent.cost
        return abs(float(known)) / max(1, len(self.roots)) + 1.0

    def improve(self, multipliers: Floats, chunks: int) -> None:
        """Moves from the best labels, until the time is up or `chunks` of them are done."""
        if self.incumbent.labels is None or not len(self.roots):
            return
        labels = self.incumbent.labels.copy()
        over = excess(self.loads, labels)
        priced = price(self.flat, self.loads, multipliers)
        for _ in range(chunks):
            if self.incumbent.left <= 0.0:
                return
            if self._moves(labels, priced, over, self.heat()) < 0.0:
                self.incumbent.offer(labels)

    def oscillate(self, labels: Ints, multipliers: Floats, rounds: int, shaken: float = 0.0) -> Floats:
        """Sweeps at the border of the feasible: prices rise near what is violated and fall where there is room.

        A share `shaken` of the rounds begins with a perturbed sweep. Changes `labels` and `multipliers`; returns the
        multipliers of the best labels found, or else those given.
        """
        over = excess(self.loads, labels)
        best = multipliers.copy()
        for _ in range(rounds):
            if self.incumbent.left <= 0.0:
                break
            priced = price(self.flat, self.loads, multipliers)
            if shaken > 0.0 and uniform(self.state) < shaken:
                heat = self.heat() * _HOTTEST * 10.0 ** (-2.0 * uniform(self.state))
                sweep_forest(self.flat, self.loads, self.scratch, priced, labels, over, heat, self.state)
            for _ in range(2):
                sweep_forest(self.flat, self.loads, self.scratch, priced, labels, over, 0.0, self.state)
            if not (over > 0).any() and self.incumbent.offer(labels):
                best = multipliers.copy()
            multipliers *= drift(over, self.loads.slack, _RISE, _FALL)
        return best


def drift(over: Ints, slack: Ints, rise: float, fall: float) -> Floats:
    """By what prices change: by the factor `rise` near what is violated, elsewhere down by the share `fall` at most, by
    how much room there is.
    """
    room = np.clip(-over / (_ROOMY * np.maximum(slack, 1.0)), 0.0, 1.0)
    violated = over > 0
    if not violated.any():
        return np.minimum(1.0 - fall * room, 1.0 - 0.3 * fall)
    near: Floats = maximum_filter1d(violated.astype(np.float64), 2 * _NEAR + 1, mode="nearest")
    return np.where(near > 0.0, rise, 1.0 - fall * room)


def raise_near(multipliers: Floats, over: Ints, least: float, factor: float | Floats) -> None:
    """Raises the multipliers near violated places by the largest factor there; the worst of each stretch by `least`."""
    violated = np.flatnonzero(over > 0)
    if not len(violated):
        return
    multipliers *= maximum_filter1d(np.where(over > 0, factor, 1.0), 2 * _NEAR + 1, mode="nearest")
    for stretch in np.split(violated, np.flatnonzero(np.diff(violated) > 1) + 1):
        multipliers[stretch[over[stretch].argmax()]] += least


def _steepness(over: Ints, slack: Ints) -> Floats:
    """How much faster prices rise where far too much is held."""
    ratio = 1.0 + np.maximum(over, 0) / np.maximum(slack, 1.0)
    steep: Floats = np.minimum(_RUSH * np.log(ratio), _FASTEST)
    return steep


def climb(ascent: Ascent, incumbent: Incumbent, steps: int, seconds: float = math.inf) -> None:
    """Dual ascent for so many steps or seconds, starting again when it settles.

    The first steps aim at the best cost, or well above the bound of earlier runs: they must be large. Later ones aim a
    little above the bound.
    """
    until = incumbent.left - seconds
    for _ in range(steps):
        if incumbent.left <= max(until, 0.0):
            return
        if ascent.settled:
            if ascent.runs >= _RUNS:
                return
            ascent.restart()
        ascent.step(_aim(ascent, float(incumbent.cost) if incumbent.labels is not None else math.inf))


def _aim(ascent: Ascent, best: float) -> float:
    """What the next step should reach."""
    if ascent.steps <= _LARGE_STEPS and (ascent.runs > 1 or best < math.inf):
        return min(best, ascent.best.bound + 0.2 * abs(ascent.best.bound) + 1.0) if ascent.runs > 1 else best
    known = ascent.local.bound if math.isfinite(ascent.local.bound) else 0.0
    return min(known + 0.05 * abs(known) + 1.0, best)
