"""Files and folders that another user controls are not obeyed; those of the user are, whatever the umask."""

import contextlib
import grp
import os
import pwd
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from tunewright import Session
from tunewright.errors import SettingsError
from tunewright.model.signature import Signature
from tunewright.settings import Settings
from tunewright.spaces.config import Config
from tunewright.stores import artifacts, trust, user_file
from tunewright.stores.artifacts import ArtifactLabel
from tunewright.testing.keys import KEY

OTHER, GROUP = 64_301, 64_302
"""A user and a group that this machine does not have."""

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


@pytest.fixture
def folder():
    """A folder that every user may enter, below one like /tmp."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


def give(path: Path, user: int = OTHER, group: int = GROUP) -> None:
    os.chown(path, user, group, follow_symlinks=False)


def refusal(cache: Path, environ=None) -> str:
    with pytest.raises(SettingsError) as caught:
        user_file.require_trusted_cache(cache, environ or {"XDG_CONFIG_HOME": "/nonexistent"})
    return str(caught.value)


# Settings files.


@as_root
def test_a_file_of_another_user_is_not_read(folder) -> None:
    (folder / "tunewright.toml").write_text("trials = 7")
    give(folder / "tunewright.toml")
    with pytest.raises(SettingsError, match=f"belongs to the user with number {OTHER}") as caught:
        Settings.read({}, folder)
    assert "TUNEWRIGHT_TRUSTED_FOLDERS=" in str(caught.value)
    assert "TUNEWRIGHT_CONFIG=" in str(caught.value)
    for environ in (
        {"TUNEWRIGHT_TRUSTED_FOLDERS": str(folder)},
        {"TUNEWRIGHT_TRUSTED_FOLDERS": "/nonexistent:*"},
        {"TUNEWRIGHT_CONFIG": str(folder / "tunewright.toml")},
        {"SUDO_UID": str(OTHER)},
    ):
        assert Settings.read(environ, folder).trials == 7


@pytest.mark.parametrize("mode", [0o666, 0o646, 0o777])
def test_a_file_that_everybody_may_write_is_not_read(folder, mode) -> None:
    (folder / "tunewright.toml").write_text("trials = 7")
    (folder / "tunewright.toml").chmod(mode)
    with pytest.raises(SettingsError, match=r"can be written by everybody.*chmod go-w"):
        Settings.read({}, folder)


@as_root
def test_a_file_that_a_shared_group_may_write_is_not_read_but_that_of_a_private_group_is(folder, monkeypatch) -> None:
    path = folder / "tunewright.toml"
    path.write_text("trials = 7")
    path.chmod(0o664)
    assert Settings.read({}, folder).trials == 7, "root's own group"
    give(path, 0, GROUP)
    with pytest.raises(SettingsError, match="can be written by the group"):
        Settings.read({}, folder)


@pytest.mark.parametrize(("members", "name", "primary", "is_private"), [
    ([], "ann", GROUP, True), (["ann"], "ann", GROUP, True), (["ann", "bob"], "ann", GROUP, False),
    (["bob"], "ann", GROUP, False), ([], "team", GROUP, False), ([], "ann", 1, False),
])  # fmt: skip
def test_a_private_group_has_the_name_of_its_only_member(members, name, primary, is_private, monkeypatch) -> None:
    monkeypatch.setattr(grp, "getgrgid", lambda number: grp.struct_group((name, "x", number, members)))
    monkeypatch.setattr(pwd, "getpwuid", lambda number: pwd.struct_passwd(("ann", "x", number, primary, "", "/", "")))
    assert trust._is_private_group.__wrapped__(GROUP, OTHER) is is_private


def test_a_user_without_a_name_may_have_a_group_without_a_name() -> None:
    assert trust._is_private_group.__wrapped__(OTHER, OTHER)
    assert not trust._is_private_group.__wrapped__(GROUP, OTHER)


@as_root
def test_a_link_of_another_user_is_not_followed(folder) -> None:
    (folder / "mine.toml").write_text("trials = 7")
    link = folder / "tunewright.toml"
    link.symlink_to("mine.toml")
    assert Settings.read({}, folder).trials == 7
    give(link)
    with pytest.raises(SettingsError, match="belongs to"):
        Settings.read({}, folder)


def test_a_folder_above_may_be_of_anybody_if_the_file_is_mine(folder) -> None:
    folder.chmod(0o777)
    (folder / "tunewright.toml").write_text("trials = 7")
    assert Settings.read({}, folder).trials == 7


@pytest.mark.parametrize("table", ['trusted_folders = ["/"]', '[tokens]\n"evil" = "tw_x"'])
def test_a_file_of_a_project_cannot_say_whom_to_trust(folder, table) -> None:
    (folder / "tunewright.toml").write_text(table)
    with pytest.raises(SettingsError, match="only your own file may have"):
        Settings.read({"XDG_CONFIG_HOME": str(folder / "own")}, folder)


@as_root
def test_the_users_own_file_may_trust_a_folder_but_not_itself(folder) -> None:
    own, project = folder / "own", folder / "project"
    own.mkdir()
    project.mkdir()
    (own / "tunewright.toml").write_text(f'trusted_folders = ["{project}", "{own}"]\n')
    (project / "tunewright.toml").write_text("trials = 7")
    give(project / "tunewright.toml")
    environ = {"XDG_CONFIG_HOME": str(own)}
    assert Settings.read(environ, project).trials == 7
    give(own / "tunewright.toml")
    with pytest.raises(SettingsError, match="is not read"):
        Settings.read(environ, folder)


def test_a_list_of_folders_that_is_none_is_refused(folder) -> None:
    (folder / "tunewright.toml").write_text("trusted_folders = 3")
    with pytest.raises(SettingsError, match="must be a list"):
        user_file._trusted_folders({"XDG_CONFIG_HOME": str(folder)})


# The cache.


@as_root
@pytest.mark.parametrize("part", ["cache", "cache/inner", "link"])
def test_a_cache_of_another_user_is_not_used(folder, part) -> None:
    (folder / "cache" / "inner").mkdir(parents=True)
    (folder / "link").symlink_to(folder / "cache")
    give(folder / part)
    cache = folder / ("link/inner" if part == "link" else "cache/inner")
    said = refusal(cache)
    assert "TUNEWRIGHT_TRUSTED_FOLDERS=" in said
    assert "TUNEWRIGHT_CACHE" in said
    user_file.require_trusted_cache(cache, {"TUNEWRIGHT_TRUSTED_FOLDERS": str(folder)})


@pytest.mark.parametrize("mode", [0o777, 0o757, 0o1777])
def test_a_cache_that_everybody_may_write_is_not_used(folder, mode) -> None:
    cache = folder / "cache"
    cache.mkdir()
    cache.chmod(mode)
    assert "can be written by everybody" in refusal(cache)
    with pytest.raises(SettingsError, match="can be written by everybody"):
        Session(cache=str(cache))


def test_a_sticky_folder_may_be_above_the_cache_and_one_that_all_may_rename_in_may_not(folder) -> None:
    (folder / "shared" / "cache").mkdir(parents=True)
    (folder / "shared").chmod(0o1777)
    user_file.require_trusted_cache(folder / "shared" / "cache", {})
    (folder / "shared").chmod(0o777)
    assert "can be written by everybody" in refusal(folder / "shared" / "cache")


def test_a_missing_cache_in_a_sticky_folder_is_made_before_another_user_does(folder) -> None:
    folder.chmod(0o1777)
    user_file.require_trusted_cache(folder / "a" / "cache", {})
    assert stat.S_IMODE((folder / "a" / "cache").stat().st_mode) & 0o022 == 0


def test_a_missing_cache_elsewhere_is_not_made(folder) -> None:
    user_file.require_trusted_cache(folder / "a" / "cache", {})
    assert not (folder / "a").exists()


def test_below_a_closed_folder_it_does_not_matter_who_may_write(folder) -> None:
    folder.chmod(0o700)
    (folder / "cache").mkdir()
    (folder / "cache").chmod(0o777)
    user_file.require_trusted_cache(folder / "cache", {})


def test_links_in_circles_end(folder) -> None:
    (folder / "a").symlink_to("b")
    (folder / "b").symlink_to("a")
    user_file.require_trusted_cache(folder / "a" / "cache", {})


@pytest.mark.parametrize("mask", [0o022, 0o002, 0o000, 0o077])
def test_what_is_written_is_accepted_afterwards_whatever_the_umask(folder, mask) -> None:
    before = os.umask(mask)
    try:
        cache = folder / "deep" / "cache"
        label = ArtifactLabel("ab" * 32 + ".so", "k", "s", Config(), Signature(), {})
        path = artifacts.save_artifact(cache, b"x", label)
        unpacked = artifacts.unpack(cache, b"y", ArtifactLabel("cd" * 32 + ".so", "k", "s", Config(), Signature(), {}))
    finally:
        os.umask(before)
    user_file.require_trusted_cache(cache, {})
    for place in (path, unpacked):
        assert artifacts.is_intact(place)
        assert place.stat().st_mode & 0o022 == 0


@as_root
@pytest.mark.parametrize("suffix", ["", ".json"])
@pytest.mark.parametrize("how", ["owner", "everybody", "group"])
def test_a_library_that_others_could_change_is_not_loaded(folder, suffix, how) -> None:
    label = ArtifactLabel("ab" * 32 + ".so", "k", "s", Config(), Signature(), {})
    path = artifacts.unpack(folder / "cache", b"x", label)
    assert artifacts.is_intact(path)
    part = path.with_name(path.name + suffix)
    if how == "owner":
        give(part)
    elif how == "group":
        give(part, 0, GROUP)
    part.chmod({"owner": 0o644, "everybody": 0o666, "group": 0o664}[how])
    assert not artifacts.is_intact(path)


# Two users, for real: root runs a kernel in C, and another user plants a library.

PROGRAM = """
import logging, os, sys
logging.disable(50)
import numpy as np, tunewright as tw

