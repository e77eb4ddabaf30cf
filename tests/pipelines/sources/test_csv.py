"""CSV: strict rows and counts, and refusals that hold nothing of the data."""

import pytest

from headcount.pipelines.sources import csv
from tests.pipelines.sources.event_files import CANARY, put, refusal, rows


def test_csv_details(tmp_path):
    content = b"\xef\xbb\xbf\r\nitem,user\r\nb,a\r\n\r\n,1e3\r\n"
    path = put(tmp_path, "e.csv", content)
    assert rows(path) == [{"user": "a", "item": "b"}, {"user": "1e3", "item": None}]
    path = put(tmp_path, "old.csv", b"user,item\ra,b\rc,d")
    assert rows(path) == [{"user": "a", "item": "b"}, {"user": "c", "item": "d"}]
    long = put(tmp_path, "wide.csv", b"user,item\n" + b"u" * 100_000 + b",i\n")
    assert len(rows(long)[0]["user"]) == 100_000


def ragged(line):
    return b"user,item\na,b\n\nc,d\n" + line + b"\n"


# What is wrong with a file, and what its refusal must say beside its name.
BAD_CSV = {
    "short row": (ragged(CANARY.encode()), ", row 3: 1 fields"),
    "long row": (ragged(f"{CANARY},a,b".encode()), ", row 3: 3 fields"),
    "long row that is not UTF-8": (ragged(f"{CANARY},a,".encode() + b"\xff"), ", row 3: 3 fields"),
    "not UTF-8": (ragged(f"{CANARY},".encode() + b"\xff"), ", row 3: column 'item'"),
    "open quote": (ragged(f'x,"{CANARY}'.encode()), "quote"),
    "open quote at the start": (ragged(f'"{CANARY},x'.encode()), "quote"),
    "open quote in the header": (f'user,"item\n{CANARY},b\n'.encode(), "not a CSV file"),
    "no header": (f"{CANARY},b\nc,d\n".encode(), "is its first row a header?"),
    "no bytes": (b"", "header"),
    "blank lines": (b"\n\n", "header"),
    "twice the same column": (f"user,item,item\n{CANARY},b,c\n".encode(), "'item' occurs 2 times"),
    "binary": (b"\x00\x01\x02" + CANARY.encode() + b"\n\xfe", "not a CSV file"),
    "UTF-16": (f"user,item\n{CANARY},b\n".encode("utf-16"), "not a CSV file"),
}


@pytest.mark.parametrize("case", BAD_CSV)
def test_bad_csv(tmp_path, case):
    content, words = BAD_CSV[case]
    path = put(tmp_path, "e.csv", content)
    message = refusal(path)
    assert path in message and words in message


def test_open_quote_over_many_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(csv, "BLOCK_BYTES", 64)
    path = put(tmp_path, "e.csv", b'user,item\na,"' + f"{CANARY}\nc,d\n".encode() * 50)
    assert "quote" in refusal(path)


@pytest.mark.parametrize("count", ["1.0", "1e3", " 1", "+1", "0x1", "", CANARY, "9223372036854775808", "1" * 5000, "٣"])
def test_csv_counts_are_strict(tmp_path, count):
    text = f'user,item,n\na,b,-9223372036854775808\nc,d,\ne,{CANARY},"{count}"\n'
    message = refusal(put(tmp_path, "e.csv", text.encode()), count="n")
    assert ", row 3: column 'n'" in message and "decimal integer" in message
    good = put(tmp_path, "good.csv", text.replace(count, "0042").encode() if count else b"user,item,n\na,b,1\n")
    assert rows(good, count="n")[-1]["n"] in (42, 1)
