"""A server on this machine that takes pushes as the Hugging Face hub does: small files in the commit, others by LFS."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "hf_token_of_a_test"
_SHA = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class FakeHub:
    """`files` by repository; `refuses` makes each commit fail."""

    url: str = ""
    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    private: dict[str, bool] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)
    refuses: bool = False

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        parts = path.strip("/").split("/")
        repository = "/".join(parts[2:4])
        if path == "/api/whoami-v2":
            return 200, {"name": "org", "type": "user", "orgs": []}
        if path == "/api/validate-yaml":  # the metadata of a model card
            return 200, {"errors": [], "warnings": []}
        if path == "/api/repos/create":
            asked = json.loads(body)
            repository = f"{asked.get('organization') or 'org'}/{asked['name']}"
            self.files.setdefault(repository, {".gitattributes": b""})
            self.private[repository] = bool(asked.get("private")) or asked.get("visibility") == "private"
            return 200, {"url": f"{self.url}/{repository}", "name": repository, "id": repository}
        if path.endswith("/info/lfs/objects/batch"):
            return 200, {"transfer": "basic", "objects": [
                {**one, "actions": {"upload": {"href": f"{self.url}/lfs/{one['oid']}"}}}
                for one in json.loads(body)["objects"]]}  # fmt: skip
        if method == "PUT":
            self.objects[parts[-1]] = body
            return 200, {}
        if repository not in self.files:
            return 404, {"error": "Repository not found"}
        return self._of_a_repository(repository, parts, body)

    def _of_a_repository(self, repository: str, parts: list[str], body: bytes) -> tuple[int, Any]:
        if "preupload" in parts:
            large = (".safetensors",)
            return 200, {"files": [
                {"path": one["path"], "uploadMode": "lfs" if one["path"].endswith(large) else "regular",
                 "shouldIgnore": False} for one in json.loads(body)["files"]]}  # fmt: skip
        if "commit" in parts:
            if self.refuses:
                return 403, {"error": "no more space"}
            for line in body.splitlines():
                self._commit(repository, json.loads(line))
            return 200, {"commitUrl": f"{self.url}/{repository}/commit/{_SHA}", "commitOid": _SHA, "success": True}
        if "tree" in parts:
            return 200, [
                {"type": "file", "path": name, "size": len(text), "oid": _SHA}
                for name, text in self.files[repository].items()
            ]
        names = [{"rfilename": name} for name in self.files[repository]]
        return 200, {"id": repository, "sha": _SHA, "siblings": names, "private": True}

    def _commit(self, repository: str, one: dict[str, Any]) -> None:
        value = one["value"]
        if one["key"] == "file":
            self.files[repository][value["path"]] = base64.b64decode(value["content"])
        elif one["key"] == "lfsFile":
            self.files[repository][value["path"]] = self.objects[value["oid"]]


@contextmanager
def fake_hub() -> Iterator[FakeHub]:
    hub = FakeHub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self._body()
            known = "/lfs/" in self.path or self.headers.get("authorization") == f"Bearer {TOKEN}"
            status, said = hub.answer(self.command, self.path.partition("?")[0], body) if known else (401, {})
            content = json.dumps(said).encode()
            self.send_response(status)
            if status == 404:
                self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            found = b""
            while size := int(self.rfile.readline(), 16):
                found += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return found

        do_GET = do_POST = do_PUT = do_HEAD = _answer

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
