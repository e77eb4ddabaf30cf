"""No two draws of a release share a lane, and no two measures a subkey: in all jobs of tests/runners/jobs.py, old and new.

Exact, without a false alarm. What code draws is recorded where it draws (`independence.Words`): each word that is read, and
what each lane is of. All jobs are run for it by `tests/headcount/test_calls.py`, which compares what they release as well. Here
stands what that look must see: each mutation leaves out what tells two draws apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from headcount.mechanisms.aggregate import sums as aggregate_sums
from headcount.mechanisms.aggregate import trees
from headcount.mechanisms.bounding import steps
from headcount.mechanisms.choice import run as choice_run
from headcount.mechanisms.count_release import rounds
from headcount.mechanisms.counting import noisy
from headcount.mechanisms.counting import sums as counting_sums
from headcount.mechanisms.distribution import learn
from headcount.mechanisms.people import table as people_table
from tests.called_jobs import called
from tests.golden import events
from tests.privacy.independence import Words

Real = Callable[..., Any]


def by_kind(subkey: Real) -> Real:
    """Subkeys of measures by their kind in place of their name: those of two ranges are one."""

    def mutated(key: bytes, release_id: str, label: str, parameters: dict[str, Any]) -> bytes:
        return subkey(key, release_id, label, parameters | {"measure": parameters["measure"].rstrip("0123456789")})

    return mutated


def of_the_plan(subkey: Real) -> Real:
    """Subkeys of measures without the measure."""
    return lambda key, release_id, label, parameters: subkey(key, release_id, label, parameters | {"measure": ""})


def of_all_rows(ids: Real) -> Real:
    """One shared draw for all rows of a table."""
    return lambda key, table, draws: ids(key, b"shared", draws)


def without_label(subkey: Real) -> Real:
    """Subkeys of steps, choices and noise without the step."""
    return lambda key, release_id, label, *more, **chosen: subkey(key, release_id, "", *more, **chosen)


def of_nothing(subkey: Real) -> Real:
    """The same without parameters: different methods share a subkey, too."""
    return lambda key, release_id, label, parameters: subkey(key, release_id, "", {})


def without_level(block_key: Real) -> Real:
    """Words of a tree's nodes that do not know the level."""
    return lambda own, digest: block_key(own, digest[:-1])


def without_round(ids: Real) -> Real:
    """Lanes of rounds that know the frame alone: neither the round nor what was drawn before."""
    return lambda key, table, draws: ids(key, b"", draws)


def of_nobody(ids: Real) -> Real:
    """Lanes of items by their sum alone."""
    return lambda key, items, sums: ids(key, pa.array([0] * len(items), pa.int64()), sums)


# Job, where, what.
MUTATIONS: list[tuple[str, Any, str, Callable[[Real], Real]]] = [
    ("metrics in chosen ranges, zCDP", aggregate_sums, "subkey", by_kind),
    ("metrics by country, not calibrated", aggregate_sums, "subkey", of_the_plan),
    ("metrics with quantiles", trees, "block_key", without_level),
    ("who comes back", people_table, "decision_lane_ids", of_all_rows),
    ("users at home in levels", counting_sums, "item_lane_ids", of_nobody),
    ("estimates", noisy, "subkey", of_nothing),
    ("metrics in chosen ranges, zCDP", choice_run, "subkey", of_nothing),
    ("names of items, three rounds", steps, "derive_subkey", without_label),
    ("the largest counts", rounds, "decision_lane_ids", without_round),
    ("a distribution of users who differ", learn, "subkey", without_label),
]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    directory = tmp_path_factory.mktemp("lanes")
    events.write(directory)
    return directory


@pytest.mark.seconds
@pytest.mark.parametrize(("job", "module", "name", "mutation"), MUTATIONS)
def test_a_shared_lane_is_seen_in_a_job(job, module, name, mutation, data, monkeypatch):
    words = Words(monkeypatch)
    monkeypatch.setattr(module, name, mutation(getattr(module, name)))
    called(job, data)
    assert words.twice or words.shared
