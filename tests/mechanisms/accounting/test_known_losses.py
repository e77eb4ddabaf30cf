"""What is known of losses once, for many questions: merged laws, cut ends, and more beside them, give what all together do."""

from __future__ import annotations

import math

import numpy as np
import pytest

from headcount.mechanisms.accounting import pld, pld_sums
from headcount.mechanisms.accounting.budget import zcdp_delta
from headcount.mechanisms.accounting.losses import Curve, Draw, Laplace, Losses
from headcount.mechanisms.accounting.pld_sums import losses_delta


def of_all_kinds(number: int) -> list[Losses]:
    """Losses of every kind, no two alike; some of them have two directions."""
    found = []
    for k in range(1, number + 1):
        e = 0.1 * (1 + k / number)
        one = Losses.of(Draw(e), Laplace(e / 3, 7), mu=e / 2)
        way = Losses.of(Draw(e / 2), rho=e**2 / 9, hiding=1e-9, order=9.0)
        curve = Curve((0.0, e / 2, e), (e / 4, e / 9, 1e-12), (e / 4, e / 10, 1e-12))
        found.append(
            [one, Losses.one_of(one, way), Losses.of(curve, hiding=1e-10), Losses.of(Laplace(e), rho=e**2 / 5)][k % 4]
        )
    return found


@pytest.mark.parametrize("number", [1, 4, 30])
def test_laws_that_are_merged_are_the_same_laws(number):
    losses = Losses.together([*of_all_kinds(number), *[Losses.of(Draw(0.03))] * 40])
    step = pld.lattice_step(losses)
    for turned in (False, True):
        every = pld.plds_of(losses, step, turned)
        for epsilon in (0.5, 1.0, 3.0):
            one, other = (pld_sums._Sum.of(each, epsilon, None).delta(epsilon) for each in (every, pld.merged(every)))
            assert other == pytest.approx(one, rel=1e-9)


def test_ends_that_are_cut_off_only_raise_delta():
    """By no more than they hold: here they are large, to be seen."""
    law = pld.plds_of(Losses(mu=0.5), 0.01, False)[0][0]
    cut = law.within(1e-3)
    assert len(cut.mass) < len(law.mass) and cut.mass.sum() + cut.infinite == pytest.approx(law.mass.sum(), abs=1e-12)
    for epsilon in (0.0, 0.5, 1.0, 2.0):
        whole, less = (pld_sums._Sum.of([(each, 3)], epsilon, None).delta(epsilon) for each in (law, cut))
        assert whole * (1 - 1e-9) <= less <= whole + 3 * 2e-3


@pytest.mark.parametrize("known", [1, 12])
def test_what_is_known_with_more_is_all_of_it_together(known):
    """On a lattice that is no coarser, and so at least as sharp."""
    given = of_all_kinds(known)
    kept = pld_sums.Together(Losses.together(given))
    for more in (
        Losses.of(Laplace(1.5)),
        Losses.together([of_all_kinds(3)[1]] * 50),
        Losses(mu=0.3),
        Losses(hiding=1e-6),
    ):
        for epsilon in (1.0, 4.0):
            found, direct = kept.delta(epsilon, more), losses_delta(Losses.together([*given, more]), epsilon)
            assert found <= direct * 1.01 + 1e-15 and found >= losses_delta(
                Losses.together([*given, more]), epsilon * 1.1
            )
    assert kept.delta(1.0) == losses_delta(Losses.together(given), 1.0)


@pytest.mark.parametrize(("rho", "order"), [(1e-6, math.inf), (0.01, 9.0), (3.0, math.inf), (3.0, 1.5)])
def test_divergences_of_zcdp_are_those_of_its_conversion(rho, order):
    epsilons = np.linspace(0.0, 30.0, 200)
    expected = [zcdp_delta(rho, epsilon, order) for epsilon in epsilons.tolist()]
    assert pld._zcdp_deltas(rho, epsilons, order) == pytest.approx(expected, rel=1e-10)
