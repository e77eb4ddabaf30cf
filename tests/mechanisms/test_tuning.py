"""The numbers that were tuned: they stand in one place, each is told and used, and another value keeps every promise.

A guarantee repeats the budget that was asked for. So what a mechanism with another value really costs is computed anew here: by
its parts, by the chances of a choice on neighbours, and by the terms of a proof.
"""

import ast
import math
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget, Zcdp
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.aggregate.metrics import Metric, parse_metric
from headcount.mechanisms.aggregate.release import aggregate
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.batches.shards import one_shard
from headcount.mechanisms.bound_choice.clip_choice import ClipCandidate, ClipChoice
from headcount.mechanisms.count_release.papers.plume import plume
from headcount.mechanisms.histogram.factory import histogram
from headcount.mechanisms.partitions import coins, curve_budget, selection_curve
from headcount.mechanisms.partitions.auto import auto_partitions
from headcount.mechanisms.people.ask import activity
from headcount.mechanisms.sampled.auto import sampled_histogram
from headcount.mechanisms.shape.distinct import distinct_items

TOP = Path(__file__).resolve().parents[2]
TEXT = (TOP / "mechanisms" / "tuning.py").read_text()
OTHERS = {path: path.read_text() for path in (TOP / "mechanisms").rglob("*.py") if path.name != "tuning.py"}
BUDGET = Budget(1, 1e-6)


def assigned(text):
    """Names that a module assigns to, each with its statement."""
    for statement in ast.parse(text).body:
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                yield from ((name.id, statement) for name in ast.walk(target) if isinstance(name, ast.Name))


NUMBERS = dict(assigned(TEXT))


