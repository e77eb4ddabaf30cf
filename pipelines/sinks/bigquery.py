"""A result as a table of BigQuery: all its rows and its report, or no report.

An output is complete if and only if the table's description is the report. Rows are written as Parquet files under
--temp_location, as for an output of files; one load job, which BigQuery does wholly or not at all, replaces the rows of the
table by them, and the description follows. The load job's id is fixed when the pipeline is built, so that a commit that runs
again, or twice at once, loads once. Every change of the description holds only for the table that was looked at (its etag), so
that no attempt undoes what another one did.

A load job goes on when whoever started it was killed, and would replace the rows of the next run. Its id follows from the run
in the table's label, so whoever comes next ends it first.

A table is known for ours by its label. Other tables are never touched.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions

from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.sinks import output as sinks
from headcount.pipelines.sinks.finished import sealed
from headcount.pipelines.sinks.formats import as_text, plain_names
from headcount.pipelines.sinks.repeated import REPORT_MARK, changed, is_of, is_same, rows_digest
from headcount.pipelines.storage import bigquery, stores

if TYPE_CHECKING:
    from google.cloud.bigquery import Client

COMPLETE = "its description is the report"

_LABEL, _RELEASE = "headcount-run", "headcount-release"
_TYPES = {
    pa.string(): "STRING",
    pa.int64(): "INT64",
    pa.float64(): "FLOAT64",
    pa.bool_(): "BOOL",
    pa.date32(): "DATE",
    pa.timestamp("us", "UTC"): "TIMESTAMP",
    pa.timestamp("us"): "DATETIME",
    pa.decimal128(20): "NUMERIC",
}
_ATTEMPTS = 5
_PASSING = {"backendError", "internalError", "jobBackendError", "jobInternalError", "rateLimitExceeded", "timeout"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableTarget(sinks.Target):
    """One table, the project that is billed, and the run that writes it; the directory is where its files wait."""

    table: bigquery.Table
    project: str
    run: str

    def content(self, batch: pa.RecordBatch) -> bytes:
        """The bytes of one file, with names and types that a table can have."""
        columns = list(map(_column, batch.columns))
        return super().content(pa.RecordBatch.from_arrays(columns, names=plain_names(batch.schema.names, r"[^\w]")))

    def finished(self, report: bytes, files: Sequence[sinks.Written]) -> bytes:
        """The report with what is known of the rows; the files are gone once they are loaded, but a digest tells them."""
        content = json.loads(super().finished(report, files))
        details = content.pop("details", None)
        content["rows_sha256"] = rows_digest([file["sha256"] for file in content.pop("files")])
        return sealed(content if details is None else {**content, "details": details})

    @property
    def place_of_report(self) -> str:
        """The table, whose description is the report."""
        return f"{bigquery.SCHEME}{self.table}"


def make_target(
    output: str, release_id: str, files: int, format: str, overwrite: bool, prefix: str, options: PipelineOptions
) -> TableTarget:
    """The target of a command line."""
    table = bigquery.parse(output)
    if format != "parquet":
        raise ParameterError(f"--format {format} is of no use with --output {output!r}: leave it out")
    temporary = options.view_as(GoogleCloudOptions).temp_location
    if temporary is None or not temporary.startswith("gs://"):
        raise ParameterError(
            f"--output {output!r} is loaded from files: give --temp_location gs://bucket/folder, got {temporary!r}"
        )
    directory = stores.normal(f"{temporary.rstrip('/')}/{table}")
    project = bigquery.billed_project(options, table)
    return TableTarget(
        directory, release_id, files, format, overwrite, prefix, table=table, project=project, run=uuid.uuid4().hex
    )


def refuse(target: TableTarget) -> bool:
    """Before anything else: refuse a table that is there or cannot be made, and change nothing.

    True if there is an earlier output, which this one replaces; or one of this very release, which is only made once more.
    """
    with _writing(target):
        client = bigquery.client(target.project)
        client.get_dataset(f"{target.table.project}.{target.table.dataset}")
        table = _get(client, target.table)
        if table is not None:
            _refuse_foreign(target, table)
            if _has_report(table) and not target.overwrite and not is_of(target.release_id, table.description):
                raise ParameterError(f"--output {target.table} holds an output already: give another, or --overwrite")
        return table is not None and _has_report(table)


def prepare(target: TableTarget) -> None:
    """Before the run: refuse a table that is there or cannot be made, and remove what killed runs left."""
    refuse(target)
    with _writing(target):
        sinks.prepare_temporary(target)


def commit(target: TableTarget, written: Iterable[sinks.Written], report: bytes) -> None:
    """The last step of a job: load the files, then set the description. It may run again, or twice at once."""
    from google.api_core.exceptions import Conflict, NotFound, PreconditionFailed

    files = target.checked(written)
    client = bigquery.client(target.project)
    for _ in range(_ATTEMPTS):
        try:
            _commit(client, target, files, description(report))
            break
        except (PreconditionFailed, Conflict, NotFound):
            continue  # another attempt changed the table meanwhile, or removed the files of both: look again
    else:
        raise ParameterError(
            f"another job changed the table or files of this one: let one at a time write {target.table}"
        )
    sinks.discard(target)


def description(report: bytes) -> str:
    """The report as a table has it: without the spaces for a reader, as BigQuery takes 16,384 characters."""
    return json.dumps(json.loads(report), ensure_ascii=False, separators=(",", ":"))


def abandon(target: TableTarget) -> None:
    """After a failure: remove the temporary files, and a table that this run left without a report."""
    sinks.discard(target)
    client = bigquery.client(target.project)
    table = _get(client, target.table)
    if table is not None and _is_of_this_run(target, table) and not _has_report(table):
        client.delete_table(table, not_found_ok=True)  # a load job that still runs makes no new one


def abandon_dead(place: str, release_id: str) -> None:
    """Remove the table that a dead run of this release left without a report, and end its load job."""
    table = bigquery.parse(place)
    client = bigquery.client(table.project)
    found = _get(client, table)
    if found is not None and found.labels.get(_RELEASE) == _release_label(release_id) and not _has_report(found):
        _end_loads(client, table, found)
        client.delete_table(found, not_found_ok=True)


def read_report(target: TableTarget) -> bytes:
    """The report of a complete output."""
    return bigquery.client(target.project).get_table(str(target.table)).description.encode()


def written(target: TableTarget) -> list[str]:
    """No files: the rows are in the table."""
    return []


def _commit(client: Client, target: TableTarget, files: list[sinks.Written], report: str) -> None:
    table = _get(client, target.table)
    if table is not None and _is_of_this_run(target, table) and table.description == report:
        return
    sources = [stores.join(target.temporary, file.name) for file in files]
    schema = _schema(sources[0])
    if table is None:
        client.create_table(_new_table(target, schema))
    elif not _is_of_this_run(target, table):
        _refuse_foreign(target, table)
        if _has_report(table) and not target.overwrite:
            if not is_of(target.release_id, table.description):
                raise ParameterError(f"another job wrote to --output {target.table} meanwhile")
            if not is_same(table.description, report):
                raise changed(target.release_id, str(target.table))
            return
        if not _has_report(table):
            _end_loads(client, target.table, table)
        table.description = None
        table.labels = {**table.labels, **_labels(target)}
        client.update_table(table, ["description", "labels"])
    _load(client, target, sources, schema)
    table = client.get_table(str(target.table))
    if not _is_of_this_run(target, table):
        raise ParameterError(f"another job wrote to --output {target.table} meanwhile")
    table.description = report
    client.update_table(table, ["description"])


def _load(client: Client, target: TableTarget, sources: list[str], schema: list[Any]) -> None:
    """Replace the rows of the table by those of the files; once, however often it is called."""
    from google.api_core.exceptions import Conflict, GoogleAPICallError
    from google.cloud.bigquery import LoadJobConfig

    location = _location(client, target.table)
    config = LoadJobConfig(
        source_format="PARQUET", schema=schema, write_disposition="WRITE_TRUNCATE", create_disposition="CREATE_NEVER"
    )
    for attempt in range(_ATTEMPTS):
        job_id = _job_id(target.run, attempt)
        job: Any
        try:
            job = client.load_table_from_uri(
                sources, str(target.table), job_id=job_id, location=location, job_config=config
            )
        except Conflict:
            job = client.get_job(job_id, location=location)  # of another attempt of this commit
        try:
            job.result()
            return
        except GoogleAPICallError as error:
            # An id is used up by a job that failed.
            if (job.error_result or {}).get("reason") not in _PASSING or attempt == _ATTEMPTS - 1:
                raise RuntimeError(f"the load job {job_id} failed: {stores.reason(error)}") from None


def _end_loads(client: Client, table: bigquery.Table, found: Any) -> None:
    """End the load jobs of the run in a table's label, of which the last one may go on: behind this, none changes the table."""
    from google.api_core.exceptions import GoogleAPICallError, NotFound

    location = _location(client, table)
    for attempt in range(_ATTEMPTS):
        try:
            job: Any = client.get_job(_job_id(found.labels[_LABEL], attempt), location=location)
        except NotFound:
            return
        if job.state != "DONE":
            job.cancel()
            with suppress(GoogleAPICallError):  # that it was ended, or has failed
                job.result()


