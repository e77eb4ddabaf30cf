"""Keys of several columns and types through the transforms: types are known where the pipeline is built, and the columns come
back in the rows."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import pickle
import uuid
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from apache_beam.internal import pickler
from apache_beam.utils.timestamp import Timestamp

from headcount.mechanisms.batches.contributions import Place
from headcount.mechanisms.columns.row_schema import asked
from headcount.mechanisms.errors import InputError, ParameterError
from headcount.transforms import (
    Budget,
    ChooseBound,
    Contributions,
    DebiasedCount,
    HeavyHitters,
    Histogram,
    LearnDistribution,
    NoisyCounts,
    Plume,
    PrivateCountRelease,
    RandClip,
    SampledHistogram,
    SelectPartitions,
    TopItems,
    Total,
    Zcdp,
)
from headcount.transforms.core.contributions import contributed
from headcount.transforms.core.rows import Estimate, NoisyCount
from headcount.transforms.keyed.rows import keyed_row

LARGE = Budget(10_000, 1e-2)
ITEM = ["country", "day", "page"]
DAYS = [datetime.date(2026, 11, day) for day in (1, 2)]
DOMAIN = [(country, day, page) for country in ("DE", "F\x1fR") for day in DAYS for page in (1, 2)]


def table(rows: int = 3000) -> pa.Table:
    """300 users with ten events each; three key columns of different types, 8 keys that all occur."""
    rng = np.random.default_rng(3)
    keys = [DOMAIN[k] for k in rng.integers(0, len(DOMAIN), rows)]
    countries, days, pages = map(list, zip(*keys, strict=True))
    return pa.table(
        {"who": np.arange(rows) % 300, "country": countries, "day": pa.array(days), "page": pa.array(pages, pa.int16())}
    )


def counted(rows: pa.Table) -> dict[tuple, int]:
    return {
        key: sum(row == key for row in zip(*(rows[name].to_pylist() for name in ITEM), strict=True)) for key in DOMAIN
    }


# What shows items: how it is made, and whether its mechanism alone has all that it draws from.
TABLE = {
    "Histogram": lambda **g: Histogram(LARGE, of="events", bound=100, **g),
    "Histogram of a domain": lambda **g: Histogram(LARGE, of="events", domain=DOMAIN, bound=100, **g),
    "one stage": lambda **g: Histogram(LARGE, of="events", method="one-stage", bound=50, **g),
    "one stage, chosen": lambda **g: Histogram(LARGE, of="events", method="one-stage", **g),
    "one stage of a domain": lambda **g: Histogram(
        LARGE, of="events", method="one-stage", domain=DOMAIN, bound=50, **g
    ),
    "DebiasedCount": lambda **g: DebiasedCount(LARGE, DOMAIN[:2], max_per_item=9, **g),
    "SelectPartitions": lambda **g: SelectPartitions(LARGE, strategy="sips", max_items=8, **g),
    "PrivateCountRelease": lambda **g: PrivateCountRelease(LARGE, max_per_item=20, **g),
    "TopItems": lambda **g: TopItems(LARGE, 3, **g),
    "Plume": lambda **g: Plume(Zcdp(100, 1e-2), max_items=8, **g),
    "SampledHistogram": lambda **g: SampledHistogram(Budget(2, 1e-2), max_items=1, sample="SampledHistogram", **g),
    "HeavyHitters": lambda **g: HeavyHitters(
        Budget(2, 1e-2), phi=0.05, users=300, max_items=1, sample="HeavyHitters", **g
    ),
    "LearnDistribution": lambda **g: LearnDistribution(LARGE, DOMAIN, samples_per_user=5, **g),
}
COUNTS = {
    "Histogram": "count",
    "Histogram of a domain": "count",
    "one stage": "bounded_count",
    "one stage of a domain": "bounded_count",
}


@pytest.mark.slow("cuts")
@pytest.mark.parametrize(("size", "shards", "files"), [(3000, 1, 1), (401, 5, 3)])
def test_every_transform_that_shows_items_gives_the_key_columns_however_cut(
    size, shards, files, collect, make_release, soon_planned
):
    rows, release = table(), make_release()
    row_schema = asked("who", ITEM).of_schema(rows.schema)
    batches = [row_schema.batch(rows.to_batches()[0], Place())]
    given = {"release": release, "shards": shards}

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        contributions = pipeline | beam.Create(rows.to_batches(size)) | Contributions("who", ITEM)
        shown = [contributions | name >> make(**given) for name, make in TABLE.items()]
        shown = [each | f"Rows {k}" >> beam.Map(lambda row, k=k: (k, False, row)) for k, each in enumerate(shown)]
        for k, (name, make) in enumerate(TABLE.items()):
            found = contributions | f"{name}/again" >> make(**given, output_files=files)
            shown.append(found | f"Files {k}" >> beam.Map(lambda file, k=k: (k, True, file[1])))
        return shown | beam.Flatten()

    found = collect(build)
    for k, (name, make) in enumerate(TABLE.items()):
        label = name if TABLE[name] is not None else ""
        mechanism = make(**given)._of(contributed_type(rows)).mechanism
        expected = row_schema.keys.restore(
            mechanism.run(batches, release.of_rows(row_schema.reading), label)
        ).to_pylist()
        assert expected, name
        assert sorted(map(tuple, (row for j, many, row in found if j == k and not many))) == sorted(
            tuple(row.values()) for row in expected
        ), name
        files_of = [batch for j, many, batch in found if j == k and many]
        assert len(files_of) == files
        assert all({*ITEM} <= {*batch.schema.names} and "item" not in batch.schema.names for batch in files_of), name
        assert all(batch.schema.field("day").type == pa.date32() for batch in files_of)
        if name in COUNTS:
            truth = counted(rows)
            for row in expected:
                assert row[COUNTS[name]] == pytest.approx(truth[tuple(row[key] for key in ITEM)], abs=10), (
                    name
                )  # noise has a deviation of 1.8


def contributed_type(rows: pa.Table) -> Any:
    return contributed(beam.Pipeline(runner="FnApiRunner") | beam.Create([rows]) | Contributions("who", ITEM))


class Visit(NamedTuple):
    """A row as a named tuple."""

    who: str
    country: str
    day: datetime.date | None
    page: int


@dataclasses.dataclass
class Event:
    """A row as a dataclass, with a nested one."""

    who: str
    where: Place
    tags: list[str]
    price: decimal.Decimal
    id: uuid.UUID
    at: datetime.datetime
    age: float


def keys_of(rows: list[Any], **given: Any) -> Any:
    return _of(beam.Create(rows), **given)


def _of(source: beam.PTransform, **given: Any) -> Any:
    made = Contributions(**given).contributed(beam.Pipeline(runner="FnApiRunner") | source)
    return made.known, {field.name: str(field.type) for field in made.keys.schema}


def test_types_come_from_the_elements_of_the_collection():
    day = DAYS[0]
    assert keys_of([("a", 1)]) == (True, {"item": "int64"})
    assert keys_of([("a", ("DE", day))], item=["country", "day"]) == (True, {"country": "string", "day": "date32[day]"})
    assert keys_of([Visit("a", "DE", day, 1)], user="who", item=["day", "page"]) == (
        True,
        {"day": "date32[day]", "page": "int64"},
    )
    assert keys_of([beam.Row(who="a", ok=True)], user="who", item="ok") == (True, {"ok": "bool"})
    assert keys_of([{"user": 1, "item": 2}]) == (True, {"item": "int64"})
    assert keys_of([{"user": "a", "item": 2}]) == (False, {"item": "string"}), "a dict tells nothing of one column"
    event = Event("a", Place(), ["x"], decimal.Decimal("1.50"), uuid.uuid4(), datetime.datetime(2026, 1, 1), 1.5)
    item = ["where.first_row", "tags", "price", "id", "at:day", "age:0,18"]
    assert keys_of([event], user="who", item=item, explode="tags") == (
        True,
        {
            "where.first_row": "int64",
            "tags": "string",
            "price": "string",
            "id": "string",
            "at_day": "date32[day]",
            "age": "string",
        },
    )
    frame = pd.DataFrame({"page": np.arange(2, dtype=np.int32)}, index=pd.Index([1, 2], name="who"))
    for source in ([table()], table().to_batches(), [frame]):
        known, names = keys_of(source, user="who", item="page")
        assert known and names["page"] in ("int16", "int32")
    schema = pa.schema({"user": pa.int64(), "item": pa.struct({"id": pa.uint64()})})
    assert _of(beam.Create([1]), item="item.id", schema=schema) == (True, {"item.id": "uint64"})


@pytest.mark.parametrize(
    ("rows", "given", "words"),
    [
        (["text"], {}, "elements of type str are no rows; give Arrow batches"),
        ([("a", "b", "c", "d")], {}, r"rows are tuples of 4; give \(user, item\)"),
        ([("a", "b", 1.5)], {}, r"the count in \(user, item, count\) is double"),
        ([("a", 1.5)], {}, r"column 'item' is double; put it into bins, by their edges: item:0,18,30,65"),
        ([("a", ("b", "c"))], {}, r"the key in \(user, key\) is a tuple of 2: name its parts by Contributions\(item="),
        ([("a", "b")], {"item": ["x", "y"]}, r"is no tuple, but item names 2 columns: 'x', 'y'"),
        ([("a", ("b", "c", "d"))], {"item": ["x", "y"]}, r"is a tuple of 3, but item names 2"),
        ([Visit("a", "DE", None, 1)], {"user": "user"}, "the rows: no column 'user'; the columns are 'who', 'country'"),
        (
            [Visit("a", "DE", None, 1)],
            {"user": "who", "item": "page", "count": "country"},
            "column 'country' is string; counts",
        ),
        ([table()], {"user": "nobody", "item": "page"}, "no column 'nobody'; the columns are 'who'"),
        ([beam.Row(user=1.5, item="a")], {}, "column 'user' is double, which no user is known by"),
    ],
)
def test_what_is_wrong_is_said_where_the_pipeline_is_built(rows, given, words):
    pipeline = beam.Pipeline(runner="FnApiRunner")
    with pytest.raises(InputError, match=words):
        pipeline | beam.Create(rows) | Contributions(**given)


def test_an_item_type_may_be_left_out_and_is_refused_where_it_contradicts():
    pipeline = beam.Pipeline(runner="FnApiRunner")
    numbers = pipeline | beam.Create([("a", 1)])
    assert (numbers | Histogram(Budget(1, 1e-6), of="events")).element_type.__name__ == "IntEstimate"
    with pytest.raises(ParameterError, match="item_type says str, but the key 'item' is int by its schema: leave out"):
        numbers | "Other" >> Histogram(Budget(1, 1e-6), of="events", item_type=str)
    with pytest.raises(ParameterError, match="the domain: key 1 is not a whole number"):
        numbers | "Domain" >> Histogram(Budget(1, 1e-6), of="events", domain=["a"])
    columns = pipeline | "Table" >> beam.Create([table()]) | Contributions("who", ITEM)
    with pytest.raises(ParameterError, match="key 1 is no tuple of a value for each of 'country', 'day', 'page'"):
        columns | "Pairs" >> Total(Budget(1), domain=[("DE", 1)])
    with pytest.raises(ParameterError, match="the key column 'count' has the name of another column of the result"):
        rows = pipeline | "Rows" >> beam.Create([("a", "x")]) | "Count" >> Contributions(item="count")
        rows | "Twice" >> Histogram(Budget(1, 1e-6), of="events")
    with pytest.raises(ParameterError, match="collections with different key columns"):
        (numbers | "Own" >> Contributions(), columns) | beam.Flatten() | "Both" >> TopItems(Budget(1, 1e-6), 1)


def test_a_domain_may_be_a_frame_and_is_in_the_words_of_the_output():
    """Days and bins by what is shown of them; a choice and a total take the same domains."""
    at = pa.array([datetime.datetime(2026, 11, 1, 5), datetime.datetime(2026, 11, 2, 6)], pa.timestamp("us"))
    rows = pa.table({"user": ["a", "b"], "at": at, "age": [17, 20]})
    domain = pd.DataFrame({"age": ["< 18", "[18, 30)"], "at_day": DAYS})
    pipeline = beam.Pipeline(runner="FnApiRunner")
    contributions = pipeline | beam.Create([rows]) | Contributions(item=["at:day", "age:18,30"])
    names = asked("user", ["at:day", "age:18,30"]).of_schema(rows.schema).batch(rows.to_batches()[0], Place())["item"]
    for make in (Histogram, Total):
        made = make(Budget(1), domain=domain)._of(contributions.element_type)
        assert made.mechanism.domain.sorted_names.to_pylist() == sorted(names.to_pylist())
    chosen = ChooseBound(Budget(1), Budget(1), domain=domain)._of(contributions.element_type)
    assert chosen.mechanism.domain.sorted_names.to_pylist() == sorted(names.to_pylist())
    wrong = pd.DataFrame({"age": ["18-30"], "at_day": DAYS[:1]})
    with pytest.raises(ParameterError, match=r"the domain: key 1 in column 'age' is not a bin like '\[18, 30\)'"):
        Histogram(Budget(1), of="events", domain=wrong)._of(contributions.element_type)


def test_rows_of_every_kind_have_the_same_keys(collect):
    when = datetime.datetime(2026, 11, 1, 23, 30, tzinfo=datetime.UTC)
    item = ["country", "at:day"]
    kinds = [
        [("a", ("DE", when), 2)],
        [{"user": "a", "country": "DE", "at": when, "n": 2}],
        [beam.Row(user="a", country="DE", at=Timestamp.from_utc_datetime(when), n=2)],
        [pa.table({"user": ["a"], "country": ["DE"], "at": [when], "n": [2]})],
        [pd.DataFrame({"user": ["a"], "country": ["DE"], "at": [when], "n": [2]}).set_index("user")],
    ]

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        made = []
        for k, rows in enumerate(kinds):
            contributions = Contributions(item=item, count="n", time_zone="Europe/Berlin")
            made.append(pipeline | f"Create {k}" >> beam.Create(rows) | f"Contributions {k}" >> contributions)
        return [
            each | f"Rows {k}" >> beam.Map(lambda batch: batch.to_pylist()) for k, each in enumerate(made)
        ] | beam.Flatten()

    day = (datetime.date(2026, 11, 2) - datetime.date(1970, 1, 1)).days
    assert collect(build) == [[{"user": "a", "item": f"DE\x1f{day}", "count": 2}]] * len(kinds)


def test_lists_make_a_row_for_each_element_and_odd_values_are_told_by_their_column():
    pipeline = beam.Pipeline(runner="FnApiRunner")
    with pipeline:
        rows = [{"user": "a", "tags": ["x", "y"]}, {"user": "b", "tags": []}]
        found = pipeline | beam.Create(rows) | Contributions(item="tags", explode="tags")
        found | beam.Map(
            lambda batch: _same(batch.to_pylist(), [{"user": "a", "item": "x"}, {"user": "a", "item": "y"}])
        )
    with pytest.raises(
        Exception, match=r"column 'page': is int64, and was taken for string .*schema=pa.schema\(\[\('page', TYPE\)\]\)"
    ):
        with beam.Pipeline(runner="FnApiRunner") as pipeline:
            pipeline | beam.Create([{"user": "a", "c": "x", "page": 3}]) | Contributions(item=["c", "page"])
    with pytest.raises(
        Exception,
        match=r"column 'item': is date32\[day\], and was taken for string .*schema=pa.schema\(\[\('item', TYPE\)\]\)",
    ):
        dated = pa.table({"user": ["a"], "item": pa.array(DAYS[:1])})
        with beam.Pipeline(runner="FnApiRunner") as pipeline:
            pipeline | beam.Create([1]) | beam.Map(lambda _: dated) | Contributions()


def _same(found: Any, expected: Any) -> None:
    assert found == expected


def test_element_types_and_rows_pickle_and_are_coded():
    made = contributed_type(table())
    assert pickler.loads(pickler.dumps(made)).keys == made.keys
    row = keyed_row(Estimate, made.keys)
    one = row("DE", DAYS[0], 2, 1.0, 1.0, 0.0, 2.0, 1.0)
    assert repr(one).startswith("Estimate(country='DE', day=datetime.date(2026, 11, 1), page=2, count=1.0")
    for copy in (pickle.loads(pickle.dumps(one)), pickler.loads(pickler.dumps(one))):
        assert copy == one and type(copy) is row
    coder = beam.coders.registry.get_coder(row)
    assert coder.decode(coder.encode(one)) == one
    row_schema = asked("u", ["user.id", "_id", "class", "big", "at:hour"]).of_schema(
        pa.schema({"u": pa.string(), "user": pa.struct({"id": pa.string()}), "_id": pa.string(), "class": pa.string(),
                   "big": pa.uint64(), "at": pa.timestamp("ms")})
    )  # fmt: skip
    odd = keyed_row(NoisyCount, row_schema.keys)
    assert odd._fields[:5] == ("user_id", "id", "key_class", "big", "at_hour")
    coder = beam.coders.registry.get_coder(odd)
    values = odd("a", "b", "c", 2**64 - 1, Timestamp(3600), 1.0, 1.0, 1.0, 1.0)
    assert coder.decode(coder.encode(values)) == values


def test_bounding_by_hand_keeps_the_key_columns(collect, make_release):
    release = make_release()

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        bounded = pipeline | beam.Create([table()]) | Contributions("who", ITEM) | RandClip(50, release=release)
        return bounded | NoisyCounts(LARGE, RandClip(50).bound, release=release)

    found = {(row.country, row.day, row.page): row.bounded_count for row in collect(build)}
    assert found == pytest.approx(counted(table()), abs=3)


def test_frames_of_a_create_stay_out_of_the_graph_and_what_the_caller_made_stays_whole():
    rows = pa.table({"user": np.arange(100_000).astype(str), "item": np.arange(100_000).astype(str)})
    create = beam.Create([rows])
    here = beam.Pipeline(runner="FnApiRunner")
    here | create | Contributions()
    assert len(here.to_runner_api().SerializeToString()) < 20_000
    there = beam.Pipeline(runner="PortableRunner")
    there | beam.Create([rows]) | Contributions()
    assert len(there.to_runner_api().SerializeToString()) > 200_000, "other processes need the rows themselves"
    assert create.values == (rows,)


def test_rows_of_every_kind_are_protected_by_windows(collect):
    """At a bound of 1, a user counts once in each of its two days; with all that it did, once."""
    day = datetime.datetime(2026, 11, 1, 12, tzinfo=datetime.UTC)
    rows = [
        {"user": f"u{user}", "item": "x", "at": day + datetime.timedelta(days=d)}
        for user in range(50)
        for d in range(2)
        for _ in range(3)
    ]
    exact = {"method": "one-stage", "bound": 1, "noise": "laplace"}

    def counted(made, **given):
        (row,) = collect(
            lambda pipeline: (
                pipeline
                | beam.Create(made)
                | Contributions(**given)
                | Histogram(Budget(1e6, 1e-9), of="events", **exact)
            )
        )
        return row.bounded_count

    windows = {"protect": "user-day", "time": "at"}
    assert counted(rows, **windows) == 100 and counted(rows) == 50
    assert counted([pa.Table.from_pylist(rows)], **windows) == 100
    assert counted([beam.Row(**row) for row in rows], **windows) == 100
    with pytest.raises(InputError, match="tuples of user and item have no 'at'"):
        beam.Pipeline(runner="FnApiRunner") | beam.Create([("a", "x")]) | Contributions(**windows)
