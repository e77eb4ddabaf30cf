"""Scores of releases whose numbers are worked out by hand."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.histogram.estimates import Estimated
from headcount.pipelines.studies.data import in_memory
from headcount.pipelines.studies.scores import MEANINGS, Score, mean, score


def contributions(*rows):
    """A batch of (user, item, count)."""
    return contribution_batch(*(pa.array(column) for column in zip(*rows, strict=True)))


# a: 10 events of 2 users; b: 6 of 3; c: 4 of 1.
DATA = in_memory(
    [
        contributions(("u", "a", 7), ("v", "a", 3), ("u", "b", 1)),
        contributions(("v", "b", 2), ("w", "b", 2), ("w", "b", 1), ("w", "c", 4)),
    ]
)


def rows(**columns):
    return pa.RecordBatch.from_pydict({name: pa.array(values) for name, values in columns.items()})


def test_the_truth_of_each_item():
    truth = dict(zip(DATA.items.to_pylist(), zip(DATA.events.tolist(), DATA.users.tolist(), strict=True), strict=True))
    assert truth == {"a": (10, 2), "b": (6, 3), "c": (4, 1)}
    assert sorted(DATA.pairs.tolist()) == [2, 2, 2]
    assert DATA.description() == "20 events, 3 users, 3 items"
    assert DATA.places(pa.array(["c", "zz"])).tolist() == [DATA.items.to_pylist().index("c"), -1]


def test_items_per_user_are_a_number_that_occurs():
    users = [("u", str(item), 1) for item in range(9)] + [(f"v{number}", "0", 1) for number in range(9)]
    data = in_memory([contributions(*users)])
    assert [data.items_per_user(share) for share in (0.5, 0.9, 1.0)] == [1, 1, 9]


def test_counts_of_events():
    found = score(rows(item=["a", "b"], count=[11.0, 3.0]), DATA, "events", large_from=1)
    assert found.items == 2
    # The relative errors are 1/10 and 3/6.
    assert (found.median_error, found.error_90) == pytest.approx((0.3, 0.46))
    assert (found.covered, found.missing) == pytest.approx((16 / 20, 4 / 20))
    assert found.missing_mass == pytest.approx(1 / 6)  # the one user of c, of six pairs
    assert found.drop_rate == pytest.approx(1 / 3)  # c is missing
    assert found.spurious_rate == 0
    assert found.total_error == pytest.approx(14 / 20 - 1)
    assert (found.l1, found.saved) == pytest.approx(((1 + 3 + 4) / 20, 12 / 20))


def test_counts_of_users_are_measured_by_users_and_cover_events():
    found = score(rows(item=["b"], bounded_count=[4.5]), DATA, "users", large_from=3)
    assert (found.median_error, found.error_90) == pytest.approx((0.5, 0.5))
    assert found.covered == pytest.approx(6 / 20)
    assert found.drop_rate == 0  # b alone has three users
    assert found.total_error == pytest.approx(4.5 / 6 - 1)
    assert found.l1 == pytest.approx((1.5 + 3) / 6)


def test_the_estimate_is_measured_and_not_the_bounded_count():
    found = score(rows(item=["a"], count=[10.0], bounded_count=[2.0]), DATA, "events")
    assert found.median_error == 0


def test_how_often_intervals_hold_what_the_column_means():
    """Of events at most 3 of one user on one item count: a has 6, b 6 and c 3. Without a cap they have 10, 6 and 4."""
    released = rows(item=["a", "b", "c"], count=[6.0, 5.0, 9.0], low=[5.0, 3.0, 8.0], high=[7.0, 8.0, 12.0])
    capped, uncapped = (Estimated(SimpleNamespace(kept=SimpleNamespace(max_per_item=cap)), 1, 0.1) for cap in (3, 0))
    assert score(released, DATA, "events", decision=capped).held == pytest.approx(2 / 3)
    assert score(released, DATA, "events", decision=uncapped).held == pytest.approx(1 / 3)
    assert score(released, DATA, "events").held is None
    capped_truth = dict(zip(DATA.items.to_pylist(), DATA.truth("events", 3).tolist(), strict=True))
    assert capped_truth == {"a": 6, "b": 6, "c": 3} and (DATA.truth("users", 3) == DATA.users).all()
    bounded = rows(item=["a"], bounded_count=[6.0], low=[5.0], high=[7.0])
    assert score(bounded, DATA, "events", decision=capped).held is None


def test_names_have_no_error_of_counts():
    found = score(rows(item=["a", "b", "c"]), DATA, "names", large_from=2)
    assert (found.median_error, found.error_90, found.total_error, found.l1, found.saved) == (None,) * 5
    assert (found.items, found.covered, found.missing, found.drop_rate, found.spurious_rate) == (3, 1, 0, 0, 0)
    assert found.missing_mass == 0


def test_an_item_that_nobody_has_is_seen():
    found = score(rows(item=["a", "nobody's"], count=[10.0, 5.0]), DATA, "events", large_from=1000)
    assert found.spurious_rate == 0.5
    assert found.l1 == pytest.approx((5 + 10) / 20)
    assert found.drop_rate is None  # no item is so large


def test_nothing_shown_is_worth_nothing():
    found = score(rows(item=pa.array([], pa.string()), count=pa.array([], pa.float64())), DATA, "events", 1)
    assert (found.items, found.covered, found.missing, found.drop_rate, found.l1) == (0, 0, 1, 1, 1)
    assert (found.median_error, found.error_90, found.saved, found.total_error) == (None, None, 0, -1)


def test_no_data_at_all():
    data = in_memory([])
    found = score(rows(item=pa.array([], pa.string()), count=pa.array([], pa.float64())), data, "events", 1)
    assert data.description() == "0 events, 0 users, 0 items" and data.items_per_user(0.9) == 1
    assert (found.items, found.covered, found.l1, found.drop_rate) == (0, 0, None, None)


def test_the_mean_leaves_out_what_cannot_be_said():
    nothing = Score(0, None, None, None, 0.0, 1.0, 1.0, None, 0.0, -1.0, 1.0, 0.0)
    some = Score(4, 0.2, 0.4, 0.9, 0.5, 0.5, 0.4, None, 0.0, 0.0, 0.5, 0.5)
    found = mean([nothing, some])
    assert dataclasses.astuple(found) == (2, 0.2, 0.4, 0.9, 0.25, 0.75, 0.7, None, 0, -0.5, 0.75, 0.25)


def test_every_number_has_a_meaning():
    assert [field.name for field in dataclasses.fields(Score)] == [*MEANINGS]
    assert np.all([meaning for meaning in MEANINGS.values()])
