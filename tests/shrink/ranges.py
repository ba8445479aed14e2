"""A server on this machine that serves a folder by byte ranges, and can cut connections."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@contextmanager
def served(folder: Path, cut_after: int = 0, cuts: int = 0, ranges: bool = True) -> Iterator[str]:
    """The base URL. The first `cuts` answers that are longer than `cut_after` bytes end there."""
    left = [cuts]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = folder / self.path.partition("?")[0].lstrip("/")
            if not path.is_file():
                self.send_error(404)
                return
            data = path.read_bytes()
            match = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            part = data
            if match and ranges:
                start, end = int(match[1]), min(int(match[2]), len(data) - 1)
                part = data[start : end + 1]
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{end}/{len(data)}")
            else:
                self.send_response(200)
            self.send_header("Content-Length", str(len(part)))
            self.end_headers()
            if left[0] and len(part) > cut_after:
                left[0] -= 1
                part = part[:cut_after]
            self.wfile.write(part)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
