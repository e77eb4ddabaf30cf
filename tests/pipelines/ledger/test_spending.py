"""What is left under a limit: what fits in does, and more does not."""

from headcount.mechanisms import Budget, private_histogram
from headcount.mechanisms.accounting.guarantee import Guarantee
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
        epsilon = spending.left(dataset, spent)
        assert spending.keeps(dataset, [*spent, pure(epsilon)]) and not spending.keeps(
            dataset, [*spent, pure(1.01 * epsilon)]
        )
        number = spending.more_like(dataset, spent, gaussian)
        assert spending.keeps(dataset, [*spent, *[gaussian] * number])
        assert not spending.keeps(dataset, [*spent, *[gaussian] * (number + 1)])
        assert not adaptive or epsilon < 8 - spending.total(spent, dataset).epsilon