@tw.tune(tw.Space(tw.Knob("STEP", [1])), backend=tw.C({source!r}))
def add(a: tw.In("N"), out: tw.Out("N"), n: int): ...

a, out = np.ones(4, np.float32), np.zeros(4, np.float32)
add(a, out, 4)
print(out)
"""
KERNEL = "void add(const float *a, float *out, int n) { for (int i = 0; i < n; i++) out[i] = a[i]; }\n"
PLANTED = (
    '#include <stdio.h>\n__attribute__((constructor)) static void planted(void) {{ fclose(fopen("{mark}", "w")); }}\n'
)


def as_user(user: int, function: Callable[[], object], cwd: Path) -> str:
    """Returns what a function returns, or raises, in a process of another user.

    That user may be unable to start Python, or to import anything more: the process is forked, and the function has
    run as root before.
    """
    with contextlib.suppress(SettingsError):
        function()
    reading, writing = os.pipe()
    said = "another error"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forking beside threads
        child = os.fork()
    if child == 0:
        try:
            os.chdir(cwd)
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            said = str(function())
        except (OSError, SettingsError) as error:
            said = f"{type(error).__name__}: {error}"
        finally:
            os.write(writing, said.encode())
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        said = answer.read()
    os.waitpid(child, 0)
    return said


@pytest.fixture
def users(folder):
    """A folder of the victim, one of another user, and what the victim runs."""
    if shutil.which("cc") is None:
        pytest.skip("needs a compiler")
    (folder / "add.c").write_text(KERNEL)
    (folder / "home").mkdir()
    (folder / "theirs").mkdir()
    give(folder / "theirs", OTHER, OTHER)
    return folder


def victim(users: Path, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Runs a kernel as root, with a home that has nothing in it."""
    command = [sys.executable, "-c", PROGRAM.format(source=str(users / "add.c"))]
    base = {name: value for name, value in os.environ.items() if not name.startswith(("TUNEWRIGHT_", "XDG_"))}
    base |= {"HOME": str(users / "home"), "TUNEWRIGHT_MODE": "frozen"}
    return subprocess.run(
        command, cwd=cwd, env=base | environ, capture_output=True, text=True, check=False, timeout=300
    )


