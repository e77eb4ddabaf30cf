"""Object stores on this machine: real servers on loopback, which speak the protocols of S3 and Google Cloud Storage."""

import contextlib
import functools
import http.server
import json
import logging
import socket
import threading

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

BUCKET = "bucket"


@contextlib.contextmanager
def s3_server():
    """An S3 server with one empty bucket: its URL."""
    import boto3
    from botocore.loaders import JSONFileLoader
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "key")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        # Beam makes a client for each file, and each parses what AWS is like: two thirds of these tests.
        loader, files = JSONFileLoader(), functools.cache(JSONFileLoader.load_file)
        patch.setattr(JSONFileLoader, "load_file", lambda self, path: files(loader, path))
        boto3.client("s3", endpoint_url=url).create_bucket(Bucket=BUCKET)
        try:
            yield url
        finally:
            server.stop()


@contextlib.contextmanager
def gcs_server(directory):
    """A Google Cloud Storage server with one empty bucket, and an account of its own for its clients."""
    from gcp_storage_emulator.server import create_server

    logging.getLogger("gcp_storage_emulator").setLevel(logging.ERROR)
    port = free_port()
    server = create_server("127.0.0.1", port, in_memory=True, default_bucket=BUCKET)
    server.start()
    with google_account(directory), pytest.MonkeyPatch.context() as patch:
        patch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{port}")
        try:
            yield
        finally:
            server.stop()


@contextlib.contextmanager
def google_account(directory):
    """Default credentials for Google's clients: a service account whose tokens a server on this machine gives."""
    with json_server({("POST", "/token"): lambda _: {"access_token": "t", "expires_in": 3600}}) as url:
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        account = {
            "type": "service_account",
            "project_id": "project",
            "private_key_id": "1",
            "private_key": pem.decode(),
            "client_email": "headcount@project.iam.gserviceaccount.com",
            "token_uri": f"{url}/token",
        }
        path = directory / "account.json"
        path.write_text(json.dumps(account))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
            yield


@contextlib.contextmanager
def json_server(routes):
    """An HTTP server of JSON answers by (method, path): its URL. A route gets the request's body."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            content = json.dumps(routes[self.command, self.path](body)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = answer

        def log_message(self, *arguments):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
