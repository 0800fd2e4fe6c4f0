"""The plan: one versioned document; everything after the planner reads only this.

Semantics (what `check` proves and the workers obey)
- Ranks 0..n-1 are the positions of ``mesh`` in row-major order; rank r runs on ``devices[r]`` of the machine.
- A layout gives each rank a region of one index space: the elements of a tensor a buffer holds, or the points of an
  operation.
- A buffer is one allocation at the same offset on every rank, or on every rank whose devices are described together
  (``others``). On rank r it stores, densely and row-major, the *storage
  grid* of its layout's region (the smallest grid of intervals around it: `Region.storage`). Only elements of the region
  itself are ever meaningful, and only once something wrote them: a buffer may be laid out for more than one task fills
  (a halo, a gather in place).
- A buffer with ``initial`` (inputs, params, states, consts) holds the regions of that layout before the run.
- A task stands for one task on each of its ranks (``ranks`` None: all). On a rank, the tasks of one lane run in list
  order; a task starts when its predecessor on the lane and every task in ``waits`` that also runs on this rank have
  finished. Nothing else orders tasks of a rank.
- compute: evaluates operation ``op`` at the points ``shards[rank]`` (within the operation's ``where``), reading
  ``reads[k]`` for operand tensor k of ``Operation.operands``, and writes the image of the points in ``write``. If the
  points leave out part of a reduction, what it writes is *partial*: the fold so far, a record of the operation's
  monoid.
  Where such a record is not an element of the tensor (the sum of f16 so far is an f32), ``write`` says which
  ``record`` it holds, then nothing in it is finished, and only a transfer with ``parts`` or a compute ``onto`` it reads
  it.
  ``over`` names the one of ``reads`` in whose place ``write`` lies (None: it shares memory with none of them). Then
  the points are taken in any order, and each reads all that it reads before it writes.
  ``onto`` names a buffer of partial results of the same operation (there only where it is used). Then each element
  that the points write is the fold, in this order, of two records: the one that ``onto`` holds of it, and the fold of
  the points by themselves. It stands for both shares of the reduction together, and is complete where they are all of
  it. ``onto`` may be ``write`` itself; elements that the points do not write stay as they are.
- transfer: after it, ``target`` holds ``need[rank]`` complete on every participating rank, taken from what the
  participants ``have[rank]`` in their ``source`` buffers; elements that a rank itself has are taken locally and cost no
  traffic. If the source is partial, the layout ``have`` has ``parts``: parts[rank] numbers the share of the reduction
  that the rank's elements stand for (equal numbers: the same share, computed redundantly), and the result is the fold
  with ``monoid``, in the order of the numbers, of one contribution of each number. ``source == target`` is allowed when
  the source is complete: then only need minus have is written. Both are in one tier. All participants meet: a transfer
  runs on a rank only together with the same transfer on the others.
  If ``need`` has ``parts`` too, ranks with the same number there fold what they have among themselves, each such group
  apart from the others, and what ``target`` holds then is partial still: the share of the reduction that the group's
  contributions make up together, which has the group's number.
- copy: ``target`` holds ``need[rank]`` from ``source`` on the same rank (another tier, or the same).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

FORMAT = "tapestry.plan/3"


class Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=False):
    """Base of all records of the document: immutable, unknown fields refused."""


Count = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]
"""A whole number that arithmetic in 64 bits holds, sums of two included; what is allowed of it the checker says."""


class LayoutText(Struct, frozen=True):
    """Per rank a region as text (`tapestry.space.parse_region`).

    ``parts`` numbers the contributions of a partial layout.
    """

    regions: tuple[str, ...]
    parts: tuple[Count, ...] | None = None


class Place(Struct, frozen=True):
    """Where a buffer lies: ``nbytes`` is the largest storage of any rank that it is there on, unaligned."""

    offset: Count
    nbytes: Count


class Buffer(Struct, frozen=True):
    """One allocation, at the same place on every rank. ``nbytes`` is the largest storage of any rank, unaligned.

    ``others``: where it lies on each of the machine's ``others``, in their order, where devices have memories of
    different sizes; then offset and ``nbytes`` are for ranks on none of them. Not in the document where the place is
    the same on all. ``initial`` names the layout of what it holds before the run; None: nothing. ``record``: it holds
    partial results, each a record of components of these dtypes (see `tapestry.records`); None: elements of the
    tensor's dtype.
    """

    name: str
    tensor: str
    layout: str
    tier: str
    offset: Count
    nbytes: Count
    initial: str | None = None
    record: tuple[str, ...] | None = None
    others: tuple[Place, ...] | msgspec.UnsetType = msgspec.UNSET

    @property
    def places(self) -> tuple[Place, ...]:
        """Where it lies, by what the ranks' devices are: those that no others describe, then each of these."""
        return (Place(self.offset, self.nbytes), *(self.others or ()))

    def place(self, kind: int) -> Place:
        """Where it lies on ranks whose devices the machine describes as its ``kind``-th others (0: as none of them)."""
        places = self.places
        return places[kind] if kind < len(places) else places[0]

    def there(self, kind: int) -> Buffer:
        """The same buffer if all ranks had their devices described so."""
        place = self.place(kind)
        return msgspec.structs.replace(self, offset=place.offset, nbytes=place.nbytes, others=msgspec.UNSET)

    def meets(self, other: Buffer) -> bool:
        """Whether the two have memory in common on devices of some kind."""
        if self.tier != other.tier:
            return False
        if not self.others and not other.others:
            return self.offset < other.offset + other.nbytes and other.offset < self.offset + self.nbytes
        pairs = ((self.place(k), other.place(k)) for k in range(max(len(self.places), len(other.places))))
        return any(a.offset < b.offset + b.nbytes and b.offset < a.offset + a.nbytes for a, b in pairs)


