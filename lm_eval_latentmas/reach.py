"""Which sources of data and models answer, found out in seconds: libraries that fetch from them retry for minutes."""

from __future__ import annotations

import functools
import http.client
import os
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

PATIENCE = 3.0  # seconds that a server has to answer

#: Where models and data sets are, as huggingface_hub reads it.
HUB = os.environ.get("HF_ENDPOINT", "https://huggingface.co")


def host(address: str) -> str:
    """The server's name in an address."""
    return urlsplit(address).hostname or address


def origin(address: str) -> str:
    """An address without what comes behind the server's name."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}"


@functools.cache
def answers(server: str, patience: float = PATIENCE) -> bool:
    """Whether a server (``https://NAME``) sends anything back, through the proxy that the environment names.

    Asked once per server. Takes little longer than ``patience``, also where its name cannot be looked up.
    """
    replied = threading.Event()

    def ask() -> None:
        try:
            urllib.request.urlopen(urllib.request.Request(server, method="HEAD"), timeout=patience).close()
        except urllib.error.HTTPError:
            pass  # a refusal is an answer
        except (OSError, ValueError, http.client.HTTPException) as error:  # a ValueError is no address
            # certificates are the business of whoever fetches, with settings of its own
            if not isinstance(getattr(error, "reason", error), ssl.SSLError):
                return
        replied.set()

    # looking a name up knows no time limit, so that it must not be waited for
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(patience + 1)
    return replied.is_set()


@contextmanager
def without_network() -> Iterator[None]:
    """Let the ``datasets`` library read what it has kept and ask no server; it reads its variable at import alone."""
    from datasets import config

    before, config.HF_HUB_OFFLINE = config.HF_HUB_OFFLINE, True
    try:
        yield
    finally:
        config.HF_HUB_OFFLINE = before
