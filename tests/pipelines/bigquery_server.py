"""BigQuery on this machine: the part of its REST and gRPC interfaces that Headcount uses, on loopback.

Written for these tests, and never compared with Google's own: etags and preconditions, job ids that are taken once, load jobs
that are done wholly or not at all, read sessions that are snapshots. It has never been compared with the real service.
"""

import contextlib
import http.server
import io
import itertools
import json
import re
import threading
from concurrent import futures

import grpc
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from google.api_core.exceptions import NotFound
from google.cloud.bigquery_storage_v1 import types as messages

from headcount.pipelines.storage import stores

ROWS_PER_MESSAGE = 100
MOST_STREAMS = 3
_ARROW_TYPES = {
    "STRING": pa.string(),
    "INTEGER": pa.int64(),
    "INT64": pa.int64(),
    "FLOAT": pa.float64(),
    "FLOAT64": pa.float64(),
    "BOOL": pa.bool_(),
    "DATE": pa.date32(),
    "TIME": pa.time64("us"),
    "DATETIME": pa.timestamp("us"),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "NUMERIC": pa.decimal128(38, 9),
    "BIGNUMERIC": pa.decimal256(76, 38),
}
_WORDS = {kind: word for word, kind in _ARROW_TYPES.items() if word not in ("INT64", "FLOAT64")}
_TABLES = re.compile(r"/bigquery/v2/projects/([^/]+)/datasets/([^/]+)/tables(?:/([^/]+))?")
_DATASETS = re.compile(r"/bigquery/v2/projects/([^/]+)/datasets/([^/]+)")
_JOBS = re.compile(r"/bigquery/v2/projects/([^/]+)/jobs(?:/([^/]+)(/cancel)?)?")
_SERVICE = "google.cloud.bigquery.storage.v1.BigQueryRead"


class Refusal(Exception):
    """An answer with an error status."""

    def __init__(self, status, reason):
        super().__init__(reason)
        self.status, self.reason = status, reason


