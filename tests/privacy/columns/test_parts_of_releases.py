"""What is named under one id depends on all that says which rows count: a question, or public parts of keys.

Two such releases under one id would else name the same if and only if no row makes a difference, so that one user shows.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.columns.key_column import parse_columns
from headcount.mechanisms.columns.keys import JOINT, resolve
from headcount.mechanisms.domains.domain_files import DomainFile
from headcount.mechanisms.histogram.factory import estimates
from headcount.mechanisms.people.ask import activity
from headcount.mechanisms.randomness.keys import Release

BUDGET = Budget(2, 1e-3)


def by_activity(release, bins) -> list[str]:
    """300 values of `by` with users of two events each, at the edge of naming."""
    value = np.repeat(np.arange(300), 9)
    user = np.repeat(np.arange(len(value)), 2)
    batch = contribution_batch(pa.array([f"u{u}" for u in user]), pa.array([f"v{v}" for v in np.repeat(value, 2)]))
    made = activity(BUDGET, bins, by=True).run([batch], release)
    return sorted(set(made.column("item").to_pylist()))


def by_days(release, days) -> list[str]:
    """300 pages with users on the first day, of two or of three days that are public."""
    keys = resolve(parse_columns(["page", "day"]), {"page": pa.string(), "day": pa.string()})
    domain = DomainFile({"day": [f"d{n}" for n in range(days)]}).domain(keys)
    page = np.repeat(np.arange(300), 9)
    items = [f"p{p}{JOINT}d0" for p in page]
    batch = contribution_batch(pa.array([f"u{u}" for u in range(len(page))]), pa.array(items))
    made = estimates(BUDGET, domain=domain).run([batch], release)
    return sorted({name.split(JOINT)[0] for name in made.column("item").to_pylist()})


@pytest.mark.parametrize(
    ("named", "one", "other"), [(by_activity, [1, 2], [2, 3]), (by_days, 2, 3)], ids=["question", "public parts"]
)
def test_names_of_what_differs_in_no_row_are_drawn_anew_and_a_shared_draw_is_caught(
    named, one, other, make_release, monkeypatch
):
    release = make_release("parts")
    assert named(release, one) == named(release, one)
    first, second = named(release, one), named(release, other)
    assert (
        0 < len(first) < 300 and len(set(first) ^ set(second)) > 20
    )  # some half of 300 are named, each by its own coin
    monkeypatch.setattr(Release, "of_part", lambda self, what: self)
    assert named(release, one) == named(release, other)