def test_every_number_is_used():
    """Where it is needed, under its own name."""
    read = {name for text in OTHERS.values() for name in re.findall(r"\btuning\.([A-Z_]+)", text)}
    derived = {
        node.id for node in ast.walk(ast.parse(TEXT)) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    assert set(NUMBERS) - read - derived == set()
    assert read <= set(NUMBERS)


@pytest.mark.parametrize("number", NUMBERS)
def test_every_number_is_told(number):
    """By a comment above it, or above the numbers that it stands with."""
    before = TEXT.splitlines()[: NUMBERS[number].lineno - 1]
    block = before[max((place for place, line in enumerate(before) if not line), default=-1) + 1 :]
    told = " ".join(line.removeprefix("#: ") for line in block if line.startswith("#: "))
    assert len(told.split()) >= 8 and told.endswith("."), f"{number}: {told!r}"


def proofs(text):
    """How often a text says of something that no proof rests on it."""
    return len(
        re.findall(r"(?:no|none of this is) part of (?:any|the) proof", " ".join(re.sub("#", "", text).split()), re.I)
    )


def test_no_other_module_has_a_number_without_a_proof():
    assert proofs(TEXT) == 1
    assert {path.name for path, text in OTHERS.items() if proofs(text)} == set()
    assert proofs("# No part of any\n# proof: a number") == proofs('"""None of this is part of the proof."""') == 1


#: Numbers between a thousandth and one at the top of other modules, and why they are no shares of anything.
STAY = {
    ("accounting/thresholds.py", "TOTAL_SHARE"): "a proof needs the rest for the grid of the noise",
    ("accounting/pld.py", "_FINE"): "how finely an upper bound is computed",
    ("accounting/promise.py", "_ENOUGH"): "where a search ends",
    ("histogram/account.py", "_PURE_SHARE"): "slack for the lattice of the composition",
    ("partitions/coins.py", "_FINEST"): "how finely a law is checked",
    ("partitions/selection_curve.py", "_MADE"): "slack for interpolation",
    ("aggregate/answers.py", "_BOTH"): "95 %",
    ("aggregate/quantiles.py", "_SURE"): "95 %",
    ("calibration/intervals.py", "DEVIATIONS"): "95 %",
    ("calibration/differences.py", "BEYOND"): "95 %",
    ("calibration/intervals.py", "_BEYOND"): "95 %",
    ("sampled/estimates.py", "_MISSED"): "95 %",
    ("sampled/plan.py", "_FOUND"): "what w95 and w50 mean",
    ("shape/distinct.py", "MISSED"): "95 %",
    ("shape/hashed.py", "_LEAST_EMPTY"): "beyond, an inversion is refused",
    ("distribution/binomial_choice.py", "LARGEST_ALPHA"): "beyond, the paper's method says nothing",
}


def test_no_other_module_has_a_share():
    """Shares, prices and chances look alike: whoever adds one tells here why it was not tuned, or puts it where it belongs."""
    found = set()
    for path, text in OTHERS.items():
        if path.parent.name in ("randomness", "batches", "keys"):
            continue  # where there is nothing to share
        tree = ast.parse(text)
        for body in [tree.body, *(each.body for each in tree.body if isinstance(each, ast.ClassDef))]:
            for statement in body:
                if isinstance(statement, ast.Assign) and any(map(_share, ast.walk(statement.value))):
                    name = next(each.id for each in ast.walk(statement.targets[0]) if isinstance(each, ast.Name))
                    found.add((path.relative_to(TOP / "mechanisms").as_posix(), name))
    assert found == set(STAY)


def _share(node):
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "Fraction" and len(node.args) == 2:
        top, bottom = (eval(ast.unparse(each)) for each in node.args)  # of numbers alone
        return 1e-3 <= top / bottom < 1
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        ends = node.left, node.right
        return all(isinstance(end, ast.Constant) for end in ends) and 1e-3 <= ends[0].value / ends[1].value < 1
    return isinstance(node, ast.Constant) and isinstance(node.value, float) and 1e-3 <= node.value < 1


@pytest.mark.parametrize("text", ["0.3", "Fraction(1, 2)", "1 / 3", "(0.55, 2)"])
def test_a_share_is_seen(text):
    assert any(map(_share, ast.walk(ast.parse(text))))
    assert not any(map(_share, ast.walk(ast.parse("(2**10, 1e-9, 12, math.sqrt(2 / math.pi), 1 - 1e-9)"))))


def test_every_number_has_a_job_that_shows_it():
    """The benchmark leaves none out, and has none twice."""
    shown = []
    for node in ast.walk(ast.parse((TOP / "benchmarks" / "tuning.py").read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Job":
            shown += ast.literal_eval(node.args[-1]).split()
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "UNMEASURED":
            shown += ast.literal_eval(node.value).split()
    assert sorted(shown) == sorted(NUMBERS)


# Another value, the same promise.


@pytest.fixture(autouse=True)
def nothing_remembered():
    """Laws that were made with other numbers are made anew, here and in the tests that follow."""
    cached = (selection_curve.make_curve, coins.slope_ratio, curve_budget.worst_mean)
    for each in cached:
        each.cache_clear()
    yield
    for each in cached:
        each.cache_clear()


MECHANISMS = {
    "histogram": lambda: histogram(BUDGET, of="events"),
    "one stage": lambda: histogram(BUDGET, of="events", method="one-stage"),
    "domain": lambda: histogram(BUDGET, of="events", domain=["a", "b"]),
    "names": lambda: auto_partitions(BUDGET),
    "aggregate": lambda: aggregate(BUDGET, [Metric("users"), parse_metric("mean", "x:0:10")]),
    "zcdp": lambda: aggregate(Zcdp(0.1, 1e-6), [Metric("events")]),
    "plume": lambda: plume(BUDGET),
    "sampled": lambda: sampled_histogram(BUDGET),
    "distinct": lambda: distinct_items(BUDGET),
    "people": lambda: activity(BUDGET, [1, 2], by=True),
}
OTHER_VALUES = [
    ("histogram", "TOTALS_CHOICE_SHARE", 0.4),
    ("histogram", "NAMES_LIMIT_SHARE", Fraction(1, 5)),
    ("histogram", "SELECTION_DELTA", 0.8),
    ("histogram", "LAPLACE_THRESHOLD_DELTA", 0.9),
    ("histogram", "LEAST_PART_OF_SELECTION", 100.0),
    ("histogram", "ONE_EVENT_WORTH", Fraction(1, 3)),
    ("histogram", "NORMS_OF_TOTALS", (1, 7, 50)),
    ("histogram", "CAPS", (2, 5)),
    ("histogram", "FREE_ITEMS", 3),
    ("histogram", "ORDER_POWER", 1.2),
    ("domain", "PUBLIC_TOTALS_SHARE", 0.6),
    ("one stage", "CHOICE_SHARE_FOR_ERROR", Fraction(1, 2)),
    ("one stage", "GAUSSIAN_NOISE_DELTA", 0.5),
    ("one stage", "LEAST_COUNT_BY_NOISE", 5),
    ("one stage", "BOUNDS_OF_ONE_STAGE", (1, 4, 99)),
    ("names", "NAMES_CHOICE_SHARE", Fraction(1, 3)),
    ("names", "OWN_ITEMS_DELTA", 0.7),
    ("names", "ROUNDS_DELTA", 0.5),
    ("names", "ITEMS_OF_SELECTION_ALONE", (2, 40)),
    ("aggregate", "RATIO_NOISE_PRICE", 50),
    ("aggregate", "ITEMS_OF_AGGREGATE", (3, 9)),
    ("zcdp", "ZCDP_CHOICE_UNIT", 2.0),
    ("plume", "CHOICE_SHARE_FOR_PLUME", 0.7),
    ("plume", "NAMES_DELTA", 0.9),
    ("sampled", "MISSED_BY_SAMPLE", 0.3),
    ("people", "NAMES_SHARE_OF_PEOPLE", 0.6),
    ("distinct", "USERS_ABOVE_BOUND", 20),
    ("distinct", "ITEMS_OF_DISTINCT", (1, 10)),
]


@pytest.mark.seconds
@pytest.mark.parametrize(("name", "number", "value"), OTHER_VALUES)
def test_another_value_costs_no_more(name, number, value, monkeypatch):
    """What is stated is within the budget; and so are its parts, composed anew where there are several."""
    assert getattr(tuning, number) != value
    monkeypatch.setattr(tuning, number, value)
    made = MECHANISMS[name]()
    guarantee = made.guarantee()
    promised = Zcdp(0.1, 1e-6).to_budget(1e-6) if name == "zcdp" else BUDGET
    assert guarantee.epsilon <= promised.epsilon and guarantee.delta <= promised.delta
    account = getattr(getattr(made, "stages", None), "account", None)
    assert (account is not None) == (name in ("histogram", "domain", "aggregate", "zcdp"))
    if account is not None and account.zcdp is None:
        assert 0 < account.delta() <= promised.delta
    if name == "one stage":
        choice, release = made.auto.choice.budget, made.auto.choice.release_budget
        assert choice.epsilon + release.epsilon <= 1 + 1e-12 and release.delta <= promised.delta


def shard_of(users):
    """Users by how many items each has, all different ones."""
    rows = [(f"u{user}", f"i{user}.{item}") for user, items in enumerate(users) for item in range(items)]
    user, item = (pa.array(column) for column in zip(*rows, strict=True))
    return one_shard([contribution_batch(user, item)])


@pytest.mark.parametrize("price", [Fraction(1, 50), Fraction(1, 2), Fraction(30)])
@pytest.mark.parametrize("worth", [1, 8, 60])
@pytest.mark.parametrize("penalty", [0.5, 2.5, 9.0])
@pytest.mark.parametrize("items", [1, 9, 400])
def test_any_price_hides_one_user(price, worth, penalty, items, monkeypatch):
    """The chances of both draws of `ClipChoice`, with and without a user of so many items, differ by e^epsilon at most."""
    monkeypatch.setattr(tuning, "MOST_WORTH", worth)
    monkeypatch.setattr(tuning, "LARGE_NORM_PENALTY", penalty)
    monkeypatch.setattr(ClipChoice, "misplaced", price)
    candidates = tuple(ClipCandidate(r, c, "gaussian", Fraction(r)) for r in (1, 4, 16, 64) for c in (1, 3))
    parts = Budget(0.5), Budget(0.25)
    choice = ClipChoice(*parts, BUDGET, Relation.ADD_REMOVE, candidates, (1, 5, 30, 200))
    public = np.array(choice.items_table(max(items, 5)))  # no user has more than are counted
    before, after = ((public + choice.user_table(shard_of(users))).tolist() for users in ([2, 5], [2, 5, items]))
    for draw, part in ((choice.counts_exponents, parts[0]), (choice.totals_exponents, parts[1])):
        apart = [float(one - other) for one, other in zip(draw(before), draw(after), strict=True)]
        assert np.ptp(apart) <= part.epsilon * (1 + 1e-9)  # a draw of bounded range


@pytest.mark.parametrize("rounds", [0.4, 23 / 20, 2.0])
@pytest.mark.parametrize("own", [0.05, 1 / 3, 0.45])
def test_any_share_of_own_items_keeps_the_terms_of_the_proof(own, rounds, monkeypatch):
    """The worst mean of F over the losses of the choices, times A, is delta; and one coin keeps A F(g) at every loss."""
    monkeypatch.setattr(tuning, "OWN_ITEMS_DELTA", own)
    monkeypatch.setattr(tuning, "ROUNDS_DELTA", rounds)
    made = curve_budget.CurveBudget(BUDGET, Relation.ADD_REMOVE, (0.015, 0.05))
    order, beside = made.order, made.order * (0.015**2 + 0.05**2) / 8

    def allowed(loss):
        g = math.exp((order - 1) * (loss - beside))
        return made.share * max(1.0, g, rounds * (own + (1 - own) * g))

    def mean(choices, losses):
        """Over all losses of two ends, whose mean of e^-L is 1."""
        if not choices:
            return allowed(sum(losses))
        c, *rest = choices
        found = []
        for t in np.linspace(0.0, c, 15):
            chance = 1.0 if t == 0 else math.expm1(c - t) / (math.exp(c - t) - math.exp(-t))
            found.append(chance * mean(rest, [*losses, t]) + (1 - chance) * mean(rest, [*losses, t - c]))
        return max(found)

    assert 0.9 * BUDGET.delta < mean([0.015, 0.05], []) <= BUDGET.delta
    cost, shown = made.cost(in_rounds=True)
    assert shown <= own * rounds * made.share and cost > 0
    for loss in np.linspace(-0.065, 0.065, 60):
        left = BUDGET.epsilon - loss
        assert min(float(delta) for epsilon, delta in made.one_item if epsilon <= left + 1e-12) <= allowed(loss)
