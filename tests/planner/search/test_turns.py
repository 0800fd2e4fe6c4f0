"""Operations in turns are found where memory asks for them: ring attention, products on grids, block by block."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import tapestry as tp
from tapestry import Tensor, bf16, f32
from tapestry.closeness import assert_close
from tapestry.errors import Infeasible, TapestryError, TimeLimit
from tapestry.inputs import random_inputs
from tapestry.planner import Plan, load_machine, plan
from tapestry.planner.format import Compute, Transfer
from tapestry.planner.search.question import Question
from tapestry.planner.search.search import Search, searched
from tapestry.program import Pin, Program
from tapestry.reference import evaluate

DESCRIBED = Path(__file__).parent / "described_h200x8.toml"
MIB, KIB = 1 << 20, 1 << 10


@tp.program
def attend(q: bf16[Tensor, "t h d"], k: bf16[Tensor, "t h d"], v: bf16[Tensor, "t h d"]) -> Tensor:
    return tp.attention(q, k, v)


@tp.program
def causal(q: bf16[Tensor, "t h d"], k: bf16[Tensor, "t h d"], v: bf16[Tensor, "t h d"]) -> Tensor:
    return tp.attention(q, k, v, causal=True)


@tp.program
def product(a: f32[Tensor, "m k"], b: f32[Tensor, "k n"]) -> Tensor:
    return a @ b


def planned(program: Program, mesh: tuple[int, ...], budget: int, machine: str | Path = DESCRIBED) -> Plan:
    made = plan(program, load_machine(machine), mesh=mesh, memory={"hbm": f"{budget}"}, time_limit=60)
    assert made.check().ok, str(made.check())
    assert made.document.peak_bytes["0"]["hbm"] <= budget
    return made


def turns(made: Plan) -> int:
    """Tasks that fold onto what others left."""
    return sum(task.prior is not None for task in made.document.tasks if isinstance(task, Compute))


def assert_it_runs_right(made: Plan) -> None:
    inputs = random_inputs(made.program, 3)
    found = made.run(inputs)
    assert found.bytes_moved == made.document.traffic.bytes_total
    assert_close(made.program, inputs, found.outputs, evaluate(made.program, inputs))


def test_a_million_tokens_of_one_head_go_round_a_ring() -> None:
    """Gathered keys and values take 512 MiB, so that the least without turns is 609; a rank's own q, state and two
    blocks of each take 225. The traffic is that of the gather, and goes under the work.
    """
    tokens, width, ranks = 1 << 20, 128, 8
    made = planned(attend.bind(t=tokens, h=1, d=width), (ranks,), 230 * MIB)
    assert turns(made) == ranks - 1
    assert made.document.traffic.bytes_total == 2 * (ranks - 1) * tokens * width * 2
    assert made.document.predicted.exposed_transfer_s < 0.01 * made.document.predicted.makespan_s
    roomy = plan(attend.bind(t=tokens, h=1, d=width), load_machine(DESCRIBED), mesh=(ranks,), time_limit=60)
    assert made.document.predicted.makespan_s <= roomy.document.predicted.makespan_s


def test_a_million_tokens_are_proved_under_a_causal_mask_too() -> None:
    """Gathered, and in turns, which are no longer where there is more memory."""
    program = causal.bind(t=1 << 20, h=1, d=128)
    ring = planned(program, (8,), 300 * MIB)
    roomy = planned(program, (8,), 4096 * MIB)
    assert turns(ring) > 0
    assert ring.document.predicted.exposed_transfer_s < 0.01 * ring.document.predicted.makespan_s
    assert roomy.document.predicted.makespan_s <= ring.document.predicted.makespan_s


@pytest.mark.parametrize("refusal", [TimeLimit, Infeasible])
def test_a_plan_in_hand_is_kept_where_none_is_found_in_turns(
    monkeypatch: pytest.MonkeyPatch, refusal: type[TapestryError]
) -> None:
    asked = []

    def refusing(question: Question, *, turning: bool = False) -> Search:
        asked.append(turning)
        if turning:
            raise refusal("nothing in turns")
        return searched(question)

    monkeypatch.setattr("tapestry.planner.search.turns.searched", refusing)
    planned(causal.bind(t=1 << 18, h=1, d=128), (8,), 4096 * MIB)
    assert True in asked


@pytest.mark.parametrize(("budget", "shares"), [(15 * KIB, 2), (20 * KIB, 3)], ids=["contiguous", "zigzag"])
def test_a_small_causal_ring_gives_the_values_of_the_reference(budget: int, shares: int) -> None:
    """Contiguous chunks receive half of what is gathered, zigzag pairs three quarters."""
    tokens, width, ranks = 256, 16, 4
    made = planned(causal.bind(t=tokens, h=1, d=width), (ranks,), budget)
    assert turns(made) == ranks - 1
    assert made.document.traffic.bytes_total == 2 * (ranks - 1) * tokens * width * 2 * shares // 4
    assert_it_runs_right(made)


N = 256
WHOLE = 4 * N * N  # bytes of a, of b, and of the result
ALL_CUT = Pin("op", "matmul", (("mesh0", "m"), ("mesh1", "n"), ("mesh2", "k")))


@pytest.mark.parametrize(
    ("mesh", "budget", "received", "pins"),
    [
        ((4,), 260 * KIB, 3 * WHOLE, ()),
        ((2, 4), 170 * KIB, 3 * WHOLE + 1 * WHOLE, ()),
        ((2, 2, 2), 200 * KIB, 3 * WHOLE, (ALL_CUT,)),
    ],
    ids=["ring", "rectangle", "with the reduction cut"],
)
def test_a_product_takes_its_operands_block_by_block(
    mesh: tuple[int, ...], budget: int, received: int, pins: tuple[Pin, ...]
) -> None:
    """A ring of 4 brings b to all; a grid of 2 x 4 brings a to 4 columns and b to 2 rows; one of 2 x 2 x 2 each of
    them to 2, and the halves of the result together.
    """
    made = planned(product.bind(m=N, k=N, n=N).with_pins(*pins), mesh, budget)
    assert turns(made) == max(mesh) - 1
    assert made.document.traffic.bytes_total == received
    assert_it_runs_right(made)


def test_a_result_is_not_brought_together_where_there_is_no_room_for_it() -> None:
    """On the measured machine the halves of the result come together soonest on one rank, which then has all of it
    beside a quarter that is partial.
    """
    program = product.bind(m=N, k=N, n=N).with_pins(ALL_CUT)
    made = planned(program, (2, 2, 2), 200 * KIB, "h200x8")
    assert turns(made) == 1
    assert_it_runs_right(made)
    roomy = planned(program, (2, 2, 2), 400 * KIB, "h200x8")
    assert roomy.document.peak_bytes["0"]["hbm"] >= WHOLE + WHOLE // 4
    assert roomy.document.predicted.makespan_s < made.document.predicted.makespan_s


def test_blocks_come_while_others_are_computed() -> None:
    """A transfer of the next block waits for no task that folds the one before it."""
    made = planned(attend.bind(t=1 << 20, h=1, d=128), (8,), 230 * MIB)
    tasks = made.document.tasks
    folding = [k for k, task in enumerate(tasks) if isinstance(task, Compute) and task.prior is not None]
    moves = [task for task in tasks[: folding[-1]] if isinstance(task, Transfer)]
    assert len(moves) == 2 * 7
    assert all(task.source != "k" or not task.waits for task in moves)


@pytest.mark.parametrize("overlap", [True, False])
def test_with_memory_to_spare_turns_are_for_transfers_that_can_be_hidden(overlap: bool) -> None:
    machine = load_machine("h200x8")
    machine = replace(machine, device=replace(machine.device, overlap=overlap))
    made = plan(attend.bind(t=1 << 20, h=1, d=128), machine, mesh=(8,), time_limit=60)
    assert (turns(made) > 0) == overlap


def test_what_is_short_of_memory_even_in_turns_says_so() -> None:
    program = attend.bind(t=1 << 16, h=1, d=128)
    with pytest.raises(tp.errors.Infeasible) as raised:
        plan(program, load_machine(DESCRIBED), mesh=(8,), memory={"hbm": "4MiB"}, time_limit=60)
    assert "what attention.state takes in turns " in str(raised.value.sides["largest"])
    assert ">" not in str(raised.value)
