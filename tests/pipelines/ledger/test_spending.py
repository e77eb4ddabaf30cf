"""What is left under a limit: what fits in does, and more does not."""

import time

from headcount.mechanisms import Budget, private_histogram
from headcount.mechanisms.accounting.guarantee import Guarantee
from headcount.mechanisms.accounting.losses import Curve, Draw, Laplace, Losses, OneOf
from headcount.mechanisms.accounting.relation import Relation
from headcount.pipelines.ledger import spending
from headcount.pipelines.ledger.records import make_dataset


def pure(epsilon):
    return Guarantee(epsilon, 0.0, Relation.ADD_REMOVE, ())


def test_what_is_left_fits_and_more_does_not():
    """For a plan, and for costs that are chosen on the way, where a pure release costs more than its epsilon."""
    gaussian = private_histogram(
        Budget(1, 1e-8), domain=["a"], method="one-stage", bound=1, noise="gaussian"
    ).guarantee()
    for adaptive in (False, True):
        dataset = make_dataset("d", "user", "add-remove", 8, 1e-6, None, adaptive)
        spent = [gaussian] * 20
        room = spending.Room(dataset, spent)
        epsilon = room.left()
        assert room.fits(pure(epsilon)) and not room.fits(pure(1.01 * epsilon))
        number = room.more_like(gaussian)
        assert room.fits(*[gaussian] * number) and not room.fits(*[gaussian] * (number + 1))
        spending.refuse_above(dataset, "", spent, pure(epsilon))  # by the same account
        assert not adaptive or epsilon < 8 - room.total.epsilon


def mixed(number):
    """Releases of all kinds, no two alike: what a job that chooses says of its losses, samples, noise, pure ones."""
    for k in range(number):
        e = 0.05 * (1 + k / number)
        kinds = [
            Losses.of(
                Draw(e / 8),
                OneOf((Losses.of(Draw(e), mu=e / 2, rho=e**2 / 20, order=9.0), Losses.of(Laplace(e, 64), hiding=1e-9))),
            ),
            Losses.of(Curve((0.0, e / 2, e), (e / 4, e / 9, 1e-12), (e / 4, e / 10, 1e-12)), hiding=1e-9),
            Losses(rho=e**2 / 20, hiding=1e-9),
            Losses.of(Laplace(e, 1024), Laplace(e / 3)),
            Losses.of(Draw(e / 2), mu=e / 3),
        ]
        yield Guarantee(e, 2e-9, Relation.ADD_REMOVE, (), losses=kinds[k % len(kinds)])


def test_a_hundred_releases_of_mixed_kinds_are_told_of_at_once():
    """It took more than a minute, and takes half a second; a machine that is busy has ten times that."""
    room = spending.Room(make_dataset("d", "user", "add-remove", 4, 1e-6, None), [*mixed(100)])
    began = time.process_time()
    assert room.total.releases == 100 and 0 < room.total.epsilon < room.total.sum_epsilon and room.description()
    assert time.process_time() - began < 5
