"""Running a service: TLS, back-up and restore, an upgrade of its file, its command line."""

import json
import sqlite3
import ssl
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import pytest
from click.testing import CliRunner

from tunewright.cli.main import command
from tunewright.errors import StoreError
from tunewright.service.tokens import Scope, TokenStore
from tunewright.stores import locations
from tunewright.stores.http import HttpStore
from tunewright.stores.sqlite import SqliteStore
from tunewright.testing import servers
from tunewright.testing.keys import DECISION, KEY, TIMED, other_decision, other_key

OLD = (
    "CREATE TABLE decisions (digest BLOB PRIMARY KEY, kernel TEXT NOT NULL, body TEXT NOT NULL)",
    "CREATE TABLE problems (id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, kernel TEXT NOT NULL,"
    " key BLOB NOT NULL)",
    "CREATE TABLE trials (id INTEGER PRIMARY KEY, problem INTEGER NOT NULL, body TEXT NOT NULL)",
    "PRAGMA user_version = 1",
)
"""The tables of the schema before this one."""


def certificate(folder):
    """A certificate for this machine, which vouches for itself."""
    from datetime import UTC, datetime, timedelta
    from ipaddress import ip_address

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    cert, private = folder / "cert.pem", folder / "key.pem"
    cert.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return cert, private


@pytest.mark.slow
def test_it_speaks_tls_and_a_client_trusts_only_whom_it_was_told_to(serve, tmp_path) -> None:
    cert, key = certificate(tmp_path)
    service = serve("--tls-cert", str(cert), "--tls-key", str(key), scheme="https")
    store = service.store(query=f"?tries=1&timeout=300&ca={cert}")
    store.put(DECISION)
    assert store.get(KEY) == DECISION
    with pytest.raises(StoreError, match=r"(?i)certificate"):
        service.store(query="?tries=1&timeout=300").get(KEY)
    trusting = ssl.create_default_context(cafile=cert)
    answer = httpx.get(f"{service.location}/v1/health", verify=trusting, trust_env=False, timeout=300)
    assert "max-age" in answer.headers["strict-transport-security"]


@pytest.mark.slow
def test_a_back_up_of_a_running_service_restores_all_that_was_acknowledged(serve, tmp_path) -> None:
    service = serve()
    token = service.token()
    store = HttpStore.at(service.at(token))
    store.put(DECISION)
    store.record(KEY, [TIMED])
    store.keep("races", "a", b"transcript")
    copy = tmp_path / "restored" / "store.sqlite"
    copy.parent.mkdir()
    with sqlite3.connect(service.place) as file:  # what docs/service.md says
        file.execute("VACUUM INTO ?", (str(copy),))
    file.close()
    store.put(other_decision(key=other_key(kernel="later")))
    restored = serve(store=str(copy))
    again = HttpStore.at(restored.at(token))
    assert list(again.decisions()) == [DECISION]
    assert list(again.trials(KEY)) == [TIMED]
    assert again.fetch("races", ["a"]) == {"a": b"transcript"}
    assert len(again.history(KEY)) == 1


