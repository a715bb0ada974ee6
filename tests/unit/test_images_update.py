"""`make update-images`: digests from a registry that answers, and from none that does not."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import update_images
from update_images import Base, NoAnswer, ask, parse_base, update

from harness.images.catalog import parse_catalog

NEW, OLD = "sha256:" + "a" * 64, "sha256:" + "b" * 64
TEXT = """# A comment that stays.
source: here

images:
  one:
    backend: cpu
    base: docker.io/library/python:3.11     # and so does this
    digest: null
    torch: "2.13.0"
    index: https://download.pytorch.org/whl/cpu

  two:
    backend: xpu
    base: docker.io/library/ubuntu:26.04
    digest: {old}
    torch: "2.13.0"
    index: https://download.pytorch.org/whl/xpu
""".replace("{old}", OLD).replace("     # and so does this", "")


def test_an_answer_is_written_and_nothing_else_changes() -> None:
    new, said, fresh = update(TEXT, lambda base: NEW)
    assert fresh
    assert new == TEXT.replace("null", NEW).replace(OLD, NEW)
    assert said == [f"one: docker.io/library/python:3.11 is {NEW}",
                    f"two: docker.io/library/ubuntu:26.04 is {NEW}, was {OLD}"]  # fmt: skip
    assert [spec.digest for spec in parse_catalog(new).images] == [NEW, NEW]


def test_no_answer_changes_nothing_and_says_what_is_not_pinned() -> None:
    def silent(base: Base) -> str:
        raise NoAnswer("no such host")

    new, said, fresh = update(TEXT, silent)
    assert (new, fresh) == (TEXT, False)
    assert said == ["one: not pinned; docker.io/library/python:3.11: no such host",
                    f"two: still {OLD}; docker.io/library/ubuntu:26.04: no such host"]  # fmt: skip


def test_every_image_of_the_shipped_file_is_found_and_each_base_asked_once() -> None:
    asked: list[Base] = []

    def answer(base: Base) -> str:
        asked.append(base)
        return NEW

    text = update_images.FILE.read_text(encoding="utf-8")
    new, said, _ = update(text, answer)
    specs = parse_catalog(new).images
    assert len(said) == len(specs)
    assert {spec.digest for spec in specs} == {NEW}
    assert len(asked) == len({spec.base for spec in specs})


def test_the_parts_of_a_reference() -> None:
    assert parse_base("docker.io/library/python:3.11") == Base("registry-1.docker.io", "library/python", "3.11")
    assert parse_base("mirror.example:5000/a/b:1") == Base("mirror.example:5000", "a/b", "1")
    with pytest.raises(ValueError, match="REGISTRY/REPOSITORY:TAG"):
        parse_base("python")


class Registry(BaseHTTPRequestHandler):
    """A registry that wants its visitors to fetch a token first, as the public ones do."""

    def do_HEAD(self) -> None:
        server = f"http://{self.headers['Host']}"
        if self.headers.get("Authorization") != "Bearer for-anybody":
            self.send_response(401)
            challenge = f'Bearer realm="{server}/token",service="it",scope="repository:a/b:pull"'
            self.send_header("WWW-Authenticate", challenge)
        elif self.path == "/v2/a/b/manifests/1":
            self.send_response(200)
            self.send_header("Docker-Content-Digest", NEW)
        elif self.path == "/v2/a/b/manifests/odd":
            self.send_response(200)
            self.send_header("Docker-Content-Digest", "sha256:odd\t")
        else:
            self.send_response(404)
        self.end_headers()

    def do_GET(self) -> None:
        assert self.path == "/token?service=it&scope=repository%3Aa%2Fb%3Apull"
        body = json.dumps({"token": "for-anybody"}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_registry_is_asked_as_a_visitor_without_a_login(registry: str) -> None:
    assert ask(Base(registry, "a/b", "1")) == NEW


@pytest.mark.parametrize(("tag", "why"), [("2", "Not Found"), ("odd", "no digest")])
def test_an_answer_without_a_digest_is_none(registry: str, tag: str, why: str) -> None:
    with pytest.raises(NoAnswer, match=why):
        ask(Base(registry, "a/b", tag))


def test_the_program_leaves_a_file_alone_that_it_cannot_pin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    file = tmp_path / "images.yaml"
    text = TEXT.replace("docker.io/library", "127.0.0.1:9/nobody")
    file.write_text(text)
    assert update_images.main([str(file)]) == 1
    assert "one: not pinned" in capsys.readouterr().out
    assert file.read_text() == text
    assert update_images.main([str(tmp_path / "none")]) == 2
