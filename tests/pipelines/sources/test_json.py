"""JSON lines: strict objects and integers, and refusals that hold nothing of the data."""

import pytest

from headcount.mechanisms.columns.preparation import preparation
from headcount.mechanisms.columns.value_ranges import AutoRange
from headcount.mechanisms.errors import InputError
from headcount.pipelines.sources import json as source_json
from tests.pipelines.sources.event_files import CANARY, json_lines, put, refusal, rows


def test_json_details(tmp_path):
    lines = (
        b'\xef\xbb\xbf{"user": 5, "item": null}\r\n\r\n  {"item": "\\ud83d\\ude00"}\n{"user": -0, "item": "2020-01-01"}'
    )
    assert rows(put(tmp_path, "e.json", lines)) == [
        {"user": 5, "item": None},
        {"user": None, "item": "\U0001f600"},
        {"user": 0, "item": "2020-01-01"},
    ]


def test_json_parsers_agree(tmp_path, monkeypatch):
    """What Arrow's parser accepts, Python's reads alike."""
    records = [{"user": u, "item": i, "n": [1, {}]} for u, i in ((1, "a"), (2**63 - 1, "é\u0000"), (None, None))]
    path = put(tmp_path, "e.jsonl", json_lines([*records, {}]))
    fast = rows(path)
    monkeypatch.setattr(source_json, "_parse_block", lambda *given: None)
    assert rows(path) == fast == [*({k: r[k] for k in ("user", "item")} for r in records), {"user": None, "item": None}]


@pytest.mark.parametrize("first", ["3", "true", '"a"', "null", "-0"])
@pytest.mark.parametrize("parser", ["Arrow's where it can", "Python's"])
def test_whole_numbers_and_truths_are_texts_whatever_the_first_row_holds(tmp_path, monkeypatch, first, parser):
    told = {"3": "3", "true": "true", '"a"': "a", "null": None, "-0": "0"}
    content = f'{{"user": "a", "item": {first}}}\n' * 2
    if parser == "Python's":
        monkeypatch.setattr(source_json, "_parse_block", lambda *given: None)
    assert [row["item"] for row in rows(put(tmp_path, "same.jsonl", content.encode()))] == [told[first]] * 2
    mixed = content + "".join(f'{{"user": "a", "item": {value}}}\n' for value in (*told, f"{10**30}"))
    expected = [told[first]] * 2 + [*told.values(), f"{10**30}"]
    assert [row["item"] for row in rows(put(tmp_path, "mixed.jsonl", mixed.encode()))] == expected


def test_numbers_in_columns_of_texts_take_no_slow_way(tmp_path, monkeypatch):
    records = [{"user": 1, "item": {"code": k, "on": k > 1, "tags": [k, 9]}} for k in range(3)]
    path = put(tmp_path, "e.jsonl", json_lines(records))
    monkeypatch.setattr(source_json, "_parse_lines", None)
    assert [row["item.code"] for row in rows(path, item="item.code")] == ["0", "1", "2"]
    assert [row["item.on"] for row in rows(path, item="item.on")] == ["false", "false", "true"]
    assert [row["item.tags"] for row in rows(path, item="item.tags", explode="item.tags")][0] == ["0", "9"]


# What is wrong with a file, and what its refusal must say beside its name.
BAD_JSON = {
    "number for a string": (f'{{"user": "{CANARY}", "item": 3.5}}', ", row 4: column 'item' is not a string"),
    "boolean": (f'{{"user": true, "item": "{CANARY}"}}', ", row 4: column 'user' is not a string"),
    "array": (f'{{"user": "a", "item": ["{CANARY}"]}}', ", row 4: column 'item' is a list: give --explode item"),
    "object": (f'{{"user": {{"user": "{CANARY}"}}, "item": "b"}}', ", row 4: column 'user' is an object: name one"),
    "half a pair": (f'{{"user": "{CANARY}\\ud800", "item": "b"}}', ", row 4: column 'user' is not a string"),
    "broken": (f'{{"user": "{CANARY}", "item": ', ", row 4: not a JSON object"),
    "two on a line": (f'{{"user": "{CANARY}", "item": "b"}} {{}}', ", row 4: not a JSON object"),
    "null after it": (f'{{"user": "{CANARY}", "item": "b"}} null', ", row 4: not a JSON object"),
    "over two lines": (f'{{"user": "{CANARY}",\n "item": "b"}}', ", row 4: not a JSON object"),
    "not an object": (f'["{CANARY}"]', ", row 4: not a JSON object"),
    "null": ("null", ", row 4: not a JSON object"),
    "nested too deep": ('{"user": ' + "[" * 100_000 + f'"{CANARY}"', ", row 4: not a JSON object"),
}


