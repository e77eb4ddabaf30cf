"""How often a guess about one user can be right: the limit holds, and is reached."""

from __future__ import annotations

import math

import numpy as np
import pytest

from headcount.pipelines.pages.promise import guess_text, right_guesses, sentence


def best_guess(first, second):
    """The chance to tell two laws apart, each as likely as the other, by the better guess for every outcome."""
    return np.maximum(first, second).sum() / 2


def hardest(epsilon, delta):
    """Two laws that are (epsilon, delta)-close and as far apart as that lets them be."""
    kept, more = 1 - delta, math.exp(epsilon)
    return (
        np.array([delta, kept * more / (1 + more), kept / (1 + more), 0]),
        np.array([0, kept / (1 + more), kept * more / (1 + more), delta]),
    )


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("delta", [0.0, 1e-6, 0.2, 1.0])
def test_the_limit_is_reached_and_never_passed(epsilon, delta):
    limit = right_guesses(epsilon, delta)
    assert best_guess(*hardest(epsilon, delta)) == pytest.approx(limit, rel=1e-12)
    rng = np.random.default_rng(4)
    for _ in range(200):  # other laws that are as close: the hardest ones, seen through something that mixes outcomes
        through = rng.dirichlet(np.ones(6), size=4)
        assert best_guess(*(law @ through for law in hardest(epsilon, delta))) <= limit + 1e-12


def test_a_limit_without_delta_would_be_passed():
    """The mutation: e^epsilon / (1 + e^epsilon) is the limit of pure promises alone."""
    assert best_guess(*hardest(1.0, 0.2)) > math.e / (1 + math.e) + 0.01


def test_words_round_upwards():
    assert [guess_text(epsilon, 0) for epsilon in (0, 1, 2)] == ["50 %", "73.2 %", "88.1 %"]
    assert guess_text(0, 0.001) == "50.1 %" and guess_text(20, 0) == guess_text(800, 0) == "nearly 100 %"


@pytest.mark.parametrize(
    ("unit", "relation", "words"),
    [
        ("user", "add-remove", "whether one user is in the data"),
        ("user", "replace", "which of two things one user did"),
        ("user-day", "add-remove", "whether one user was there in one day"),
        ("user-week", "replace", "which of two things one user did in one week"),
        ("event", "add-remove", "whether one event is in the data"),
        ("event", "replace", "which of two things one event was"),
    ],
)
def test_the_sentence_says_who_is_promised_what(unit, relation, words):
    found = sentence({"epsilon": 1.0, "delta": 0.0, "unit": unit, "relation": relation})
    assert f"Whoever guesses from this release {words} is right in at most 73.2 % of cases" in found
