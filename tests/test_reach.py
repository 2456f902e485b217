"""Servers that answer, refuse, or keep silent are told apart in little time."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from lm_eval_latentmas import reach


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def refusing() -> Iterator[str]:
    class Refusal(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_error(403)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Refusal) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_refusal_is_an_answer(refusing: str) -> None:
    assert reach.answers(refusing)


def test_a_server_that_says_nothing_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        started = time.monotonic()
        assert not reach.answers(f"http://127.0.0.1:{silent.getsockname()[1]}", patience=0.2)
    assert time.monotonic() - started < 30


def test_a_name_that_is_looked_up_for_ever_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: over.wait(60) and [])
    assert not reach.answers("https://lookup.invalid", patience=0.01)
    over.set()


def test_a_port_where_nobody_listens_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    assert not reach.answers(f"http://127.0.0.1:{port}")


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_what_is_no_address_does_not_answer() -> None:
    assert not reach.answers(reach.origin("mirror.invalid"))


def test_an_address_is_parted() -> None:
    address = "https://github.com/evalplus/releases/x.gz"
    assert (reach.origin(address), reach.host(address)) == ("https://github.com", "github.com")
