"""Keys partly public: names are cut into parts and made whole again, one to one, from each user's rows alone."""

import pickle

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.aggregate.release import aggregate
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.batches.domain import PartDomain, only_domain
from headcount.mechanisms.batches.shards import one_shard
from headcount.mechanisms.distribution.learn import learn_distribution
from headcount.mechanisms.domains import partly_public as module
from headcount.mechanisms.domains.domain_files import DomainFile
from headcount.mechanisms.domains.partly_public import PartlyPublic
from headcount.mechanisms.errors import InputError, ParameterError
from headcount.mechanisms.histogram.factory import histogram
from headcount.mechanisms.histogram.total import total
from tests.mechanisms.domains.test_domain import keys_of

KEYS = keys_of(("page", pa.string()), ("at:day", pa.timestamp("s")), ("tag", pa.string()), ("n", pa.int64()))
PAGES, TAGS = ["a", "\x1f", "\x1b2", ""], ["x", "\x1f\x1b"]
PUBLIC = {"n": (1, 2), "at_day": "2026-11-01..2026-11-03"}


def domain(given=PUBLIC, keys=KEYS):
    made = DomainFile(given, columns=keys.names).domain(keys)
    assert isinstance(made, PartlyPublic)
    return made


def names(*rows):
    page, day, tag, n = (list(column) for column in zip(*rows, strict=True))
    return KEYS.encode(
        {"page": pa.array(page), "at": pa.array(day, pa.timestamp("s")), "tag": pa.array(tag), "n": pa.array(n)}
    )


def seconds(day):
    return 1_793_491_200 + 86_400 * (day - 1)  # of November 2026


def test_every_named_part_is_completed_by_all_public_ones_and_no_other():
    parts = domain().private_parts(names(*[(page, seconds(1), tag, 1) for page in PAGES for tag in TAGS]))
    every = domain().complete(parts)
    expected = names(*[(p, seconds(d), t, n) for p in PAGES for d in (1, 2, 3) for t in TAGS for n in (1, 2)])
    assert sorted(every.to_pylist()) == sorted(expected.to_pylist()) and every.to_pylist() == sorted(every.to_pylist())
    assert KEYS.decode(every)[1].unique().to_pylist() == sorted(KEYS.decode(every)[1].unique().to_pylist())
    assert domain().complete(parts[:0]).to_pylist() == []


def test_a_user_has_each_private_part_once_and_what_is_not_public_counts_nowhere():
    rows = [
        ("a", 1, "x", 1),
        ("a", 2, "x", 2),
        ("a", 2, "x", 9),
        ("\x1f", 3, "x", 1),
        ("a", 4, "x", 1),
        ("b", 9, "x", 1),
    ]
    keys = names(*[(page, seconds(day), tag, n) for page, day, tag, n in rows])
    batch = contribution_batch(pa.array(["u", "u", "u", "u", "v", "v"]), keys, pa.array([3, 4, 5, 1, 1, 1]))
    kept = only_domain(batch, domain())
    assert kept.column("user").to_pylist() == ["u", "u", "u"]
    shard = domain().projected(one_shard([kept]))
    assert shard.users.to_pylist() == ["u"] and sorted(shard.count.tolist()) == [1, 7]
    assert sorted(shard.items.to_pylist()) == sorted(domain().private_parts(keys[:1]).to_pylist() + ["\x1b2\x1fx"])
    encoded = batch.set_column(1, "item", batch.column("item").dictionary_encode())
    assert only_domain(encoded, domain()).num_rows == 3


def test_projecting_shards_and_all_users_together_is_the_same():
    random = np.random.default_rng(5)
    keys = names(*[(f"p{p}", seconds(d), "x", 1) for p, d in random.integers(1, 4, (500, 2)).tolist()])
    users = random.integers(0, 40, 500)
    whole = domain().projected(one_shard([contribution_batch(pa.array(users), keys)]))
    half = domain().projected(one_shard([contribution_batch(pa.array(users), keys).filter(pa.array(users % 2 == 0))]))
    for place, user in enumerate(half.users.to_pylist()):
        at = whole.users.to_pylist().index(user)
        mine, all_ = ((s.item[s.offsets[k] : s.offsets[k + 1]], s) for s, k in ((half, place), (whole, at)))
        assert [mine[1].items[k].as_py() for k in mine[0].tolist()] == [
            all_[1].items[k].as_py() for k in all_[0].tolist()
        ]


def test_it_travels_and_is_told_by_its_digest():
    made = domain()
    assert pickle.loads(pickle.dumps(made)) == made and made.digest == domain().digest
    other = [domain({"n": (1, 2)}), domain({**PUBLIC, "n": (1, 3)}), domain({"tag": TAGS})]
    assert len({made.digest, *(each.digest for each in other)}) == 4
    assert made.public == ("n=1..2", "at_day=2026-11-01..2026-11-03") and made.size == 6
    assert DomainFile(PUBLIC, columns=KEYS.names).unnamed() == PartDomain(6, made.public)


def test_too_many_rows_are_refused(monkeypatch):
    with pytest.raises(ParameterError, match="has 300,000 combinations of its columns, .* give 100,000 at most"):
        domain({"n": (1, 100_000), "at_day": "2026-11-01..2026-11-03"})
    with pytest.raises(ParameterError, match="has 300,000 combinations"):
        DomainFile({"n": (1, 300_000)}, columns=KEYS.names).unnamed()
    monkeypatch.setattr(module, "MOST_KEYS", 11)
    with pytest.raises(
        InputError, match="6 combinations of n=1..2, at_day=.* are more than 11 rows: give shorter ranges"
    ):
        domain().complete(pa.array(["a\x1fx", "b\x1fx"]))


def test_what_cannot_name_parts_of_keys_refuses_them():
    budget, partly = Budget(1, 1e-6), PartDomain(30, ["day=1..30"])
    with pytest.raises(ParameterError, match="method='one-stage' .*: leave it out, or give a list or a range for each"):
        histogram(budget, domain=partly, method="one-stage")
    with pytest.raises(ParameterError, match="noise='laplace' .*: leave it out, or give a list or a range for each"):
        histogram(budget, domain=partly, noise="laplace")
    with pytest.raises(ParameterError, match="delta must be positive"):
        histogram(Budget(1), domain=partly)
    with pytest.raises(ParameterError, match="delta must be positive"):
        aggregate(Budget(1), ["users"], domain=partly)
    for make in (total, learn_distribution):
        with pytest.raises(ParameterError, match="the domain is of day=1..30 alone, and all keys must be public here"):
            make(budget, domain=partly)
    assert not histogram(budget, domain=partly).stages.account.pure
