"""Mistakes in the file of a report: each is one line of words, with its place."""

from __future__ import annotations

import pytest

from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.report_file.file import read_file, read_report
from headcount.pipelines.report_file.jobs import jobs

GOOD = """\
# A report.
data:
  input: visits/{period}/*.parquet
  user: user_id
  time: viewed_at
key_file: report.key
ledger: sqlite:///ledger.db
dataset: visits
output: reports/{period}
promise: {epsilon: 2, delta: 1e-6, per: year, runs: 52}
releases:
  pages:
    command: histogram
    item: page
    noise: gaussian
  paths: {command: funnel, step: [page=/, page=/cart], weight: 2}
  ages:
    command: quantiles
    value: age
    lo: 16
    hi: 80
    quantile: [0.25, 0.5]
"""
NO_PROMISE = ("promise: {epsilon: 2, delta: 1e-6, per: year, runs: 52}", "defaults: {epsilon: 1, delta: 1e-8}")

# What is put in place of what, the line of the mistake, and what is said of it.
MISTAKES = [
    # The text is no YAML, or not one mapping.
    (GOOD, "", 1, "the file is empty"),
    (GOOD, "- data\n- releases\n", 1, "a report is a mapping"),
    (GOOD, "just words\n", 1, "a report is a mapping"),
    (GOOD, "[" * 5000, 1, "parts within parts, deeper than any report has them"),
    ("  user: user_id", "\tuser: user_id", 4, "a tab in the indentation: YAML takes spaces alone"),
    ("    item: page", "   item: page", 14, "this is no YAML"),
    ("  pages:", "  pages: here: there", 12, "a colon where none may be"),
    ("step: [page=/, page=/cart]", "step: [page=/, page=/cart", 16, "this is no YAML"),
    ("dataset: visits", 'dataset: "visits', 8, "this is no YAML"),
    ("  time: viewed_at", "  time: viewed_at\n---", 6, "a second document begins"),
    ("  time: viewed_at", "  time: view\x01ed_at", 5, "a character that no YAML may hold"),
    ("  user: user_id", "  <<: {user: user_id}", 4, "what releases share stands in defaults"),
    ("  user: user_id", "  ? [user]\n  : user_id", 4, "a key must be one word, got a list"),
    # Keys of the whole report.
    ("output: reports", "outptu: reports", 9, "unknown key 'outptu'; did you mean output?"),
    ("dataset: visits", "frobnicate: 3\ndataset: visits", 8, "unknown key 'frobnicate'; give some of title, data"),
    ("output: reports/{period}\n", "", 2, "output is missing: where the report goes, as reports/{period}"),
    (GOOD[GOOD.index("data:") : GOOD.index("key_file")], "", 2, "data is missing: what is read"),
    (GOOD[GOOD.index("releases:") :], "", 2, "releases is missing: what is released"),
    ("dataset: visits", "dataset: visits\ndataset: views", 9, "dataset is given twice, first in line 8"),
    ("dataset: visits", "dataset:", 8, "dataset has no value: give one, or leave the line out"),
    ("dataset: visits", "dataset: [visits]", 8, "dataset must be one value, got a list"),
    ("dataset: visits", "dataset: {name: visits}", 8, "dataset must be one value, got a mapping"),
    ("dataset: visits\n", "", 7, "ledger needs dataset"),
    ("ledger: sqlite:///ledger.db\n", "", 7, "dataset needs ledger"),
    ("key_file: report.key\n", "", 6, "ledger needs a key"),
    ("key_file: report.key", "key_file: report.key\nkey_env: KEY", 7, "key_env is given beside key_file"),
    ("report.key", "keys/{period}.key", 6, "key_file is the same in every period: it has no placeholder"),
    (
        "dataset: visits",
        f"dataset: visits\ntitle: {'a' * 201}",
        9,
        "title must be a text of 1 to 200 characters, got 201",
    ),
    # The output and the period.
    ("reports/{period}", "reports/{preiod}", 9, "output has the unknown placeholder {preiod}; did you mean {period}?"),
    ("reports/{period}", "reports/{week}", 9, "there are {period}, {first_day} and {last_day}"),
    ("reports/{period}", "reports", 9, "output has no {period}, but data.input has one"),
    ("reports/{period}", "bigquery://shop.reports.pages", 9, "output must be a folder"),
    # What is read.
    ("  input: visits/{period}/*.parquet\n", "", 2, "data has no input"),
    ("  user: user_id\n", "", 2, "data has no user: give the column that tells users apart"),
    ("  user: user_id", "  usr: user_id", 4, "data: unknown key 'usr'; did you mean user?"),
    ("  user: user_id", "  user: user_id\n  item: page", 5, "data.item says what is counted: give it in a release"),
    ("  user: user_id", "  user: [user_id, name]", 4, "data.user must be one value, got a list"),
    ("  user: user_id", "  user: user_id\n  drop_null: maybe", 5, "data.drop_null must be true or false, got 'maybe'"),
    ("  user: user_id", "  user: user_id\n  where: country =", 5, "data.where"),
    ("  user: user_id", "  user: user_id\n  time_zone: Berlin", 5, "data.time_zone"),
    ("  user: user_id", "  user: user_id\n  input_format: xml", 5, "data.input_format: invalid choice: 'xml'"),
    ("  user: user_id", "  user: user_id\n  protect: user-day", 5, "nothing that headcount funnel has"),
    ("  user: user_id", "  user: user_id\n  join: countries.csv", 5, "join"),
    ("  user: user_id", "  user: user_id\n  output: here", 5, "data.output cannot be given here"),
    ("visits/{period}/*.parquet", "[]", 3, "data.input is an empty list"),
    # The promise.
    ("{epsilon: 2, delta", "{epsilon: two, delta", 10, "promise.epsilon must be a number, got 'two'"),
    ("{epsilon: 2, delta", "{epsilon: -2, delta", 10, "promise.epsilon must be a positive number, got -2"),
    ("delta: 1e-6", "delta: 1.5", 10, "promise.delta must be a number from 0 to below 1, got 1.5"),
    ("epsilon: 2, ", "", 10, "promise has no epsilon: give both"),
    ("per: year", "per: fortnight", 10, "promise.per must be month or year, got 'fortnight'"),
    ("runs: 52", "runs: 0", 10, "promise.runs must be a whole number from 1 to 100000, got '0'"),
    (", runs: 52", "", 10, "promise has no runs: say how many there are in a year"),
    ("per: year", "every: year", 10, "promise: unknown key 'every'"),
    ("promise: {epsilon: 2, delta: 1e-6, per: year, runs: 52}", "promise: 2", 10, "promise must be a mapping"),
    ("    item: page", "    item: page\n    epsilon: 1", 15, "releases.pages.epsilon is given beside promise"),
    ("releases:", "defaults: {delta: 1e-8}\nreleases:", 11, "defaults.delta is given beside promise"),
    (
        "key_file: report.key\nledger: sqlite:///ledger.db\ndataset: visits\n",
        "",
        7,
        "promise is kept by a ledger, which knows what was released before",
    ),
    ("weight: 2", "weight: 0", 16, "releases.paths.weight must be a positive number, got 0"),
    ("weight: 2", "weight: heavy", 16, "releases.paths.weight must be a number, got 'heavy'"),
    (*NO_PROMISE, 16, "releases.paths.weight divides a promise"),
    # Releases by their names and commands.
    (GOOD[GOOD.index("releases:") :], "releases: {}\n", 11, "releases is empty"),
    (
        GOOD[GOOD.index("releases:") :],
        "releases: [histogram]\n",
        11,
        "releases must be a mapping of names to values",
    ),
    ("  pages:", "  ages:", 17, "releases.ages is given twice, first in line 12"),
    ("  pages:", "  AGES:", 17, "differ in case alone"),
    ("  pages:", "  ../pages:", 12, "'../pages' is no name of a release"),
    ("    command: histogram\n", "", 12, "releases.pages has no command: what makes it, as command: histogram"),
    ("command: histogram", "command: histogrm", 13, "did you mean histogram?"),
    ("command: histogram", "command: heavy_hitters", 13, "did you mean heavy-hitters?"),
    ("command: histogram", "command: ledger", 13, "must be a command that releases something"),
    (
        "  pages:\n",
        "  none: histogram\n  pages:\n",
        12,
        "releases.none must be a mapping of names to values, got one value",
    ),
    # Their parameters.
    (
        "    item: page",
        "    itme: page",
        14,
        "releases.pages: headcount histogram has no parameter 'itme'; did you mean item?",
    ),
    ("    item: page", "    item: page\n    frob: 3", 15, "see headcount histogram --help"),
    ("    item: page\n", "", 12, "item"),
    ("    item: page", "    item: page\n    item: country", 15, "releases.pages.item is given twice, first in line 14"),
    ("    item: page", "    item: page\n    max-per-item: 1\n    max_per_item: 2", 16, "given twice, first in line 15"),
    ("    item: page", "    item:", 14, "releases.pages.item has no value"),
    ("    item: page", "    item: {column: page}", 14, "releases.pages.item must be values, got a mapping"),
    ("    item: page", "    item: [[page]]", 14, "each of releases.pages.item must be one value, got a list"),
    ("noise: gaussian", "noise: loud", 15, "releases.pages.noise: invalid choice: 'loud'"),
    ("noise: gaussian", "noise: [gaussian]", 15, "releases.pages.noise must be one value, got a list"),
    ("noise: gaussian", "bound: few", 15, "releases.pages.bound must be"),
    ("noise: gaussian", "max_per_item: 3", 15, "is for events, and users are counted"),
    (
        "noise: gaussian",
        "output: elsewhere",
        15,
        "a release is written to the folder of the report's output that has its name",
    ),
    ("noise: gaussian", "ledger: sqlite:///b.db", 15, "releases.pages.ledger cannot be given here"),
    ("noise: gaussian", "period: 2026-W46", 15, "it is given on the command line, as --period"),
    ("noise: gaussian", "release_id: mine", 15, "releases.pages.release_id cannot be given here"),
    ("noise: gaussian", f"label: {'a' * 201}", 15, "releases.pages.label must be a text of 1 to 200 characters"),
    ("noise: gaussian", "where: page ~ x", 15, "releases.pages.where"),
    ("noise: gaussian", "label: of {month}", 15, "releases.pages.label has the unknown placeholder {month}"),
    ("weight: 2}", "within: soon}", 16, "releases.paths.within"),
    ("    quantile: [0.25, 0.5]", "    quantile: [0.25, 1.5]", 22, "releases.ages.quantile"),
    ("    lo: 16\n    hi: 80", "    lo: 80\n    hi: 16", 20, "lo"),
    ("    value: age\n", "", 17, "value"),
    ("weight: 2}", "weight: 2, bins: 1,2}", 16, "headcount funnel has no parameter 'bins'"),
    ("step: [page=/, page=/cart], weight: 2", "step: page=/,page=/cart", 16, "put a text that holds commas in quotes"),
    # What releases share.
    ("releases:", "defaults: {frob: 3}\nreleases:", 11, "defaults: no release has a parameter 'frob'"),
    ("releases:", "defaults: {noise: loud}\nreleases:", 11, "defaults.noise: invalid choice: 'loud'"),
    ("releases:", "defaults: {user: id}\nreleases:", 11, "defaults.user is given in data, too"),
    ("promise: {epsilon: 2, delta: 1e-6, per: year, runs: 52}", "", 12, "releases.pages has no epsilon"),
    (
        GOOD,
        GOOD.replace("promise: {epsilon: 2, delta: 1e-6, per: year, runs: 52}", "defaults: {epsilon: 1}").replace(
            ", weight: 2", ""
        ),
        12,
        "releases.pages: delta must be positive",
    ),
]


