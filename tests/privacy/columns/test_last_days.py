"""Windows that overlap (`at:last7`) on neighbours: what one user changes before the noise, through the steps that a job takes.

Exact, no false alarms. Rows are read, kept if their day is public, bounded and summed by the code of a histogram, with each
user and without. The difference must keep the norm that the noise is made for, and a user who is there every day attains it.
The known bug is to bound a user's rows first and to put them into windows then: a row would count 7 times for the bound of one.
"""

from __future__ import annotations

import datetime
import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.batches.contributions import Place
from headcount.mechanisms.batches.domain import only_domain
from headcount.mechanisms.columns import row_schema as module
from headcount.mechanisms.columns.row_schema import asked, in_windows
from headcount.mechanisms.counting.noisy import bounded_batches, noisy_counts
from headcount.mechanisms.domains.domain_files import DomainFile
from headcount.mechanisms.errors import InputError
from headcount.mechanisms.histogram.factory import histogram
from tests.mechanisms.people.logs import log

FIRST, LAST, PAGES = datetime.date(2026, 10, 10), datetime.date(2026, 10, 30), ["/", "/cart"]
BOUND = 3
EVERY_DAY = pa.table(
    {
        "user": ["always"] * 120,
        "page": PAGES * 60,
        "at": pa.array([datetime.datetime(2026, 9, 20) + datetime.timedelta(days=k // 2) for k in range(120)]),
    }
)
ONE_DAY = pa.table({"user": ["once"] * 2, "page": PAGES, "at": pa.array([datetime.datetime(2026, 10, 11)] * 2)})


def mechanism(noise, of, days="last7"):
    keys = asked("user", ["page", f"at:{days}"]).of_types({"page": pa.string(), "at": pa.timestamp("us")}).keys
    given = {"page": PAGES, f"at_{days}": (str(FIRST), str(LAST))}
    domain = DomainFile(given, columns=keys.names).domain(keys)
    cap = {"max_per_item": 2} if of == "events" else {}
    budget = Budget(1, 1e-6 if noise == "gaussian" else 0)
    return histogram(budget, method="one-stage", of=of, bound=BOUND, noise=noise, domain=domain, **cap)


def sums(made, table, release, days="last7", later=None):
    """{item: the sum of what users add, in counts}; `later` is what is done to bounded batches."""
    rows = asked("user", ["page", f"at:{days}"], drop_null=True).of_schema(table.schema)
    read = [only_domain(rows.batch(batch, Place()), made.domain) for batch in table.to_batches()]
    bounded = bounded_batches(read, made.steps, release, "audit")
    found: dict[str, float] = {}
    for batch in bounded if later is None else [later(batch, rows.keys) for batch in bounded]:
        items = batch.column("item").to_pylist()
        for item, count in zip(items, batch.column("count").to_pylist(), strict=True):
            found[item] = found.get(item, 0.0) + count * 2.0**-made.plan.bound.grid
    return found


def audit(noise, of, release, days="last7", later=None):
    """The largest norm of what one user changes, of users of many kinds."""
    made, worst = mechanism(noise, of, days), 0.0
    size = {"users": 6, "rows": 60, "minutes": 60_000}
    for seed in range(4):
        base = log(seed, nulls=seed % 2 == 1, **size).select(["user", "page", "at"])
        table = pa.concat_tables([base, EVERY_DAY, ONE_DAY]).combine_chunks()
        every = sums(made, table, release, days, later)
        for user in pc.unique(table["user"]).to_pylist():
            without = sums(made, table.filter(pc.not_equal(table["user"], user)), release, days, later)
            changed = np.array([every.get(item, 0) - without.get(item, 0) for item in {*every, *without}])
            worst = max(worst, float(np.abs(changed).sum() if noise == "laplace" else math.sqrt((changed**2).sum())))
    return worst


@pytest.mark.seconds
@pytest.mark.parametrize("days", ["last7", "last28"])
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("of", ["users", "events"])
def test_a_user_changes_no_more_than_the_noise_is_made_for(noise, of, days, make_release):
    made = mechanism(noise, of, days)
    promised = made.plan.bound.l1 if noise == "laplace" else made.plan.bound.l2
    assert promised == BOUND
    found = audit(noise, of, make_release("windows"), days)
    assert 0.99 * BOUND <= found <= BOUND


def bounded_first(batch, keys):
    """The mutation: rows are put into windows once they are bounded."""
    return with_counts(in_windows(batch, keys), batch, keys.days)


def with_counts(made, batch, days):
    counts = np.repeat(np.asarray(batch.column("count")), days)
    return made if "count" in made.schema.names else made.append_column("count", pa.array(counts))


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_the_audit_catches_windows_that_are_made_of_bounded_rows(noise, make_release, monkeypatch):
    monkeypatch.setattr(module, "in_windows", lambda batch, keys: batch)
    found = audit(noise, "users", make_release("windows"), later=bounded_first)
    assert found > 2 * BOUND


def test_windows_that_are_made_of_bounded_rows_have_no_bound_and_get_no_noise(make_release):
    """So that whoever puts the steps in the wrong order is refused."""
    made, release = mechanism("laplace", "users"), make_release("windows")
    rows = asked("user", ["page", "at:last7"]).of_schema(EVERY_DAY.schema)
    read = [only_domain(rows.batch(batch, Place()), made.domain) for batch in EVERY_DAY.to_batches()]
    bounded = bounded_batches(read, made.steps, release, "audit")
    assert noisy_counts(bounded, made.plan, release, "audit", made.domain, str).num_rows == len(made.domain)
    wrong = bounded.map(lambda batch: only_domain(in_windows(batch, rows.keys), made.domain))
    with pytest.raises(InputError):
        noisy_counts(wrong, made.plan, release, "audit", made.domain, str)


def test_a_users_contributions_come_from_its_rows_alone():
    """Whatever others do: for each user, the batch of all rows holds what the batch of its own rows holds."""
    table = log(2, users=7, rows=90, minutes=60_000).combine_chunks()
    rows = asked("user", ["country", "at:last28"]).of_schema(table.schema)

    def of_each(part):
        batch = rows.batch(part.to_batches()[0], Place())
        pairs = zip(batch.column("user").to_pylist(), batch.column("item").to_pylist(), strict=True)
        return sorted(pairs)

    every = of_each(table)
    for user in pc.unique(table["user"]).to_pylist():
        own = of_each(table.filter(pc.equal(table["user"], user)).combine_chunks())
        assert own == [pair for pair in every if pair[0] == user] and len(own) % 28 == 0