class Workspace(Struct, frozen=True):
    """Memory that nothing of the program lies in: what kernels and libraries put down while a task runs."""

    tier: str
    offset: Count
    nbytes: Count


class Compute(Struct, frozen=True, tag="compute", tag_field="do"):
    id: Count
    lane: str
    op: str
    shards: str
    reads: tuple[str, ...]
    write: str
    waits: tuple[Count, ...] = ()
    ranks: tuple[Count, ...] | None = None
    over: str | None = None
    onto: str | msgspec.UnsetType = msgspec.UNSET

    @property
    def prior(self) -> str | None:
        """The buffer of partial results that the points are folded onto, if there is one."""
        return None if isinstance(self.onto, msgspec.UnsetType) else self.onto


class Transfer(Struct, frozen=True, tag="transfer", tag_field="do"):
    id: Count
    lane: str
    tensor: str
    kind: str
    source: str
    target: str
    have: str
    need: str
    monoid: str | None = None
    waits: tuple[Count, ...] = ()
    ranks: tuple[Count, ...] | None = None


class Copy(Struct, frozen=True, tag="copy", tag_field="do"):
    id: Count
    lane: str
    tensor: str
    source: str
    target: str
    need: str
    waits: tuple[Count, ...] = ()
    ranks: tuple[Count, ...] | None = None


Task = Compute | Transfer | Copy


class Sharding(Struct, frozen=True):
    """How one operation is cut: dimension -> mesh axes, ranks that compute points of it, kind of cut.

    A kind other than ``block`` is that of some of the dimensions, the others are cut in blocks. Without a partition:
    ``replicated``, all of it on every rank, or ``explicit``, shards that no cut of dimensions gives. ``only``: mesh
    axes of which one coordinate alone computes anything; not in the document where there are none.
    """

    partition: dict[str, str]
    ranks: Count
    kind: str
    only: dict[str, Count] | msgspec.UnsetType = msgspec.UNSET


class LowerBound(Struct, frozen=True):
    """No plan of the program on the machine takes less than ``bound_s``; ``gap`` is (makespan - bound_s) / makespan.

    ``chain`` is the certificate: the weight of a chain of tasks in the sum that proves it, from 0 on and below 1.
    """

    bound_s: float
    gap: float
    chain: float