class Warehouse:
    """The tables, jobs and read sessions of one dataset, project.dataset."""

    def __init__(self):
        self.tables = {}  # name -> resource
        self.rows = {}  # name -> pa.Table
        self.jobs = {}
        self.sessions = {}
        self.failing_loads = 0  # how many load jobs end with an internal error
        self.slow = False  # whether load jobs that have read their files go on until `finish`
        self._running = {}  # job id -> what they read
        self.broken_streams = set()  # names of streams that break off once
        self.loads = []
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    def add(self, name, rows, **resource):
        """A table with these rows, which somebody else made."""
        fields = [_field(field) for field in rows.schema]
        self.tables[name] = {"schema": {"fields": fields}, "type": "TABLE", "labels": {}, **resource}
        self.rows[name] = rows
        self._touch(name)

    def answer(self, method, path, query, body, etag):
        """The answer to one REST request, as a resource."""
        with self._lock:
            if matched := _JOBS.fullmatch(path):
                if matched[3]:
                    return self._cancel_job(matched[2])
                return self._insert_job(body) if method == "POST" else self._job(matched[2])
            if matched := _TABLES.fullmatch(path):
                if method == "POST":
                    return self._insert_table(body)
                return getattr(self, f"_{method.lower()}_table")(matched[3], body, etag)
            if matched := _DATASETS.fullmatch(path):
                if matched[2] != "dataset":
                    raise Refusal(404, "notFound")
                return {"datasetReference": {"projectId": matched[1], "datasetId": matched[2]}, "location": "EU"}
        raise Refusal(404, "notFound")

    def _touch(self, name):
        reference = {"projectId": "project", "datasetId": "dataset", "tableId": name}
        rows = self.rows[name]
        size = {"numBytes": str(rows.nbytes), "numRows": str(rows.num_rows), "etag": f"e{next(self._numbers)}"}
        self.tables[name].update(tableReference=reference, **size)

    def _get_table(self, name, body, etag):
        if name not in self.tables:
            raise Refusal(404, "notFound")
        return self.tables[name]

    def _insert_table(self, body):
        name = body["tableReference"]["tableId"]
        if name in self.tables:
            raise Refusal(409, "duplicate")
        self.tables[name] = {"type": "TABLE", "labels": {}, **body}
        self.rows[name] = pa.table({})
        self._touch(name)
        return self.tables[name]

    def _patch_table(self, name, body, etag):
        table = self._get_table(name, body, etag)
        if etag is not None and etag != table["etag"]:
            raise Refusal(412, "conditionNotMet")
        table.update({key: value for key, value in body.items() if key in ("description", "labels")})
        self._touch(name)
        return table

    def _delete_table(self, name, body, etag):
        self._get_table(name, body, etag)
        del self.tables[name], self.rows[name]
        return {}

    def _job(self, job_id):
        if job_id not in self.jobs:
            raise Refusal(404, "notFound")
        return self.jobs[job_id]

    def _insert_job(self, body):
        job_id = body["jobReference"]["jobId"]
        if job_id in self.jobs:
            raise Refusal(409, "duplicate")
        self.jobs[job_id] = {**body, "id": job_id, "status": {"state": "RUNNING"}, "statistics": {"load": {}}}
        load = body["configuration"]["load"]
        self._running[job_id] = load, self._read_files(load)
        if not self.slow:
            self._finish_job(job_id)
        return self.jobs[job_id]

    def _finish_job(self, job_id):
        self._end_job(job_id, self._load(*self._running.pop(job_id)))

    def _end_job(self, job_id, error):
        failed = {"errorResult": {"reason": error, "message": error}} if error else {}
        self.jobs[job_id]["status"] = {"state": "DONE", **failed}

    def _cancel_job(self, job_id):
        if self._job(job_id)["status"]["state"] != "DONE":
            del self._running[job_id]
            self._end_job(job_id, "stopped")
        return {"job": self.jobs[job_id]}

    def finish(self):
        """Ends the load jobs that go on, as BigQuery does some time."""
        for job_id in [*self._running]:
            self._finish_job(job_id)

    def _read_files(self, load):
        """The rows of the files; None if one is missing."""
        try:
            return [pq.read_table(io.BytesIO(stores.read(uri))) for uri in load["sourceUris"]]
        except NotFound:
            return None

    def _load(self, load, files):
        """All rows of the files in place of those of the table, or the reason of a failure and no change."""
        name = load["destinationTable"]["tableId"]
        if self.failing_loads:
            self.failing_loads -= 1
            return "internalError"
        if load["createDisposition"] != "CREATE_NEVER" or load["writeDisposition"] != "WRITE_TRUNCATE":
            return "notImplemented"
        if files is None or name not in self.tables:
            return "notFound"
        fields = load["schema"]["fields"]
        schema = pa.schema([(field["name"], _ARROW_TYPES[field["type"]]) for field in fields])
        rows = pa.concat_tables(files)
        wide = [pa.decimal128(38, 9) if pa.types.is_decimal(kind) else kind for kind in rows.schema.types]
        if rows.schema.names != schema.names or wide != schema.types:
            return "invalid"
        self.rows[name] = rows
        self.tables[name]["schema"] = load["schema"]
        self._touch(name)
        self.loads.append(name)
        return None

    def create_read_session(self, request, context):
        wanted = request.read_session
        table = wanted.table.rsplit("/", 1)[1]
        if table not in self.rows:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such table")
        chosen = _selected(self.rows[table], list(wanted.read_options.selected_fields))
        count = min(request.max_stream_count, MOST_STREAMS) if chosen.num_rows else 0
        name = f"{request.parent}/locations/eu/sessions/{next(self._numbers)}"
        streams = [messages.ReadStream(name=f"{name}/streams/{number}") for number in range(count)]
        for number, stream in enumerate(streams):
            start, stop = (chosen.num_rows * (number + k) // count for k in (0, 1))
            self.sessions[stream.name] = chosen.slice(start, stop - start)
        schema = messages.ArrowSchema(serialized_schema=chosen.schema.serialize().to_pybytes())
        return messages.ReadSession(name=name, arrow_schema=schema, streams=streams)

    def read_rows(self, request, context):
        rows = self.sessions[request.read_stream].slice(request.offset)
        for number, batch in enumerate(rows.combine_chunks().to_batches(max_chunksize=ROWS_PER_MESSAGE)):
            if number == 2 and request.read_stream in self.broken_streams:
                self.broken_streams.remove(request.read_stream)
                context.abort(grpc.StatusCode.UNAVAILABLE, "the connection broke")
            content = messages.ArrowRecordBatch(serialized_record_batch=_compressed(batch))
            yield messages.ReadRowsResponse(arrow_record_batch=content, row_count=batch.num_rows)


def _field(field):
    """The resource of a column."""
    kind, mode = field.type, {}
    if pa.types.is_list(kind):
        kind, mode = kind.value_type, {"mode": "REPEATED"}
    if pa.types.is_struct(kind):
        return {"name": field.name, "type": "RECORD", "fields": [_field(inner) for inner in kind], **mode}
    return {"name": field.name, "type": _WORDS.get(kind, "BYTES"), **mode}


def _selected(table, paths):
    """The columns of a table, of which each holds only the fields that paths lead to."""
    columns = {}
    for top in dict.fromkeys(path.split(".")[0] for path in paths):
        inner = [path.partition(".")[2] for path in paths if path.split(".")[0] == top]
        column = table.column(top).combine_chunks()
        if all(inner):
            held = _selected(pa.table(dict(zip(column.type.names, column.flatten(), strict=True))), inner)
            held = [each.combine_chunks() for each in held.columns]
            kept = list(dict.fromkeys(path.split(".")[0] for path in inner))
            column = pa.StructArray.from_arrays(held, kept, mask=column.is_null())
        columns[top] = column
    return pa.table(columns)


def _compressed(batch):
    """The one message of a batch in Arrow's stream format, as the service sends it."""
    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, batch.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_batch(batch)
    reader = pa.ipc.MessageReader.open_stream(pa.py_buffer(stream.getvalue()))
    reader.read_next_message()  # the schema
    return reader.read_next_message().serialize().to_pybytes()


@contextlib.contextmanager
def bigquery_server():
    """A warehouse behind its two interfaces, to which the environment leads Google's clients."""
    warehouse = Warehouse()
    with _rest(warehouse) as url, _grpc(warehouse) as host, pytest.MonkeyPatch.context() as patch:
        patch.setenv("BIGQUERY_EMULATOR_HOST", url)
        patch.setenv("BIGQUERY_STORAGE_EMULATOR_HOST", host)
        yield warehouse


@contextlib.contextmanager
def _rest(warehouse):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path, _, query = self.path.partition("?")
            try:
                etag = self.headers.get("If-Match")
                status, content = 200, warehouse.answer(self.command, path, query, json.loads(body or "{}"), etag)
            except Refusal as refusal:
                error = {"message": refusal.reason, "errors": [{"reason": refusal.reason}]}
                status, content = refusal.status, {"error": error}
            encoded = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(encoded)))
            self.end_headers()
            self.wfile.write(encoded)

        do_GET = do_POST = do_PATCH = do_DELETE = answer

        def log_message(self, *arguments):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


@contextlib.contextmanager
def _grpc(warehouse):
    handlers = {
        "CreateReadSession": grpc.unary_unary_rpc_method_handler(
            warehouse.create_read_session,
            messages.CreateReadSessionRequest.deserialize,
            messages.ReadSession.serialize,
        ),
        "ReadRows": grpc.unary_stream_rpc_method_handler(
            warehouse.read_rows, messages.ReadRowsRequest.deserialize, messages.ReadRowsResponse.serialize
        ),
    }
    server = grpc.server(futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(_SERVICE, handlers)])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None)