@pytest.mark.parametrize("case", BAD_JSON)
def test_bad_json(tmp_path, case):
    line, words = BAD_JSON[case]
    good = '{"user": "a", "item": "b"}\n'
    path = put(tmp_path, "e.jsonl", f"{good}{good}\n{good}{line}\n{good}".encode())
    message = refusal(path)
    assert path + words in message


@pytest.mark.parametrize("line", ["null", f'"{CANARY}"', "[]", "[{", "3", f"{CANARY}", '{"user": "\\'])
def test_bad_first_row_of_json(tmp_path, line):
    assert ", row 1: not a JSON object" in refusal(put(tmp_path, "e.jsonl", line.encode()))
    table = put(tmp_path, "two.jsonl", b'{"user": "a", "item": "b"}\n')
    assert "e.jsonl, row 1: not a JSON object" in refusal([table, put(tmp_path, "e.jsonl", line.encode())])


@pytest.mark.parametrize("value", ["2.0", "1e3", "9223372036854775808", '"7"', "true", "NaN"])
def test_json_integers_are_strict(tmp_path, value):
    content = f'{{"user": "{CANARY}", "item": 5, "n": 5}}\n{{"item": {value}, "n": {value}}}\n'
    path = put(tmp_path, "e.jsonl", content.encode())
    assert ", row 2: column 'item' is not an integer: ask for texts and whole numbers as item" in refusal(
        path, item="item:int"
    )
    path = put(tmp_path, "n.jsonl", content.replace(f'"item": {value}', '"item": 1').encode())
    assert ", row 2: column 'n' is not an integer, as counts are" in refusal(path, count="n", item="item:int")


def test_json_not_utf8(tmp_path):
    path = put(
        tmp_path, "e.jsonl", b'{"user": "a", "item": "b"}\n{"user": "' + CANARY.encode() + b'\xff", "item": "b"}\n'
    )
    assert ", row 2: not a JSON object; give one object per line, as UTF-8 text" in refusal(path)


@pytest.mark.parametrize("value", ["1.5", "false", "9223372036854775808"])
def test_json_ids_of_the_first_row(tmp_path, value):
    path = put(tmp_path, "e.jsonl", f'{{"user": {value}, "item": "{CANARY}"}}\n'.encode())
    assert ", row 1: column 'user' is not an integer, users and items must be" in refusal(path)


def test_long_json_line(tmp_path, monkeypatch):
    monkeypatch.setattr(source_json, "BLOCK_BYTES", 16)
    monkeypatch.setattr(source_json, "LONGEST_LINE", 64)
    path = put(tmp_path, "e.jsonl", b'{"user": "' + CANARY.encode() * 20 + b'", "item": "b"}\n')
    assert "one JSON object per line" in refusal(path)


TOKENS = ["1", "-0", "-0.0", "1.5", "1E3", f"{2**53 + 1}", f"{2**63}", f"{2**1001}", "NaN", "true", "null", '"a"', "[]"]
ASKED = {
    "texts": {"item": "w"},
    "integers": {"item": "w:int"},
    "bins": {"item": "w:0,5"},
    "values": {"carried": [AutoRange("w")]},
    "values that are compared": {"carried": [AutoRange("w")], "prepare": preparation("w != 7 or w is null")},
    "counts that are compared": {"count": "w", "prepare": preparation("w != 7 or w is null")},
    "lists": {"item": "w:0,5", "explode": "w"},
}


@pytest.mark.seconds
@pytest.mark.parametrize("asked", ASKED)
def test_a_row_is_the_same_whatever_else_is_in_its_block(tmp_path, monkeypatch, asked):
    """And it is refused, or not, by itself. The bytes are compared: -0 is 0."""

    def found(tokens):
        held = [f"[{token}]" if asked == "lists" else token for token in tokens]
        lines = "".join(f'{{"user": "{k}", "item": "{CANARY}", "w": {token}}}\n' for k, token in enumerate(held))
        try:
            return list(map(repr, rows(put(tmp_path, "e.jsonl", lines.encode()), **ASKED[asked])))
        except InputError:
            return None

    with monkeypatch.context() as patch:
        patch.setattr(source_json, "_parse_block", lambda *given: None)
        by_itself = {token: [found([token]), found(["null", token])] for token in TOKENS}
    for first in TOKENS:
        for then in TOKENS:
            one, two = by_itself[first][0], by_itself[then][1]
            expected = None if one is None or two is None else [one[0], two[-1]]
            assert found([first, then]) == expected, (first, then)
