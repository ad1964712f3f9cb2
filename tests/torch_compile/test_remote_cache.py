"""Compiled graphs of other machines come from a store, signed and for this kind of processor, or not at all."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch

from tunewright.errors import SettingsError, StoreError
from tunewright.stores import locations
from tunewright.stores.bundle import signing
from tunewright.stores.memory import MemoryStore
from tunewright.testing import servers
from tunewright.torch import remote_cache
from tunewright.torch.remote_cache_store import NAMESPACE, SignedCache


@pytest.fixture(scope="module", params=["redis", "postgres"])
def server(request):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # PostgreSQL runs as another user where we are root
        with getattr(servers, request.param)(Path(folder) / "files") as running:
            yield running


@pytest.fixture
def key(tmp_path):
    public = signing.generate_key(tmp_path / "key.pem")
    (tmp_path / "signers").write_text(f"{public} us\n")
    return signing.load_private_key(tmp_path / "key.pem")


def signed_cache(store, key, tag="here"):
    return SignedCache(store, {signing.public_bytes(key): "us"}, key, tag)


def test_what_one_keeps_another_finds_on_a_real_server(server, key):
    one, other = (signed_cache(locations.open_store(server.location, None), key) for _ in range(2))
    assert one.fetch("graph") is None
    one.keep("graph", b"compiled")
    assert other.fetch("graph") == b"compiled"
    assert other.counts == {"hits": 1}


def test_another_kind_of_processor_finds_nothing(key):
    store = MemoryStore()
    signed_cache(store, key, "avx512").keep("graph", b"compiled")
    assert signed_cache(store, key, "avx2").fetch("graph") is None


def test_what_is_not_signed_by_somebody_on_the_list_is_a_miss_and_said(key, tmp_path, caplog):
    store = MemoryStore()
    signing.generate_key(tmp_path / "other.pem")
    stranger = signing.load_private_key(tmp_path / "other.pem")
    mine = signed_cache(store, key)
    signed_cache(store, stranger).keep("strange", b"evil")
    store.keep(NAMESPACE, "here:bare", b"evil")
    store.keep(NAMESPACE, "here:unsigned", b"evil" + bytes(96))
    for name in ("strange", "bare", "unsigned"):
        assert mine.fetch(name) is None
    assert mine.counts == {"refused": 3}
    assert "is not used" in caplog.text


def test_an_entry_that_was_changed_or_put_under_another_name_is_refused(key):
    store = MemoryStore()
    mine = signed_cache(store, key)
    mine.keep("graph", b"compiled")
    (body,) = store.fetch(NAMESPACE, ["here:graph"]).values()
    store.keep(NAMESPACE, "here:other", body)
    store.keep(NAMESPACE, "here:graph", b"Compiled" + body[8:])
    assert mine.fetch("other") is None
    assert mine.fetch("graph") is None
    assert mine.counts["refused"] == 2


def test_a_reader_without_a_key_keeps_nothing(key):
    store = MemoryStore()
    reader = SignedCache(store, {signing.public_bytes(key): "us"}, None, "here")
    reader.keep("graph", b"compiled")
    assert not list(store.entries(NAMESPACE))


def test_a_store_that_is_away_is_a_miss_not_a_crash(key, caplog):
    class Away(MemoryStore):
        def fetch(self, *_):
            raise StoreError("nobody answers")

        def keep(self, *_, **__):
            raise StoreError("nobody answers")

    mine = signed_cache(Away(), key)
    assert mine.fetch("graph") is None
    mine.keep("graph", b"compiled")
    assert mine.counts == {"away": 2}
    assert caplog.text.count("nobody answers") == 1


def test_settings_are_put_back_and_the_tag_is_in_every_key(key, tmp_path):
    before = torch.compiler.config.cache_key_tag
    with remote_cache(f"{tmp_path / 'store.sqlite'}", signers=tmp_path / "signers"):
        assert torch.compiler.config.cache_key_tag.startswith(before)
        assert len(torch.compiler.config.cache_key_tag) >= len(before) + 16
    assert torch.compiler.config.cache_key_tag == before


def test_a_list_that_lists_nobody_is_refused(tmp_path):
    (tmp_path / "signers").write_text("# nobody yet\n")
    with (
        pytest.raises(SettingsError, match="lists no signer"),
        remote_cache(str(tmp_path / "s.sqlite"), signers=tmp_path / "signers"),
    ):
        pass


COMPILES = """
import json, sys, torch
from torch._dynamo.utils import counters
torch.set_num_threads(1)
from tunewright.torch import remote_cache

with remote_cache(sys.argv[1], signers="signers", sign="key.pem") as counts, torch.no_grad():
    x = torch.arange(64.0)
    got = torch.compile(lambda x: torch.relu(x) * 2 + 1)(x)
found = {name: counters["inductor"][name] + counters["aot_autograd"][name] for name in (
    "fxgraph_cache_hit", "fxgraph_cache_miss", "autograd_cache_hit", "autograd_cache_miss")}
print(json.dumps({"counts": counts, "torch": found, "right": bool((got == x.relu() * 2 + 1).all())}))
"""


@pytest.mark.slow
def test_a_second_machine_lowers_nothing_that_the_first_has_compiled(key, tmp_path):
    (tmp_path / "compiles.py").write_text(COMPILES)

    def machine(name, **environment):
        env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / name), "TORCHINDUCTOR_VEC_ISA_OK": "1"}
        done = subprocess.run(
            [sys.executable, "compiles.py", location],
            cwd=tmp_path,
            env={**env, **environment},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    with servers.redis(tmp_path / "files") as server:
        location = server.location
        first, second = machine("first"), machine("second")
        third = machine("third", ATEN_CPU_CAPABILITY="avx2")
    assert first["counts"]["kept"] >= 1
    assert second["counts"]["hits"] >= 1
    assert second["torch"]["fxgraph_cache_miss"] == 0
    assert "hits" not in third["counts"], "code for another kind of processor is not found"
    assert all(one["right"] for one in (first, second, third))