def _location(client: Client, table: bigquery.Table) -> Any:
    return client.get_dataset(f"{table.project}.{table.dataset}").location


def _job_id(run: str, attempt: int) -> str:
    return f"headcount-{run}-{attempt}"


def _labels(target: TableTarget) -> dict[str, str]:
    return {_LABEL: target.run, _RELEASE: _release_label(target.release_id)}


def _release_label(release_id: str) -> str:
    """A release in the letters that a label may have."""
    return hashlib.blake2b(release_id.encode(), digest_size=16).hexdigest()


def _column(column: pa.Array) -> pa.Array:
    """A column as one of the types that the load job knows for sure: what BigQuery has no type for is a text."""
    found = column.type
    if pa.types.is_uint64(found):
        return column.cast(pa.decimal128(20))
    if pa.types.is_integer(found) or pa.types.is_duration(found):
        return column.cast(pa.int64())
    if pa.types.is_date64(found):
        return column.cast(pa.date32())
    if pa.types.is_timestamp(found) and found.unit != "ns":
        return column.cast(pa.timestamp("us", None if found.tz is None else "UTC"))
    return as_text(column) if pa.types.is_temporal(found) and not pa.types.is_date(found) else column


def _schema(path: str) -> list[Any]:
    """The columns of the table, from the first of the files."""
    from google.cloud.bigquery import SchemaField

    with stores.open_ranges(path) as file:
        schema = pq.read_schema(file)
    return [SchemaField(field.name, _TYPES[field.type]) for field in schema]