def plant(users: Path, cache: Path) -> Path:
    """Replaces the library in a cache by one that leaves a mark, as its writer could."""
    mark = users / "mark"
    source = users / "planted.c"
    source.write_text(PLANTED.format(mark=mark) + KERNEL)
    (library,) = cache.rglob("*.so")
    library.unlink()
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    return mark


@as_root
@pytest.mark.slow
def test_root_obeys_no_settings_in_a_folder_of_another_user(users) -> None:
    theirs = users / "theirs"
    assert victim(users, theirs, TUNEWRIGHT_CACHE=str(users / "cache")).returncode == 0
    shutil.copytree(users / "cache", theirs / "cache")
    mark = plant(users, theirs / "cache")
    (theirs / "tunewright.toml").write_text('cache = "./cache"\n')
    for place in (theirs, *theirs.rglob("*")):
        give(place, OTHER, OTHER)
    done = victim(users, theirs)
    assert not mark.exists()
    assert "is not read, since others could have written it" in done.stderr
    named = victim(users, theirs, TUNEWRIGHT_CACHE=str(theirs / "cache"), TUNEWRIGHT_CONFIG="/dev/null")
    assert not mark.exists()
    assert named.returncode != 0
    (theirs / "tunewright.toml").unlink()
    cached = victim(users, theirs, TUNEWRIGHT_CACHE=str(theirs / "cache"))
    assert not mark.exists()
    assert "is not used, since others could change what is loaded" in cached.stderr
    assert victim(users, theirs, TUNEWRIGHT_CACHE=str(users / "cache")).returncode == 0, "the folder itself is harmless"