@pytest.mark.slow
def test_a_dump_of_a_running_postgresql_restores_the_same(serve) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        folder.chmod(0o755)  # the server is not run by root
        server = stack.enter_context(servers.postgres(folder / "server", fsync=False))
        service = serve(store=f"{server.location}?tunewright_timeout=120")
        token = service.token()
        store = HttpStore.at(service.at(token))
        store.put(DECISION)
        store.record(KEY, [TIMED])
        store.keep("races", "a", b"transcript")
        dump, other = folder / "dump", server.location.removesuffix("postgres") + "restored"
        for words in (  # what docs/service.md says
            ("pg_dump", "--format=custom", f"--file={dump}", server.location),
            ("createdb", f"--maintenance-db={server.location}", "restored"),
            ("pg_restore", f"--dbname={other}", dump),
        ):
            program = servers.program_at(words[0], "postgresql-client")
            done = subprocess.run([program, *words[1:]], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
        store.put(other_decision(key=other_key(kernel="later")))
        again = HttpStore.at(serve(store=f"{other}?tunewright_timeout=120").at(token))
        assert list(again.decisions()) == [DECISION]
        assert list(again.trials(KEY)) == [TIMED]
        assert again.fetch("races", ["a"]) == {"a": b"transcript"}
        later = other_decision(key=other_key(kernel="after"))
        assert again.put(later) == later, "it goes on where it was"
        again.record(KEY, [TIMED])
        assert len(list(again.trials(KEY))) == 2


def test_a_file_of_the_schema_before_is_upgraded_with_its_data(serve, tmp_path) -> None:
    from tunewright.stores import serialization as wire

    path = tmp_path / "old.sqlite"
    with sqlite3.connect(path) as file:
        for statement in OLD:
            file.execute(statement)
        digest = bytes.fromhex(KEY.digest)
        file.execute(
            "INSERT INTO decisions VALUES (?, ?, ?)", (digest, KEY.kernel, wire.dump_decision(DECISION).decode())
        )
        file.execute("INSERT INTO problems VALUES (1, ?, ?, ?)", (digest, KEY.kernel, wire.dump_key(KEY)))
        file.execute("INSERT INTO trials VALUES (1, 1, ?)", (wire.dump_trial(TIMED).decode(),))
    file.close()
    service = serve(store=str(path))
    store = service.store()
    assert store.get(KEY) == DECISION
    assert list(store.trials(KEY)) == [TIMED]
    better = other_decision(key=other_key(kernel="new"))
    assert store.put(better) == better


def run(*words, code=0):
    done = CliRunner().invoke(command, list(words), standalone_mode=False)
    assert (done.exit_code, done.exception) == (code, None), done.output
    return done.output


def test_tokens_are_made_listed_rotated_and_revoked(tmp_path) -> None:
    place = ("--store", str(tmp_path / "a.sqlite"))
    made = json.loads(run("service", "token", "add", "fleet", "--scope", "read", "--lasts", "90d", *place, "--json"))
    tokens = TokenStore(SqliteStore(tmp_path / "a.sqlite"))
    secret = made["token"].split("_", 2)[2]
    assert tokens.find("fleet").matches(secret, made["made"])
    assert tokens.find("fleet").scopes == (Scope.READ,)
    listed = run("service", "token", "list", *place)
    assert "fleet" in listed
    assert secret not in listed + run("service", "token", "list", *place, "--json")
    rotated = run("service", "token", "rotate", "fleet", "--grace", "1h", *place).split()[0]
    assert rotated != made["token"]
    assert tokens.find("fleet").matches(rotated.split("_", 2)[2], made["made"])
    assert "is revoked" in run("service", "token", "revoke", "fleet", *place)
    assert tokens.all() == []


def test_the_audit_log_is_shown(shared) -> None:
    shared.store().put(other_decision(key=other_key(kernel="audited")))
    said = run("service", "audit", "--kernel", "audited", "--store", shared.place)
    assert "audited" in said
    assert "tile=64" in said


def test_a_store_that_cannot_be_opened_is_one_line_not_a_loop(tmp_path) -> None:
    broken = tmp_path / "broken.sqlite"
    broken.write_bytes(b"not a database" * 100)
    command = [sys.executable, "-m", "tunewright", "service", "run", "--open", "--store", str(broken), "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2
    assert "tunewright:" in done.stderr
    assert "Traceback" not in done.stderr


def test_deployment_files_say_what_the_command_takes() -> None:
    folder = Path(__file__).parents[2] / "docs" / "service"
    known = run("service", "run", "--help")
    for name in ("Dockerfile", "kubernetes.yaml"):
        text = (folder / name).read_text()
        text = "\n".join(line for line in text.splitlines() if not line.startswith(("RUN", "#", "COPY")))
        for word in text.replace('"', " ").replace(",", " ").replace("[", " ").split():
            if word.startswith("--") and word != "---":
                assert word.partition("=")[0] in known, (name, word)


def test_the_manifests_are_whole() -> None:
    yaml = pytest.importorskip("yaml")
    path = Path(__file__).parents[2] / "docs" / "service" / "kubernetes.yaml"
    found = {one["kind"]: one for one in yaml.safe_load_all(path.read_text())}
    assert set(found) == {"Deployment", "Service", "Secret"}
    pod = found["Deployment"]["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/v1/ready"
    assert container["livenessProbe"]["httpGet"]["path"] == "/v1/health"
    labels = found["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert found["Service"]["spec"]["selector"].items() <= labels.items()


def test_the_manifests_keep_the_schema_of_kubernetes_and_nothing_beyond_it() -> None:
    yaml, kubernetes = pytest.importorskip("yaml"), pytest.importorskip("kubernetes_validate")
    folder, kinds = Path(__file__).parents[2] / "docs", []
    for path in (folder / "service" / "kubernetes.yaml", folder / "fleet" / "rayjob.yaml"):
        for one in yaml.safe_load_all(path.read_text()):
            if one["apiVersion"] != "ray.io/v1":  # not Kubernetes' own
                kubernetes.validate(one, "1.31", strict=True)
                kinds.append(one["kind"])
    assert sorted(kinds) == ["Deployment", "NetworkPolicy", "Secret", "Service"]
    with pytest.raises(kubernetes.ValidationError):
        kubernetes.validate({**one, "spec": {"podSelector": {}, "polcyTypes": []}}, "1.31", strict=True)


def test_the_dockerfile_passes_its_linter() -> None:
    if not (linter := Path(sys.executable).with_name("hadolint")).exists():
        pytest.skip("hadolint is not installed")
    path = Path(__file__).parents[2] / "docs" / "service" / "Dockerfile"
    done = subprocess.run([linter, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    loose = path.read_text().replace("python:3.12-slim", "python:latest")
    assert subprocess.run([linter, "-"], input=loose, capture_output=True, text=True, check=False).returncode == 1


def test_places_knows_it_by_both_schemes() -> None:
    for location in ("http://127.0.0.1:9", "https://tuning.example"):
        assert isinstance(locations.open_single(location), HttpStore)