def _new_table(target: TableTarget, schema: list[Any]) -> Any:
    from google.cloud.bigquery import Table

    table = Table(str(target.table), schema)
    table.labels = _labels(target)
    return table


def _get(client: Client, table: bigquery.Table) -> Any:
    from google.api_core.exceptions import NotFound

    try:
        return client.get_table(str(table))
    except NotFound:
        return None


def _is_of_this_run(target: TableTarget, table: Any) -> bool:
    return table.labels.get(_LABEL) == target.run


def _has_report(table: Any) -> bool:
    try:
        content = json.loads(table.description or "")
    except ValueError:
        return False
    return isinstance(content, Mapping) and REPORT_MARK in content


def _refuse_foreign(target: TableTarget, table: Any) -> None:
    """Refuse a table that we did not make, and one whose report somebody has put another description over."""
    if _LABEL not in table.labels or (table.description and not _has_report(table)):
        raise ParameterError(f"--output {target.table} is another table, which is never touched: give another name")


@contextmanager
def _writing(target: TableTarget) -> Iterator[None]:
    """Turns what Google's clients raise before the run into one line."""
    try:
        yield
    except ParameterError:
        raise
    except Exception as error:  # of storage, of credentials, of BigQuery
        raise ParameterError(f"cannot write to --output {target.table}: {stores.reason(error)}") from error