@pytest.mark.parametrize(("old", "new", "line", "words"), MISTAKES)
def test_a_mistake_is_one_line_with_its_place(old, new, line, words):
    assert GOOD.count(old) == 1
    with pytest.raises(ParameterError) as refused:
        for job in jobs(read_report("report.yaml", GOOD.replace(old, new)), "2026-W46"):
            job.plan()
    message = str(refused.value)
    assert message.startswith(f"report.yaml:{line}: "), message
    assert (
        words in message and "\n" not in message and "--" not in message.replace("--period", "").replace("--help", "")
    )


def test_there_are_sixty_kinds_and_none_in_a_good_file():
    assert len(MISTAKES) >= 60
    assert [job.name for job in jobs(read_report("report.yaml", GOOD), "2026-W46")] == ["pages", "paths", "ages"]


@pytest.mark.parametrize(
    ("period", "words"),
    [
        (None, r"report.yaml:9: output has \{period\}, and no period is given: add --period 2026-W46"),
        ("a b", "--period must be one word such as 2026-W46"),
        ("..", "--period must be one word such as 2026-W46"),
        (".", "--period must be one word such as 2026-W46"),
        ("../x", "--period must be one word"),
    ],
)
def test_a_wrong_period(period, words):
    with pytest.raises(ParameterError, match=words):
        jobs(read_report("report.yaml", GOOD), period)


def test_days_of_a_period_that_has_none():
    text = GOOD.replace("noise: gaussian", 'where: viewed_at >= "{first_day}"')
    with pytest.raises(
        ParameterError, match=r"^report.yaml:15: .*the days of --period autumn are not known: give a day"
    ):
        jobs(read_report("report.yaml", text), "autumn")


@pytest.mark.parametrize("name", ["none.yaml", "folder", "bytes.yaml"])
def test_a_file_that_cannot_be_read(tmp_path, name):
    (tmp_path / "folder").mkdir()
    (tmp_path / "bytes.yaml").write_bytes(b"data:\n  user: \xff\n")
    with pytest.raises(ParameterError) as refused:
        read_file(str(tmp_path / name))
    told = {"none.yaml": "there is no such file", "folder": "is a folder", "bytes.yaml": ":2: the file must be UTF-8"}
    assert told[name] in str(refused.value) and str(refused.value).startswith(str(tmp_path / name))
