"""How long `headcount ledger total` takes for releases of mixed kinds, no two alike: seconds of the processor.

    python benchmarks/ledger.py --releases 2 16 100

Each release promises what a command of its kind would, at an epsilon of its own. The time is that of the whole command without
that of `headcount ledger show`, which reads the same entries and adds up nothing.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile

from _shared import headcount, run

from headcount.mechanisms.accounting.guarantee import Guarantee
from headcount.pipelines import parser
from headcount.pipelines.command import JobCommand, load
from headcount.pipelines.ledger import tables
from headcount.pipelines.ledger.database import Database
from headcount.pipelines.ledger.records import guarantee_text, make_dataset, now, who

KINDS = (
    "histogram --item i --of events --epsilon {e} --delta 1e-8",
    "histogram --item i --of users --epsilon {e} --delta 1e-8",
    "histogram --item i --of events --method one-stage --bound 5 --epsilon {e} --delta 1e-8",
    "histogram --item i --of events --method one-stage --epsilon {e} --delta 1e-8",
    "aggregate --item i --users --sum v:0:9 --epsilon {e} --delta 1e-8",
    "aggregate --item i --mean v:0:9 --quantile 0.5:v:0:9 --rho {r} --delta 1e-8",
    "total --epsilon {e}",
    "partitions --item i --epsilon {e} --delta 1e-8",
    "top --item i --k 10 --epsilon {e} --delta 1e-8",
    "heavy-hitters --item i --phi 0.05 --epsilon {e} --delta 1e-8",
    "quantiles --value v --lo 0 --hi 9 --quantile 0.5 --epsilon {e} --delta 1e-8",
    "count-release --item i --rho {r} --delta 1e-8",
    "plume --item i --max-items 3 --rho {r} --delta 1e-8",
    "sampled --item i --epsilon {e} --delta 1e-8",
    "shape --item i --property distinct-items --epsilon {e} --delta 1e-8",
    "choose-bound --item i --for-epsilon 1 --for-delta 1e-8 --epsilon {e}",
)


def promises(number: int) -> list[Guarantee]:
    """What this number of releases promises, by turns of every kind."""
    drawn, found = random.Random(1), []
    for k in range(number):
        epsilon = round(drawn.uniform(0.02, 0.2), 4)
        name, *words = KINDS[k % len(KINDS)].format(e=epsilon, r=round(epsilon**2 / 20, 7)).split()
        command = load(name)
        assert isinstance(command, JobCommand)
        args, _ = parser.parse(command, [*words, "--input", "x", "--user", "u", "--output", "o"])
        command.check(args)
        found.append(command.make_mechanism(args, str).guarantee())
    return found


def write(url: str, made: list[Guarantee]) -> None:
    """A ledger of these, as if each had been released: they are put into its tables, without asking whether they fit."""
    from headcount.pipelines.ledger.book import Ledger

    database = Database(url)
    Ledger(database).create(make_dataset("visits", "user", "add-remove", 5, 1e-5, None))
    with database.writing() as connection:
        for k, each in enumerate(made):
            row = {"dataset": "visits", "span": "", "release_id": f"r{k}", "command": "histogram", "files": "counts"}
            row |= {
                "guarantee": guarantee_text(each),
                "parameters_sha256": "0" * 64,
                "process": "{}",
                "user_column": "u",
            }
            added = connection.execute(tables.entries.insert().values(**row)).inserted_primary_key
            assert added is not None
            connection.execute(tables.changes.insert().values(entry=added[0], state="committed", at=now(), who=who()))


def main() -> None:
    """Measures both commands on ledgers of these sizes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--releases", type=int, nargs="+", default=[2, 16, 100], metavar="N")
    parser.add_argument("--repeats", type=int, default=3, metavar="N")
    args = parser.parse_args()
    made = promises(max(args.releases))
    for number in args.releases:
        with tempfile.TemporaryDirectory() as folder:
            url = f"sqlite:///{folder}/ledger.db"
            write(url, made[:number])
            least = {
                what: min(run(headcount(["ledger", what, "visits", "--ledger", url]))[1] for _ in range(args.repeats))
                for what in ("total", "show")
            }
        print(
            f"{number:>4} releases: {least['total'] - least['show']:.2f} s of the processor",
            file=sys.stdout,
            flush=True,
        )


if __name__ == "__main__":
    main()
