"""The progress line: words, what is left, and silence where there is no terminal."""

import io
import os
import pty
import re
import sys
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headcount.pipelines import progress
from headcount.pipelines.progress import Seen, Step, time_left, weights
from headcount.pipelines.sources import events

# The stages of two jobs on a synthetic log of 10,000,000 rows (`generate --law tail`), and their seconds: histogram, and
# histogram --method one-stage.
ESTIMATES = (
    "R11.41 F5.23 o.73 o.06 o.07 l1.76 o.53 o.41 o.04 l1.18 o.56 o.47 o.02 o.01 l.70 l1.32 o.09 o.07 l.75 o.12 o.18 "
)
ESTIMATES += "o.05 o.06 l.79 o.04 o.04 o.02 o.16 o.01 o.02"
ONE_STAGE = "R11.0 F8.1 o2.4 o.1 o.1 l5.9 o1.4 o.6 o.05 o.02 o.05 o.02"
WEIGHTS = {"R": 10.0, "F": 4.5, "l": 1.0, "o": 0.2}


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_line():
    assert progress.line(Seen(elapsed=1.2)) == "starting, 0:01"
    read = Seen(3_000_000, None, 2.0, 75.0, "reading", 2, 31)
    assert progress.line(read) == "reading 3,000,000 rows, 1,500,000/s, 1:15"
    text = progress.line(read._replace(expected=10_000_000, left=130.0))
    assert text == "reading 30% of about 10,000,000 rows, 1,500,000/s, 1:15, about 2:10 left" and len(text) < 80
    counting = Seen(10, 10, 2.0, 75.0, "choose names", 3, 31, (4, 9), 7.4)
    assert progress.line(counting) == "step 3 of 31, choose names: 4 of 9 parts, 1:15, about 0:07 left"
    assert progress.line(counting._replace(left=0.2, parts=(0, 1))) == "step 3 of 31, choose names, 1:15, nearly done"
    assert progress.line(read._replace(rows=11, expected=10)).startswith("reading 100% of about 10 rows")


@pytest.mark.parametrize(("seconds", "words"), [(0.9, "0:00"), (65, "1:05"), (3599, "59:59"), (3605, "1:00:05")])
def test_minutes(seconds, words):
    assert progress.minutes(seconds) == words


def test_steps_are_named_and_weighed_by_what_they_do():
    grouped = "group:ref_AppliedPTransform_Histogram-UserShards-GroupByShard_17"
    steps = [
        Step("a", ("Read/Files/Map(decode)", "Read/Spread/Write"), frozenset({"impulse"}), frozenset({"group:s"})),
        Step("b", ("Read/Spread/Read", "Read/Batches", "Contributions/ToBatches"), frozenset({"group:s"})),
        Step("c", ("Histogram/ChooseNames/ParDo(_T)",), frozenset({grouped}), frozenset({"materialize:1", "group:2"})),
        Step("d", ("ref_P_1/Read", "Histogram/NamedItems/Round1/Bounded"), frozenset({"materialize:1"})),
        Step("e", ("Histogram/Round2/Read", "Histogram/Round2/Merge/ParDo(_Merge)"), frozenset({"group:2"})),
        Step("f", ("Output/Gather/Read", "Output/Commit"), frozenset({"group:3"})),
        Step("g", ("ref_PCollection_PCollection_4/Read",)),
    ]
    assert weights(steps) == [0.2, 10.0, 4.5, 1.0, 0.2, 0.2, 0.2]
    assert [step.description for step in steps[1:]] == [
        "reading",
        "choose names",
        "named items",
        "round 2",
        "commit",
        "counting",
    ]


def simulated(profile, slower=1.0):
    """(seconds that are truly left, seconds that are told) at ten looks into each step of a recorded run."""
    kinds, seconds = zip(*[(word[0], slower * float(word[1:])) for word in profile.split()], strict=True)
    shares = [WEIGHTS[kind] for kind in kinds]
    for k, kind in enumerate(kinds):
        for look in range(1, 11):
            part = look / 10 if kind in "RF" else None
            spent = [each if j < k else 0.0 for j, each in enumerate(seconds)]
            told = time_left(shares, spent, k, seconds[k] * (look - 0.5) / 10, part)
            yield sum(seconds[k:]) - seconds[k] * (look - 0.5) / 10, told


@pytest.mark.parametrize("profile", [ESTIMATES, ONE_STAGE])
@pytest.mark.parametrize("slower", [1, 20])
def test_what_is_left_is_about_right(profile, slower):
    """Once a twentieth is over, within a factor of two of the truth, or a tenth of the whole run."""
    looks = [*simulated(profile, slower)]
    whole = looks[0][0]
    for left, told in looks:
        if whole - left > whole / 20:
            assert told is not None
            assert left / 2 - whole / 10 <= told <= 2 * left + whole / 10, (left, told)


def test_nothing_is_said_of_what_is_not_known():
    assert time_left([10, 4.5], [0, 0], 0, 5.0, None) is None
    assert time_left([10, 4.5], [0, 0], 0, 0.1, 0.01) is None
    assert time_left([10, 4.5], [10, 0], 1, 99.0, None) == 0, "a step that takes longer than it should"
    assert time_left([10, 4.5], [10, 0], 1, 1.0, 0.1) == pytest.approx(9.0), "it knows better itself"


