"""Real services for the tests: granian on loopback, before stores of their own."""

import os

import httpx
import pytest

from tunewright.service.tokens import Scope, TokenStore
from tunewright.stores import locations
from tunewright.stores.http import HttpStore
from tunewright.testing import servers


class Running:
    """A service, its store, and tokens for it."""

    def __init__(self, server, store):
        self.server, self.place, self.location = server, store, server.location
        self.tokens = TokenStore(locations.open_authoritative(store))

    def token(self, *scopes, **limits):
        """The text of a new token."""
        made = self.tokens.add("test", map(Scope, scopes or ("admin",)), **{"rate": 0.0, **limits})
        return made[1]

    def client(self, *scopes, token=None, **limits):
        """An HTTP client that sends such a token."""
        text = token if token is not None else self.token(*scopes, **limits)
        headers = {"authorization": f"Bearer {text}"} if text else {}
        return httpx.Client(base_url=self.location, headers=headers, timeout=300, trust_env=False)

    def at(self, token=None, query="?tries=1&timeout=300"):
        """The location with a token in it."""
        return self.location.replace("://", f"://{token or self.token()}@") + query

    def store(self, *scopes, query="?tries=1&timeout=300", **limits):
        """The service as a store."""
        return HttpStore.at(self.at(self.token(*scopes, **limits), query))


@pytest.fixture(scope="session")
def serve(tmp_path_factory):
    """How to start a service: options of its command line, `store=` another store."""
    running = []

    def start(*options, store="", scheme="http", folder=None):
        place = folder or tmp_path_factory.mktemp("service")
        # A body that a busy machine brings late is not one that is sent too slowly.
        patience = () if "--patience" in options else ("--patience", "300")
        context = servers.service(place, *patience, *options, store=store, scheme=scheme)
        server = context.__enter__()
        running.append(context)
        return Running(server, store or str(place / "store.sqlite"))

    yield start
    for context in reversed(running):
        context.__exit__(None, None, None)


@pytest.fixture(scope="session")
def shared(serve):
    """One service for all tests that do not mind others' records."""
    os.environ.pop("TUNEWRIGHT_TOKEN", None)
    return serve()


@pytest.fixture
def fresh(serve):
    """A service with nothing in its store, in which what was read stays warm for as long as a test lasts."""
    service = serve("--fresh", "3600")
    yield service
    service.server.kill()
