"""What `--explain` says of typical data: measured on made-up logs, always the same, and within what it says it takes."""

import time

import numpy as np
import pytest

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.bound_choice.by_name.standalone import standalone_choice
from headcount.mechanisms.count_release.papers.plume import plume
from headcount.mechanisms.histogram.factory import histogram
from headcount.mechanisms.histogram.total import total
from headcount.mechanisms.partitions.auto import partitions
from headcount.mechanisms.sampled.auto import sampled_histogram
from headcount.pipelines.sources.synthetic import drawn
from headcount.pipelines.studies import typical
from headcount.pipelines.studies.typical import Outcome, description, outcomes, users_needed

BUDGET = Budget(1.0, 1e-8)
MADE = {
    "estimates": lambda: (histogram(BUDGET), "events"),
    "users": lambda: (histogram(BUDGET, of="users"), "users"),
    "one stage": lambda: (histogram(BUDGET, method="one-stage"), "events"),
    "domain": lambda: (histogram(BUDGET, domain=["a", "b", "c"]), "events"),
    "names": lambda: (partitions(BUDGET), "names"),
    "plume": lambda: (plume(BUDGET), "users"),
    "sampled": lambda: (sampled_histogram(BUDGET), "users"),
    "total": lambda: (total(BUDGET), "events"),
    "bound": lambda: (standalone_choice(Budget(0.1), BUDGET), "events"),
}
SAYS = {  # besides what is chosen: users needed, noise, median error, what is left out
    "estimates": (True, True, True, True),
    "users": (True, True, True, True),
    "one stage": (True, True, True, True),
    "domain": (False, True, True, True),
    "names": (True, False, False, False),
    "plume": (True, True, True, True),
    "sampled": (True, False, False, True),
    "total": (False, True, False, True),
    "bound": (False, False, False, False),
}


@pytest.fixture(scope="module", params=MADE)
def found(request):
    return request.param, outcomes(*MADE[request.param]())


@pytest.mark.slow("jobs")
def test_every_choice_says_what_can_be_said_of_it(found):
    name, each = found
    for one in each:
        assert one.chosen
        said = (one.needed, one.noise, one.median, one.left_out)
        assert tuple(value is not None for value in said) == SAYS[name]
        assert one.noise is None or one.noise > 0
        assert one.left_out is None or 0 <= one.left_out <= 1


@pytest.mark.slow("jobs")
def test_what_is_said_is_far_from_both_ends(found):
    """An item needs 22 users at a bound of 1 and 300,000 at one of 10,000; what is typical lies within a factor of ten."""
    name, each = found
    needed = [one.needed for one in each if one.needed is not None]
    if SAYS[name][0]:
        assert 20 <= min(needed) and max(needed) <= 1000 and max(needed) <= 10 * min(needed)


def test_words_are_the_same_each_time_and_name_their_assumptions():
    made, question = MADE["names"]()
    said = description(made, question)
    assert said == description(partitions(BUDGET, item_type=int), question), "whatever items are"
    text = "\n".join(said)
    assert "typical data, which yours need not be" in text and "three made-up logs" in text
    assert "10,000 and 100,000 users" in text and "headcount forecast" in text
    assert max(map(len, said)) < 220


def test_the_logs_are_as_they_are_described():
    for law, users, events, items in typical._LOGS:
        user, item = drawn(law, events, users, items, 1)
        assert len(user) == len(item) == events and user.max() < users and item.max() < items
        active = np.sort(np.bincount(user, minlength=users))[::-1]
        share = active[: users // 100].sum() / events
        assert 0.4 < share < 0.6 if law == "tail" else share < 0.05
        assert f"{users:,}" in typical._ASSUMED and f"{items:,}" in typical._ASSUMED


def test_no_time_is_lost():
    """A second or so on a quiet machine: twenty allow for a busy one."""
    before = time.process_time()
    description(*MADE["estimates"]())
    assert time.process_time() - before < 20


def test_nothing_shown_is_said():
    def said(*items):
        return "\n".join(typical._ranges([Outcome({"bound": 3}, number, 50.0, 7.0) for number in items]))

    assert "no item is shown in any of them" in said(0, 0, 0) and "users" in said(0, 0, 0)
    assert "no item is shown in 1 of the 3, and in the others:" in said(0, 4, 4) and "about 50 users" in said(0, 4, 4)
    assert "no item" not in said(1, 4, 4)


def test_ranges_in_words():
    found = [Outcome({"strategy": "sips", "max_items": 30}, 5, 432.0, 7.77, 0.104, 0.5, "the users of items shown")]
    found += [
        Outcome({"strategy": "laplace", "max_items": 1000}, 5, 1234.0, 0.5, 0.104, 0.25, "the users of items shown")
    ]
    assert typical._ranges(found) == [
        "- chosen: strategy sips or laplace, max items 30 to 1,000",
        "- an item of about 430 to 1,200 users is shown with a chance of 50 %",
        "- noise: a standard deviation of about 0.5 to 7.8",
        "- half of the counts are within 10 % of the true ones",
        "- the bound leaves out 25 % to 50 % of the users of items shown",
    ]


def test_a_large_domain_is_not_tried():
    made = histogram(BUDGET, domain=range(60_000), item_type=int)
    assert len(description(made, "events")) == 1 and "headcount forecast" in description(made, "events")[0]


def test_users_needed_tells_shown_items_from_hidden_ones():
    users = np.array([1, 2, 3, 4, 10, 20, 30])
    assert users_needed(users, users >= 4) == 4
    assert users_needed(users, np.array([0, 0, 1, 0, 1, 1, 1], bool)) in (3, 10)  # one is wrong either way
    assert users_needed(users, users >= 0) is None and users_needed(users, users > 99) is None
