"""A question to the curator costs what its two noises cost: on the answer, and on the number of samples where it is counted.

Exact, through `of_tally` itself: the number of samples and the answer that it goes on with, less the noise that was drawn, are
what the noise was added to, and the samplers tell their scales.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.shape import properties
from headcount.mechanisms.shape.estimators import (
    CoverageQuestion,
    EntropyQuestion,
    Estimator,
    Question,
    SupportQuestion,
)
from headcount.mechanisms.shape.properties import CentralProperty, central_property
from headcount.mechanisms.shape.tallies import Tally, make_tally
from tests.privacy.draws import Draws, Noise, laplace_loss

KEY = bytes(range(32))
QUESTIONS = [CoverageQuestion(1000), EntropyQuestion(), SupportQuestion(1000)]
ITEMS = 3


class Asked:
    """What `of_tally` goes on with: the number of samples, and the answer on its grid; each with the noise that is in it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.draws = Draws(monkeypatch)
        self.samples, self.answers = [], []
        real_plan, real_value = CentralProperty.plan, Estimator.value

        def plan(asked: CentralProperty, samples: int):
            self.samples.append((samples, list(self.draws.noise)))
            self.draws.forget()
            return real_plan(asked, samples)

        def value(estimator: Estimator, units: int) -> float:
            self.answers.append((units, list(self.draws.noise)))
            return real_value(estimator, units)

        monkeypatch.setattr(CentralProperty, "plan", plan)
        monkeypatch.setattr(Estimator, "value", value)

    def of(self, asked: CentralProperty, tally: Tally) -> list[tuple[int, list[Noise]]]:
        for seen in (self.samples, self.answers):
            seen.clear()
        self.draws.forget()
        asked.of_tally(tally, KEY, "id", "A")
        return [self.samples[-1], self.answers[-1]]


def losses(asked: CentralProperty, one: Tally, other: Tally, seen: Asked) -> list[float]:
    """What two neighbours lose by the number of samples, and by the answer."""
    found = []
    for (value, noise), (their, their_noise) in zip(seen.of(asked, one), seen.of(asked, other), strict=True):
        before, after = (
            number - sum(int(each.drawn[0]) for each in drawn)
            for number, drawn in ((value, noise), (their, their_noise))
        )
        found.append(laplace_loss(before, after, noise))
    return found


def neighbours(relation: Relation) -> list[tuple[Tally, Tally]]:
    """A crowd, with one user of ITEMS items more: of her own, or of the rarest or the largest of the others. With replaced
    users any two of these, in which she may also have none."""
    crowd = np.repeat([1, 2, 5, 40, 900], [300, 200, 50, 10, 1])
    own, rare, large = (crowd.copy() for _ in range(3))
    rare[:ITEMS] += 1
    large[-ITEMS:] += 1
    worlds = [make_tally(each) for each in (crowd, np.append(own, [1] * ITEMS), rare, large)]
    if relation is Relation.ADD_REMOVE:
        return [(worlds[0], world) for world in worlds[1:]]
    return [(one, other) for place, one in enumerate(worlds) for other in worlds[:place]]


def worst(question: Question, relation: Relation, samples: int | None, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    asked = central_property(Budget(1), question, samples=samples, max_items=ITEMS, relation=relation)
    with monkeypatch.context() as context:
        seen = Asked(context)
        return [max(each) for each in zip(*(losses(asked, *pair, seen) for pair in neighbours(relation)), strict=True)]


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("question", QUESTIONS)
def test_an_answer_costs_epsilon_at_most(question, relation, monkeypatch):
    """Of a public number of samples, which no noise is in."""
    samples, answer = worst(question, relation, 4000, monkeypatch)
    assert samples == 0 and 0 < answer <= 1 + 1e-9


def test_the_answer_of_one_own_item_costs_all_of_epsilon(monkeypatch):
    """The number of distinct items moves by as much as the noise is made for: the audit is sharp."""
    _, answer = worst(CoverageQuestion(4000), Relation.ADD_REMOVE, 4000, monkeypatch)
    assert answer == pytest.approx(1)


@pytest.mark.parametrize("relation", list(Relation))
def test_counted_samples_and_the_answer_cost_epsilon_together(relation, monkeypatch):
    """A tenth for the number of samples, all of which a user who is replaced may take with her; and for the answer what is
    left, at whatever number was drawn: its largest step for each item of a user, over the scale that was drawn with."""
    asked = central_property(Budget(1), EntropyQuestion(), max_items=ITEMS, relation=relation)
    with monkeypatch.context() as context:
        seen = Asked(context)
        counted = max(losses(asked, *pair, seen)[0] for pair in neighbours(relation))
        (number, _), (_, (noise,)) = seen.of(asked, neighbours(relation)[0][0])
    estimator, _ = asked.plan(number)
    step = max(abs(estimator.on_grid(r + 1) - estimator.on_grid(r)) for r in range(3000))
    # Replaced users here have as many items as before, or none: half of what the noise is made for.
    assert counted == pytest.approx(0.1 / relation.users)
    assert 0.99 < 0.1 + relation.users * ITEMS * step / float(noise.scale) <= 1 + 1e-9


@pytest.mark.parametrize("part", ["samples", "answer"])
def test_half_the_noise_on_the_samples_or_on_the_answer_is_caught(part, monkeypatch):
    draw, counted = properties._draw, part == "samples"

    def half(tally: Tally, scale: Fraction, own: bytes) -> int:
        mine = scale < 100 if counted else scale > 100  # that of the answer is in units of a fine grid
        return draw(tally, scale / 2 if mine else scale, own)

    question, place = (EntropyQuestion(), 0) if counted else (CoverageQuestion(4000), 1)
    expected = 0.1 if counted else 1.0
    assert worst(question, Relation.ADD_REMOVE, None if counted else 4000, monkeypatch)[place] == pytest.approx(
        expected
    )
    monkeypatch.setattr(properties, "_draw", half)
    found = worst(question, Relation.ADD_REMOVE, None if counted else 4000, monkeypatch)[place]
    assert found == pytest.approx(2 * expected)


def test_samples_that_are_counted_without_noise_are_caught(monkeypatch):
    """The known bug: the number of all users' items, as it is."""
    draw = properties._draw

    def only_answers(tally: Tally, scale: Fraction, own: bytes) -> int:
        return 0 if scale < 100 else draw(tally, scale, own)

    monkeypatch.setattr(properties, "_draw", only_answers)
    assert worst(EntropyQuestion(), Relation.ADD_REMOVE, None, monkeypatch)[0] == math.inf