@as_root
@pytest.mark.slow
def test_a_cache_that_both_may_write_is_used_by_neither(users) -> None:
    cache = users / "cache"
    assert victim(users, users, TUNEWRIGHT_CACHE=str(cache)).returncode == 0
    mark = plant(users, cache)
    for place in (cache, *cache.rglob("*")):
        os.chown(place, 0, GROUP)
        place.chmod(0o2775 if place.is_dir() else 0o664)
    mine = victim(users, users, TUNEWRIGHT_CACHE=str(cache))
    assert "can be written by the group" in mine.stderr
    said = as_user(OTHER, lambda: Session(cache=str(cache)), users / "theirs")
    assert "SettingsError" in said
    assert "can be written by the group" in said
    for place in (cache, *cache.rglob("*")):
        os.chown(place, OTHER + 9, GROUP)
    said = as_user(OTHER, lambda: Session(cache=str(cache)), users / "theirs")
    assert "belongs to the user with number" in said
    assert not mark.exists()


@as_root
@pytest.mark.slow
def test_another_user_uses_settings_and_a_cache_of_root(users) -> None:
    """An image that root built, run as somebody else; and each user's own files with the umask 002."""
    cache, theirs = users / "cache", users / "theirs"
    assert victim(users, users, TUNEWRIGHT_CACHE=str(cache)).returncode == 0
    (theirs / "tunewright.toml").write_text("trials = 7")
    (library,) = cache.rglob("*.so")

    def read() -> int:
        settings = Settings.read({}, theirs, cache=str(cache))
        assert artifacts.is_intact(settings.cache_path / library.relative_to(cache))
        return settings.trials

    assert as_user(OTHER, read, theirs) == "7", "root's"
    give(theirs / "tunewright.toml", OTHER, OTHER)
    (theirs / "tunewright.toml").chmod(0o664)
    assert as_user(OTHER, read, theirs) == "7", "their own, with the umask 002"
    assert "belongs to" in as_user(OTHER + 1, read, theirs), "a third user's"

    def write() -> int:
        os.umask(0o002)
        label = ArtifactLabel("ab" * 32 + ".so", "k", "s", Config(), Signature(), {})
        path = artifacts.unpack(Settings(cache=str(theirs / "own")).cache_path, b"x", label)
        assert artifacts.is_intact(path)
        return path.stat().st_uid

    assert as_user(OTHER, write, theirs) == str(OTHER)


# Tokens.


