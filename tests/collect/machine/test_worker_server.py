"""torch's worker server of a process, by its TCP port; other ports of the process are left alone."""

import contextlib
import json
import os
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from distdbg.collect.machine.worker_server import RequestFailed, WorkerServer, find_worker_server

STACKS = "Thread 0x1 (most recent call first):\n"


class Handler(BaseHTTPRequestHandler):
    def _answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def do_GET(self):
        self._answer(200, json.dumps(self.server.names))

    def do_POST(self):
        known = self.path == "/handler/dump_traceback?"
        self._answer(200 if known else 404, STACKS if known else "no such handler")

    def log_message(self, *_):
        pass


class Server(HTTPServer):
    address_family = socket.AF_INET6
    names = ("dump_traceback", "ping")


@pytest.fixture
def serve():
    """`serve(names)` starts an HTTP server on the wildcard address that lists these handlers, and returns its port."""
    servers = []

    def start(names):
        server = Server(("::", 0), Handler)
        server.names = names
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server.server_port

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def close_connection(listener):
    listener.accept()[0].close()


def test_server_is_found_among_other_ports(serve):
    with (
        socket.create_server(("127.0.0.1", 0)) as of_one_interface,
        socket.create_server(("::", 0), family=socket.AF_INET6) as of_other_protocol,
    ):
        threading.Thread(target=close_connection, args=[of_other_protocol], daemon=True).start()
        serve(["health"])
        port = serve(["dump_traceback", "fr_trace_json"])
        server = find_worker_server(os.getpid())
        assert server == WorkerServer(("::1", port))
        assert server.stacks(5.0) == STACKS
        with pytest.raises(RequestFailed, match="404"):
            server.ask("fr_trace_json", 5.0)
        of_one_interface.setblocking(False)
        with pytest.raises(BlockingIOError):
            of_one_interface.accept()


def send_slowly(listener):
    connection, _ = listener.accept()
    with connection, contextlib.suppress(OSError):
        for _ in range(60):
            connection.sendall(b"HTTP/1.0 200 OK\r\n")
            time.sleep(0.05)


def test_answer_that_goes_on_is_given_up_in_time():
    with socket.create_server(("::", 0), family=socket.AF_INET6) as listener:
        thread = threading.Thread(target=send_slowly, args=[listener], daemon=True)
        thread.start()
        with pytest.raises(RequestFailed, match=r"does not answer within 0\.3 s"):
            WorkerServer(("::1", listener.getsockname()[1])).handlers(0.3)
        thread.join()


def test_process_without_server_has_none(serve):
    serve(["health"])
    assert find_worker_server(os.getpid()) is None
    assert find_worker_server(2**22 + 1) is None
