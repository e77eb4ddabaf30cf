"""A week with the installed command, in one folder: every command that `cases` does not run, each in a process of its own."""

from __future__ import annotations

from headcount.pipelines.command import COMMANDS
from tests.as_run.cases import CASES

COUNT = "histogram --input visits.parquet --user user_id --item page --noise gaussian --epsilon 1 --delta 1e-8"
PROMISE = "--epsilon 1 --buckets 1000 --salt visits"
COUNTERS = f"--state counters {PROMISE}"
ACCOUNT = "--ledger sqlite:///ledger.db --dataset visits"
REPORT = """\
data: {input: visits.parquet, user: user_id}
key_file: report.key
ledger: sqlite:///ledger.db
dataset: visits
output: "reports/{period}"
releases: {pages: {command: histogram, item: page, epsilon: 0.5, delta: 1e-8}}
"""
# What is typed, and what the terminal then has. A line that begins with 2 is refused, by one line.
WEEK = (
    ("generate --law visits --rows 20000 --output visits.parquet", "wrote visits.parquet"),
    ("key report.key", "guard it like the data"),
    (
        "ledger create visits --limit-epsilon 8 --limit-delta 1e-6 --per year --ledger sqlite:///ledger.db",
        "epsilon = 8",
    ),
    (f"{COUNT} --explain", "epsilon = 1"),
    (f"{COUNT} --period w1 --output out --key-file report.key --release-id auto {ACCOUNT}", "to look at: "),
    ("show out --rows 5", "epsilon = 1"),
    ("show out --json", '"release_id"'),
    ("show out --html", "report.html"),
    ("verify out --input visits.parquet --key-file report.key", "complete and unchanged"),
    (f"statement out {ACCOUNT}", "epsilon"),
    ("ledger total visits --ledger sqlite:///ledger.db", "1 release"),
    ("ledger show visits --ledger sqlite:///ledger.db --html ledger.html", "ledger.html"),
    ("ledger resolve visits --ledger sqlite:///ledger.db", "no entry is reserved"),
    ("ledger export --ledger sqlite:///ledger.db --format csv", "histogram"),
    ("run --schema", "A report of Headcount"),
    ("run report.yaml --period w2 --check", "report.yaml can be run"),
    ("run report.yaml --period w2", "index.html"),
    ("plan report.yaml", "nothing is spent"),
    ("2 run report.yaml", "report.yaml:5: output has {period}, and no period is given"),
    ("forecast --like out --epsilon 1 --output forecast", "forecast.html"),
    ("forecast --users 2000 --events-per-user 10 --items 200 --skew 1 --epsilon 1 --json", '"forecasts"'),
    (
        "rehearse --public-data visits.parquet --user user_id --item page --epsilon 1,2 --methods histogram --question users "
        "--output rehearsed",
        "rehearse.html",
    ),
    ("total --input visits.parquet --user user_id --epsilon 1 --of users --output total-1", "users"),
    ("total --input visits.parquet --user user_id --epsilon 1 --of users --output total-2", "users"),
    ("diff total-1 total-2", "false alarm"),
    ("series total-1 total-2 --output series", "changes.html"),
    (
        "randomize --of tea --epsilon 1 --delta 1e-8 --relation replace --users 100000 --buckets 400000 --salt may "
        "--output messages.parquet",
        "",
    ),
    (f"counters --start {COUNTERS}", ""),
    (f"counters --batch monday --input visits.parquet --item page {COUNTERS}", ""),
    (f"shape --model pan-private --input counters --samples 20000 --output shape {PROMISE}", "to look at: "),
    ("2 explain-yaml pipeline.yaml", "pip install '.[yaml]'"),
    ("2 count --input visits.parquet", "histogram"),
    (
        "2 stream total --input visits.parquet --user user_id --time viewed_at --every day --from 2026-11-02 --windows 3 "
        "--wait 1h --output releases --epsilon 1",
        "--runner PrismRunner",
    ),
    ("audit total --runs 60", "nothing was found above what is stated"),
    ("completion bash", "complete -o default"),
    ("demo --rows 20000", "report.html"),
    ("-V", "headcount "),
    ("--help", "what do you want to know?"),
)


def test_a_week_with_the_command(run, tmp_path):
    (tmp_path / "report.yaml").write_text(REPORT)
    for line, expected in WEEK:
        words = line.removeprefix("2 ").split()
        done = run(*words)
        assert "Traceback" not in done.stdout + done.stderr, (line, done.stderr)
        assert done.returncode == (2 if line.startswith("2 ") else 0), (line, done.stdout, done.stderr)
        assert expected in done.stdout + done.stderr, (line, done.stdout, done.stderr)
    assert (tmp_path / "ledger.html").exists() and (tmp_path / "rehearsed" / "rehearse.csv").exists()


def test_every_command_is_run():
    run = {line.removeprefix("2 ").split()[0] for line, _ in WEEK} | {case.words.split()[0] for case in CASES.values()}
    assert {*COMMANDS} <= run
