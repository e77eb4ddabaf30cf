"""Methods as command lines, and grids of their releases."""

import io

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.histogram.factory import histogram
from headcount.pipelines.studies.bar import Bar, line
from headcount.pipelines.studies.data import in_memory
from headcount.pipelines.studies.methods import QUESTIONS, Method, Promised, methods_of, named
from headcount.pipelines.studies.run import grid, run_once

PROMISED = Promised(2.0, 1e-6)


def log(users=3000, items=30, per_user=6):
    """Users of some rows, on items by a Zipf law."""
    random = np.random.default_rng(5)
    chance = 1 / np.arange(1, items + 1)
    user = np.repeat(np.arange(users), per_user)
    item = random.choice(items, len(user), p=chance / chance.sum())
    return contribution_batch(pa.array(user), pa.array([f"i{number}" for number in item]))


DATA = in_memory([log()])


@pytest.mark.slow("jobs")
def test_all_methods_answer_their_question(make_release):
    methods = methods_of(QUESTIONS, DATA.items_per_user(0.9))
    assert {method.question for method in methods} == {*QUESTIONS}
    assert len({method.name for method in methods}) == len(methods) == 15
    cells = grid(DATA, methods, [PROMISED], 1, release=make_release("study"))
    for cell in cells:
        assert cell.refused is None
        (found,) = cell.scores
        assert found.items >= 10 and found.spurious_rate == 0 and found.covered > 0.5, cell.method.name
        assert (found.median_error is None) == (cell.method.question == "names")
        assert found.median_error is None or found.median_error < 0.9


def test_a_method_is_what_its_command_would_release(make_release):
    release = make_release("study-1")
    method = Method("not-calibrated", "events", ("histogram", "--calibrate", "none"))
    rows, decision = run_once(method.mechanism(PROMISED, str), DATA, release, method.label)
    same = histogram(Budget(2.0, 1e-6), calibrate="none").run([log()], release, "Histogram")  # of the rows as they came
    assert rows.equals(same)
    assert decision.description().startswith("chosen: ")
    assert method.description() == "headcount histogram --calibrate none"


def test_the_same_key_repeats_a_study_and_a_fresh_one_does_not(make_release):
    methods = methods_of(["users"], 3)[:1]
    again = [grid(DATA, methods, [PROMISED], 2, release=make_release("study")) for _ in range(2)]
    assert again[0] == again[1]
    first, second = again[0][0].scores
    assert first != second  # releases of one cell draw their own noise
    assert grid(DATA, methods, [PROMISED], 1) != grid(DATA, methods, [PROMISED], 1)


def test_what_one_method_refuses_others_may_take():
    methods = methods_of(["names"], 3)
    said = []
    cells = grid(DATA, methods[:2], [Promised(1.0, 0.0), PROMISED], 2, step=said.append)
    refused, done = cells[:2]
    assert "--delta must be positive" in refused.refused and refused.mean is None
    assert done.refused is None and len(done.scores) == 2 and done.mean.items > 0
    assert said == [f"{method.name} at epsilon {epsilon}" for method in methods[:2] for epsilon in (1, 1, 2, 2)]


def test_processes_give_the_cells_of_one(make_release):
    methods, promises = methods_of(["names"], 3)[:2], [Promised(1.0, 0.0), PROMISED]
    said = []
    one = grid(DATA, methods, promises, 2, release=make_release("study"))
    assert grid(DATA, methods, promises, 2, release=make_release("study"), processes=2, step=said.append) == one
    assert len(said) == 8 and len(set(said)) == 4


def test_a_refusal_names_the_flag():
    with pytest.raises(ParameterError, match="^--epsilon"):
        Method("histogram", "events", ("histogram",)).mechanism(Promised(-1.0, 1e-8), str)


def test_methods_are_asked_for_by_name():
    methods = methods_of(QUESTIONS, 10)
    assert [method.name for method in named(methods, ["sips", "plume"])] == ["plume", "sips"]
    with pytest.raises(ParameterError, match="no method 'plum'; did you mean plume?"):
        named(methods, ["plum"])


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_the_bar_is_for_terminals_alone():
    for stream in (io.StringIO(), Terminal()):
        with Bar(stream, 2) as bar:
            bar.step("one")
            bar.step("two")
        assert ("0 of 2: one" in stream.getvalue()) == stream.isatty()
        assert stream.getvalue().endswith("\r\x1b[K" if stream.isatty() else "")


def test_the_bar_says_how_long_the_rest_takes():
    assert line(0, 70, 0.0, "x") == f"[{'.' * 24}] 0 of 70: x"
    assert line(35, 70, 61.0, "x") == f"[{'#' * 12}{'.' * 12}] 35 of 70, about 1:01 left: x"
