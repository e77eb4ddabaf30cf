"""A Secret Manager on this machine that Google's own client talks to, unchanged, as it does in production.

The client asks for `secretmanager.googleapis.com:443` by a proxy that leads here (the variable `grpc_proxy`), trusts the
certificate made here (`GRPC_DEFAULT_SSL_ROOTS_FILE_PATH`) and signs in with a service account made here
(`GOOGLE_APPLICATION_CREDENTIALS`). Nothing of ours is replaced, and nothing leaves the machine.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import socket
import socketserver
import threading
from collections.abc import Iterator, Mapping
from concurrent import futures
from pathlib import Path
from typing import Any

import google_crc32c
import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.cloud import secretmanager_v1 as secretmanager

HOST = "secretmanager.googleapis.com"
ACCOUNT = "worker@p1.iam.gserviceaccount.com"
DAMAGED = "damaged"  # a secret of this name arrives with a checksum that is not its own
UNCHECKED = "unchecked"  # and one of this name without any


class SecretManager:
    """Serves these payloads, by resource name. `environment` leads a process here; `asked` are the names asked for."""

    def __init__(self, payloads: Mapping[str, bytes], environment: Mapping[str, str]) -> None:
        self.payloads = payloads
        self.environment = environment
        self.asked: list[str] = []

    def access(self, request: Any, context: grpc.ServicerContext) -> Any:
        """AccessSecretVersion."""
        self.asked.append(request.name)
        if not dict(context.invocation_metadata()).get("authorization", "").startswith("Bearer "):
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "no credentials")
        if request.name not in self.payloads:
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "Permission denied on resource (or it may not exist).")
        data = self.payloads[request.name]
        checksum = google_crc32c.value(data)
        payload = {"data": data, "data_crc32c": checksum ^ (f"/{DAMAGED}/" in request.name)}
        if f"/{UNCHECKED}/" in request.name:
            del payload["data_crc32c"]
        return secretmanager.AccessSecretVersionResponse(name=request.name, payload=payload)


@contextlib.contextmanager
def running(payloads: Mapping[str, bytes], directory: Path) -> Iterator[SecretManager]:
    """Serve these payloads; certificate and account lie in the directory."""
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    roots, account = directory / "roots.pem", directory / "account.json"
    roots.write_bytes(_certificate(private))
    fields = {"type": "service_account", "project_id": "p1", "private_key_id": "1", "private_key": pem.decode()}
    fields |= {"client_email": ACCOUNT, "client_id": "1", "token_uri": "https://oauth2.invalid/token"}
    account.write_text(json.dumps(fields))

    server = grpc.server(futures.ThreadPoolExecutor(4))
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(pem, roots.read_bytes())]))
    proxy = socketserver.ThreadingTCPServer(("127.0.0.1", 0), _connect_to(port))
    proxy.daemon_threads = True
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    environment |= {
        "grpc_proxy": f"http://127.0.0.1:{proxy.server_address[1]}",
        "no_grpc_proxy": "localhost,127.0.0.1",  # as Beam talks to its workers
        "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(roots),
        "GOOGLE_APPLICATION_CREDENTIALS": str(account),
    }
    manager = SecretManager(payloads, environment)
    method = grpc.unary_unary_rpc_method_handler(
        manager.access,
        request_deserializer=secretmanager.AccessSecretVersionRequest.deserialize,
        response_serializer=secretmanager.AccessSecretVersionResponse.serialize,
    )
    service = "google.cloud.secretmanager.v1.SecretManagerService"
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {"AccessSecretVersion": method})])
    server.start()
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    try:
        yield manager
    finally:
        proxy.shutdown()
        proxy.server_close()
        server.stop(None)


def _certificate(private: rsa.RSAPrivateKey) -> bytes:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, HOST)])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(name, name, private.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(
        now + datetime.timedelta(days=1)
    )
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST)]), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    return builder.sign(private, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _connect_to(port: int) -> type[socketserver.BaseRequestHandler]:
    """A proxy's answer to CONNECT, for one host: whoever asks for it is led to the port."""

    class Tunnel(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            asked = self.rfile.readline().decode()
            while self.rfile.readline().strip():
                pass
            if not asked.startswith(f"CONNECT {HOST}:443 "):
                self.wfile.write(b"HTTP/1.1 403 Forbidden\r\n\r\n")
                return
            with socket.create_connection(("127.0.0.1", port)) as there:
                self.wfile.write(b"HTTP/1.1 200 Connected\r\n\r\n")
                back = threading.Thread(target=_copy, args=(there, self.connection), daemon=True)
                back.start()
                _copy(self.connection, there)
                back.join()

    return Tunnel


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