@pytest.fixture
def project(folder, monkeypatch):
    """A cloned project whose file names a service."""
    for name in ("TUNEWRIGHT_TOKEN", "TUNEWRIGHT_TOKEN_HOST"):
        monkeypatch.delenv(name, raising=False)
    (folder / "tunewright.toml").write_text('store = "https://evil.example"\n')
    monkeypatch.chdir(folder)
    return folder


def test_a_token_is_not_sent_where_a_project_says(project, monkeypatch) -> None:
    monkeypatch.setenv("TUNEWRIGHT_TOKEN", "tw_1")
    with pytest.raises(SettingsError, match=r"TUNEWRIGHT_TOKEN_HOST=evil\.example:443") as caught:
        Settings.read()
    assert "tw_1" not in str(caught.value)
    monkeypatch.setenv("TUNEWRIGHT_TOKEN_HOST", "tuning.example")
    assert Settings.read().store_location == "https://evil.example"
    monkeypatch.setenv("TUNEWRIGHT_TOKEN_HOST", "tuning.example, evil.example")
    assert Settings.read().store_location == "https://tw_1@evil.example"


def test_a_token_in_the_users_own_file_is_bound_to_its_host(project, monkeypatch, own_cache) -> None:
    (own_cache / "tunewright.toml").write_text('[tokens]\n"tuning.example" = "tw_2"\n')
    assert Settings.read().store_location == "https://evil.example"
    assert Settings.read(store="https://tuning.example").store_location == "https://tw_2@tuning.example"
    assert "tw_2" not in Settings.read(store="https://tuning.example").store_name


@pytest.mark.parametrize("how", ["environment", "python", "own file", "location"])
def test_a_token_is_sent_where_the_user_says(folder, monkeypatch, own_cache, how) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TUNEWRIGHT_TOKEN", "tw_1")
    location, arguments = "https://tuning.example", {}
    if how == "environment":
        monkeypatch.setenv("TUNEWRIGHT_STORE", location)
    elif how == "python":
        arguments = {"store": location}
    elif how == "own file":
        (own_cache / "tunewright.toml").write_text(f'store = "{location}"\n')
    else:
        (folder / "tunewright.toml").write_text('store = "https://tw_1@tuning.example"\n')
    assert Settings.read(**arguments).store_location == "https://tw_1@tuning.example"


def test_a_process_that_gets_the_same_settings_sends_no_more_tokens(project, monkeypatch) -> None:
    monkeypatch.setenv("TUNEWRIGHT_TOKEN", "tw_1")
    monkeypatch.setenv("TUNEWRIGHT_TOKEN_HOST", "tuning.example")
    environ = {**os.environ, **Settings.read().environ()}
    assert Settings.read(environ, project).store_location == "https://evil.example"
    assert "tw_1" not in Settings.read().environ().values()


def test_a_value_of_the_store_is_not_repeated_in_an_error(folder) -> None:
    (folder / "tunewright.toml").write_text('store = ["redis://:hunter2@h"]\n')
    with pytest.raises(SettingsError) as caught:
        Settings.read({}, folder)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_nothing_arrives_at_a_service_that_a_project_names(project, monkeypatch) -> None:
    """The real thing: a server that notes what it gets."""
    got: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    got.append(connection.recv(65536))
                    connection.sendall(
                        b'HTTP/1.1 404 x\r\ncontent-length: 14\r\nconnection: close\r\n\r\n{"error":"no"}'
                    )

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        (project / "tunewright.toml").write_text(f'store = "http://{address}"\n')
        monkeypatch.setenv("TUNEWRIGHT_TOKEN", "tw_1")
        with pytest.raises(SettingsError, match="TUNEWRIGHT_TOKEN_HOST"):
            Session().store.keys()
        monkeypatch.setenv("TUNEWRIGHT_TOKEN_HOST", "tuning.example")
        Session().store.get(KEY)
        monkeypatch.setenv("TUNEWRIGHT_TOKEN_HOST", address)
        Session().store.get(KEY)
        server.shutdown(socket.SHUT_RDWR)
    thread.join(60)
    assert [b"tw_1" in request for request in got if request][:1] == [False]
    assert b"tw_1" in got[-1], "where the user says"