class KernelTime(Struct, frozen=True):
    """Seconds of a compute task on each rank by the model of its kernel, where that says more than the roofline."""

    task: Count
    seconds: tuple[float, ...]


class Rewrite(Struct, frozen=True):
    """One change to the program as it was written: the rule, the operation it was asked at, what came of which."""

    rule: str
    at: str
    made: tuple[str, ...]
    of: tuple[str, ...]


class Origin(Struct, frozen=True):
    """What the program was made from: a program of so many operations, with this digest, by these changes in order."""

    program: str
    operations: Count
    rewrites: tuple[Rewrite, ...]


class MeshTried(Struct, frozen=True):
    """A mesh, and the predicted seconds of the best plan found on it; None: none fits in memory or in the time."""

    mesh: tuple[Count, ...]
    seconds: float | None


class Claims(Struct, frozen=True):
    """What the planner says of its search, which nobody can compute again from the document.

    ``status`` and ``model_gap`` are about the model that the solver saw, ``objective_s`` and ``objective_bytes`` the
    value of that model at this plan. ``objective`` and ``seed`` are what was asked. ``kernels``: what tasks take that
    are timed by measurements which the document does not hold; `predicted` rests on them. ``origin``: what the
    embedded program was made from, if it is not the program as it was written (see `planner.origin`). A plan that was
    ``pinned`` (given) or ``measured`` (kept for its measured steps) is the answer of no model; those figures are 0.
    ``meshes``: what the search found on each mesh that it tried; not in the document where one was asked for.
    """

    status: str
    objective: str
    objective_s: float
    objective_bytes: Count
    model_gap: float
    seed: Count
    kernels: tuple[KernelTime, ...] = ()
    origin: Origin | None = None
    meshes: tuple[MeshTried, ...] | msgspec.UnsetType = msgspec.UNSET

    @property
    def tried(self) -> tuple[MeshTried, ...]:
        """The meshes that were tried, if several were."""
        return self.meshes or ()

    @property
    def searched(self) -> bool:
        """Whether a solver chose the plan in a model."""
        return self.status not in ("pinned", "measured")


class Predicted(Struct, frozen=True):
    makespan_s: float
    compute_s: float
    exposed_transfer_s: float


class Traffic(Struct, frozen=True):
    """``bytes_total`` is the sum over ranks of bytes received from other ranks in one run."""

    bytes_total: Count
    bytes_by_kind: dict[str, Count]
    bytes_by_link: dict[str, Count]


class Document(Struct, frozen=True):
    """The plan document.

    ``senders`` is the rule that says who sends what in its transfers: "by_host" that of `planner.format.senders`. Not
    in documents from before there was another than the first, that of `planner.format.messages`.

    ``weights``: per rank, in what proportion the parts of cuts of the kind ``proportional`` share; not in the document
    where devices are alike.

    ``workspaces``: by lane where its tasks may work, one after another, on every rank; lanes that are not there have
    none, and the field is not in the document where no lane has any.

    ``program`` and ``machine`` are the JSON forms of `tapestry.serialize` and `planner.machine`. `check`
    proves everything but ``claims``, or refuses the plan.
    """

    program: dict[str, Any]
    machine: dict[str, Any]
    mesh: tuple[Count, ...]
    mesh_axes: tuple[str, ...]
    devices: tuple[Count, ...]
    layouts: dict[str, LayoutText]
    buffers: tuple[Buffer, ...]
    tasks: tuple[Task, ...]
    outputs: dict[str, str]
    states: dict[str, str]
    shardings: dict[str, Sharding]
    predicted: Predicted
    traffic: Traffic
    peak_bytes: dict[str, dict[str, Count]]
    bound: LowerBound | None
    claims: Claims
    weights: tuple[Count, ...] | msgspec.UnsetType = msgspec.UNSET
    format: str = FORMAT
    senders: Literal["by_host"] | msgspec.UnsetType = msgspec.UNSET
    workspaces: dict[str, Workspace] | msgspec.UnsetType = msgspec.UNSET

    @property
    def rooms(self) -> dict[str, Workspace]:
        """The workspaces, by lane."""
        return self.workspaces or {}