def test_rows_are_expected_by_the_first_file(tmp_path):
    table = pa.table({"user": [f"u{k}" for k in range(1000)]})
    for name in ("a", "b"):
        pq.write_table(table, tmp_path / f"{name}.parquet")
    assert events.expected_rows(events.expand_inputs([str(tmp_path / "a.parquet")])) == 1000
    assert events.expected_rows(events.expand_inputs([str(tmp_path)])) == 2000
    text = tmp_path / "text"
    text.mkdir()
    (text / "a.csv").write_text("user\n" + "".join(f"u{k:06d}\n" for k in range(100_000)))
    assert events.expected_rows(events.expand_inputs([str(text)])) == pytest.approx(100_000, rel=0.01)
    (text / "a.csv").write_text("")
    assert events.expected_rows(events.expand_inputs([str(text)])) is None
    (tmp_path / "b.parquet").unlink()
    (tmp_path / "a.parquet").write_bytes(b"damaged")
    assert events.expected_rows(events.expand_inputs([str(tmp_path / "a.parquet")])) is None


def until(terminal, text):
    deadline = time.monotonic() + 10
    while text not in terminal.getvalue() and time.monotonic() < deadline:
        time.sleep(0.01)
    return text in terminal.getvalue()


def test_a_terminal_sees_rows_and_steps(monkeypatch):
    monkeypatch.setattr(progress, "_INTERVAL", 0.01)
    terminal = Terminal()
    with progress.Progress(terminal, lambda: 4000):
        progress.planned([Step("r", ("Read/Batches",)), Step("c", ("Total/Counts/Sum",))])
        progress.begins("r", None, lambda: None)
        progress.advance(1000)
        progress.advance(1000)
        assert until(terminal, "reading 50% of about 4,000 rows") and until(terminal, "nearly done")
        progress.ends()
        progress.begins("c", 5, lambda: 3)
        assert until(terminal, "step 2 of 2, counts: 2 of 5 parts")
        progress.ends()
    assert "2,000 rows in" in terminal.getvalue().rsplit("\x1b[K", 1)[1]


def test_anything_else_sees_nothing():
    stream, asked = io.StringIO(), []
    with progress.Progress(stream, lambda: asked.append(1)):
        progress.advance(1000)
    assert stream.getvalue() == "" and asked == [], "and nobody counts the rows of files for it"


def test_a_failed_run_has_no_summary_and_the_next_starts_at_zero():
    terminal = Terminal()
    try:
        with progress.Progress(terminal):
            progress.advance(1000)
            raise RuntimeError
    except RuntimeError:
        pass
    assert "rows in" not in terminal.getvalue()
    with progress.Progress(terminal):
        pass
    assert "rows in" not in terminal.getvalue()


@pytest.mark.slow("jobs")
@pytest.mark.parametrize(
    ("more", "step"), [("--shards 4", r"step \d+ of \d+, choose names: \d of 4 parts"), ("", "step 2 of 2, count")]
)
def test_what_a_user_sees(tmp_path, more, step):
    """A job on a pseudo-terminal, on Beam and without: rows, steps, what is left; at the end the summary alone remains."""
    rows = 300_000
    table = {"user": [f"u{k * 7919 % 40_000}" for k in range(rows)], "item": [f"i{k * 31 % 997}" for k in range(rows)]}
    pq.write_table(pa.table(table), tmp_path / "events.parquet", row_group_size=20_000)
    words = f"histogram --input {tmp_path}/events.parquet --user user --item item --epsilon 1 --delta 1e-6 {more}"
    code = (
        "import sys; from headcount.pipelines import progress; progress._INTERVAL = 0.005\n"
        "from headcount.pipelines.main import main; sys.exit(main(sys.argv[1:]))"
    )
    seen = bytearray()

    def read(fd):
        data = os.read(fd, 1 << 16)
        seen.extend(data)
        return data

    with open(os.devnull, "wb") as nowhere:
        kept = os.dup(1)
        os.dup2(nowhere.fileno(), 1)  # where pty.spawn copies it to
        try:
            status = pty.spawn([sys.executable, "-c", code, *words.split(), "--output", f"{tmp_path}/out"], read)
        finally:
            os.dup2(kept, 1)
            os.close(kept)
    text = seen.decode()
    assert status == 0, text
    lines = [line.strip() for line in re.split(r"\r\x1b\[K|\r\n", text)]
    assert any(re.fullmatch(r"reading \d+% of about 300,000 rows, [\d,]+/s, 0:\d\d.*", line) for line in lines)
    assert any(re.fullmatch(rf"{step}, 0:\d\d.*", line) for line in lines), lines
    assert any(line.endswith(" left") or line.endswith("nearly done") for line in lines)
    assert max(len(line) for line in lines[: lines.index(next(x for x in lines if "rows in" in x))]) < 80
    assert re.search(r"\r\x1b\[K300,000 rows in [\d.]+ s, [\d,]+ rows/s\r\n", text)


def test_a_notebook_keeps_what_is_printed_and_so_nothing_exact_is(monkeypatch):
    """The environment that Jupyter gives its kernels: a line of the shell has a terminal there."""
    monkeypatch.setenv("JPY_PARENT_PID", "1")
    terminal = Terminal()
    with progress.Progress(terminal, lambda: 4000):
        progress.advance(1000)
    assert terminal.getvalue() == ""
