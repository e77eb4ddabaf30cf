"""Columns that are not there, or hold objects: what a refusal says is to be given instead."""

import json

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headcount.mechanisms.errors import InputError
from headcount.pipelines.sources.columns import check_names, columns_of
from headcount.pipelines.sources.events import column_types, expand_inputs

CANARY = "CANARY-7f3a"
ROW = {"user": {"id": CANARY, "name": CANARY}, "item": CANARY}


def put(path, format):
    """One row whose user is an object."""
    if format == "parquet":
        pq.write_table(pa.Table.from_pylist([ROW]), path)
    elif format == "avro":
        fields = [{"name": name, "type": "string"} for name in ("id", "name")]
        user = {"name": "user", "type": ["null", {"type": "record", "name": "User", "fields": fields}]}
        schema = {"type": "record", "name": "Event", "fields": [user, {"name": "item", "type": "string"}]}
        with open(path, "wb") as file:
            fastavro.writer(file, schema, [ROW])
    else:
        path.write_text(json.dumps(ROW) + "\n")


@pytest.mark.parametrize("format", ["parquet", "avro", "jsonl"])
@pytest.mark.parametrize("columns", [("user", "item"), ("item", "user")])
def test_objects_are_no_ids_but_their_fields_may_be(tmp_path, format, columns):
    """A schema's names of fields are told; those of JSON lines may be data."""
    path = tmp_path / f"e.{format}"
    put(path, format)
    with pytest.raises(InputError) as caught:
        column_types(expand_inputs([str(path)]), columns_of(*columns))
    fields = "" if format == "jsonl" else " with the fields 'id', 'name'"
    row = ", row 1" if format == "jsonl" else ""
    said = f"an object{fields}: name one of its fields by its path, for instance user.id"
    assert str(caught.value) == f"{path}{row}: column 'user' is {said}"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("User_ID", "no column 'User_ID', did you mean 'user_id'? it has "),
        ("userid", "no column 'userid', did you mean 'user_id'? it has "),
        ("page", "no column 'page', did you mean 'page_url' or 'page_title'? it has "),
        ("country", "no column 'country'; it has "),
        ("item", "no column 'item'; it has "),
    ],
)
def test_close_names(asked, said):
    names = ["user_id", "page_url", "page_title", "when"]
    with pytest.raises(InputError) as caught:
        check_names("e.csv", columns_of(asked, "when"), names, is_schema=False)
    assert str(caught.value) == f"e.csv: {said}'user_id', 'page_url', 'page_title', 'when'"
    with pytest.raises(InputError) as caught:  # neither column is there: then these may be data
        check_names("e.csv", columns_of(asked, "what"), names, is_schema=False)
    assert "user_id" not in str(caught.value)
