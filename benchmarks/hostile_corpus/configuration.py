"""Settings, tokens, retention and recorded misses: what a cloned project or another user may plant."""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import tunewright as tw
from hostile_corpus.case import (
    LEAK,
    LOSS,
    SECRET,
    WRONG_CONFIG,
    Finding,
    NotPossibleHere,
    Workspace,
    attack,
    held,
    honest,
)

OTHER = 64_301
"""A user and a group that the machine does not have."""

FILE = "tunewright.toml"
KERNEL = "void add(const float *a, float *out, int n) { for (int i = 0; i < n; i++) out[i] = a[i]; }\n"
TUNED = """
import numpy as np
import tunewright as tw

@tw.tune(tw.Space(tw.Knob("step", [1, 2])), reference=lambda x: x.sum(), name="total")
def total(x: tw.In("N"), *, step):
    return sum(x[i::step].sum() for i in range(step))
"""


def give(path: Path, user: int = OTHER, group: int = OTHER) -> None:
    """Gives a file or folder, with all in it, to another user."""
    if os.geteuid() != 0:
        raise NotPossibleHere("only root can give files to another user")
    for place in (path, *(path.rglob("*") if path.is_dir() and not path.is_symlink() else ())):
        os.chown(place, user, group, follow_symlinks=False)


def read_trials() -> int:
    """Reads the settings here, as every process does."""
    from tunewright.settings import Settings

    return Settings.read().trials


def command(*arguments: str) -> None:
    """Runs a command in this process: starting another takes most of a second."""
    from tunewright.cli.main import main

    sys.argv = ["tunewright", *arguments]
    with suppress(SystemExit):
        main()


def obeyed(value: int) -> Finding:
    """Says whether planted settings count."""
    return Finding(WRONG_CONFIG, "planted settings were read") if value == 7 else held("not read")


# Settings that another user wrote.


@attack
def settings_of_another_user(workspace: Workspace) -> Finding:
    """A file in the current folder that belongs to somebody else."""
    (workspace.folder / FILE).write_text("trials = 7\n")
    give(workspace.folder / FILE)
    return obeyed(read_trials())


@attack
def settings_that_everybody_may_write(workspace: Workspace) -> Finding:
    """A file of the user in which anybody may have written."""
    (workspace.folder / FILE).write_text("trials = 7\n")
    (workspace.folder / FILE).chmod(0o666)
    return obeyed(read_trials())


@attack
def settings_that_a_shared_group_may_write(workspace: Workspace) -> Finding:
    """A file of the user in which a group may have written."""
    (workspace.folder / FILE).write_text("trials = 7\n")
    give(workspace.folder / FILE, os.geteuid())
    (workspace.folder / FILE).chmod(0o664)
    return obeyed(read_trials())


@attack
def settings_by_a_link_of_another_user(workspace: Workspace) -> Finding:
    """A link to another file of the user's."""
    (workspace.folder / "mine.toml").write_text("trials = 7\n")
    (workspace.folder / FILE).symlink_to("mine.toml")
    give(workspace.folder / FILE)
    return obeyed(read_trials())


@attack
def settings_that_vouch_for_themselves(workspace: Workspace) -> Finding:
    """A file of another user that lists its own folder as trusted."""
    (workspace.folder / FILE).write_text(f'trials = 7\ntrusted_folders = ["{workspace.folder}", "*"]\n')
    give(workspace.folder / FILE)
    return obeyed(read_trials())


@attack
def settings_of_a_project_that_trust_a_folder(workspace: Workspace) -> Finding:
    """A file that was cloned, and is the user's, says whom to trust."""
    (workspace.folder / FILE).write_text('trials = 7\ntrusted_folders = ["*"]\n')
    return obeyed(read_trials())


@attack
def settings_that_are_no_file(workspace: Workspace) -> Finding:
    """A pipe, which would block, and a file without end."""
    os.mkfifo(workspace.folder / FILE)
    first = read_trials()
    (workspace.folder / FILE).unlink()
    (workspace.folder / FILE).symlink_to("/dev/zero")
    return obeyed(read_trials() + first)


@attack
def settings_that_are_huge_or_deep(workspace: Workspace) -> Finding:
    """A file that takes a gigabyte, and one that nests too deep."""
    with (workspace.folder / FILE).open("wb") as file:
        file.truncate(1 << 30)
    command("settings")
    (workspace.folder / FILE).write_text("a = " + "[" * 100_000)
    command("settings")
    return held()


# Libraries that another user planted.


def launch(source: Path) -> Callable[..., Any]:
    """Returns a kernel in C; a compiler is needed."""
    if shutil.which("cc") is None:
        raise NotPossibleHere("no compiler")

    @tw.tune(tw.Space(tw.Knob("STEP", [1])), backend=tw.C(str(source)))
    def add(a: tw.In("N"), out: tw.Out("N"), n: int): ...

    return add


def call(workspace: Workspace, cache: Path) -> None:
    """Calls the kernel with a cache; what it needs is built, or taken from there."""
    import numpy as np

    (workspace.folder / "add.c").write_text(KERNEL)
    kernel = launch(workspace.folder / "add.c")
    kernel.using(tw.Session(cache=str(cache), mode="frozen", store="memory:"))
    kernel(np.ones(4, np.float32), np.zeros(4, np.float32), 4)


def plant_library(workspace: Workspace, cache: Path) -> None:
    """Builds the library that a call needs in another process, and replaces it by one that shows that it was loaded."""
    child = os.fork()
    if child == 0:
        try:
            call(workspace, cache)
        finally:
            os._exit(0 if list(cache.rglob("*.so")) else 1)
    if os.waitpid(child, 0)[1] != 0:
        raise ChildProcessError("the library was not built, so that nothing could be planted")
    (library,) = cache.rglob("*.so")
    library.unlink()
    (workspace.folder / "planted.c").write_text(workspace.c + KERNEL)
    command = ["cc", "-shared", "-fPIC", "-o", str(library), str(workspace.folder / "planted.c")]
    subprocess.run(command, check=True)


def call_with_planted(workspace: Workspace, change: Callable[[Path], None]) -> Finding:
    """Plants a library, changes who may write to the cache, and calls the kernel."""
    cache = workspace.folder / "cache"
    plant_library(workspace, cache)
    change(cache)
    call(workspace, cache)
    return held("built anew")


@attack
def library_in_a_cache_of_another_user(workspace: Workspace) -> Finding:
    """The whole cache belongs to somebody else."""
    return call_with_planted(workspace, give)


@attack
def library_of_another_user_in_ones_own_cache(workspace: Workspace) -> Finding:
    """Only the library belongs to somebody else."""
    return call_with_planted(workspace, lambda cache: give(next(cache.rglob("*.so"))))


@attack
def library_in_a_cache_that_everybody_may_write(workspace: Workspace) -> Finding:
    """The cache has the mode 777."""
    return call_with_planted(workspace, lambda cache: cache.chmod(0o777))


@attack
def library_in_a_part_that_everybody_may_write(workspace: Workspace) -> Finding:
    """A folder on the way to the library has the mode 777."""
    return call_with_planted(workspace, lambda cache: (cache / "artifacts").chmod(0o777))


@attack
def library_in_a_cache_that_a_group_may_write(workspace: Workspace) -> Finding:
    """The cache is the user's, and a group may write to it."""

    def share(cache: Path) -> None:
        give(cache, os.geteuid())
        cache.chmod(0o2775)

    return call_with_planted(workspace, share)


@attack
def library_in_a_cache_below_a_folder_of_another_user(workspace: Workspace) -> Finding:
    """The cache is the user's; the folder above it is not."""
    above = workspace.folder / "above"
    above.mkdir()
    plant_library(workspace, above / "cache")
    os.chown(above, OTHER, OTHER) if os.geteuid() == 0 else above.chmod(0o777)
    call(workspace, above / "cache")
    return held("built anew")


# Tokens and passwords.


@contextmanager
def listening() -> Iterator[tuple[str, list[bytes]]]:
    """Yields the address of a server, and what it received."""
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
                    connection.sendall(b"HTTP/1.1 404 x\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}", got


def look_up(address: str, got: list[bytes]) -> Finding:
    """Looks a key up in the store that the settings here name; says whether the token arrived."""
    from tunewright import Session
    from tunewright.errors import TunewrightError
    from tunewright.testing.keys import KEY

    try:
        Session().store.get(KEY)
    except TunewrightError as error:
        print(error)
    sent = [request for request in got if SECRET.encode() in request]
    return Finding(LEAK, f"the token was sent to {address}") if sent else held("no token was sent")


@attack
def token_for_the_service_of_a_cloned_project(workspace: Workspace) -> Finding:
    """A project's file names the store; the user has a token for another."""
    os.environ["TUNEWRIGHT_TOKEN"] = SECRET
    with listening() as (address, got):
        (workspace.folder / FILE).write_text(f'store = "http://{address}?tries=1"\n')
        return look_up(address, got)


@attack
def token_bound_to_another_port_of_the_machine(workspace: Workspace) -> Finding:
    """Another user of the machine listens on another port."""
    os.environ |= {"TUNEWRIGHT_TOKEN": SECRET, "TUNEWRIGHT_TOKEN_HOST": "127.0.0.1:1"}
    with listening() as (address, got):
        (workspace.folder / FILE).write_text(f'store = "http://{address}?tries=1"\n')
        return look_up(address, got)


@attack
def token_in_a_process_that_got_its_settings(workspace: Workspace) -> Finding:
    """A child gets the store in its environment, as if the user had named it."""
    from tunewright.settings import Settings

    os.environ |= {"TUNEWRIGHT_TOKEN": SECRET, "TUNEWRIGHT_TOKEN_HOST": "tuning.example"}
    with listening() as (address, got):
        (workspace.folder / FILE).write_text(f'store = "http://{address}?tries=1"\n')
        os.environ |= Settings.read().environ()
        return look_up(address, got)


@attack
def password_in_what_is_shown(workspace: Workspace) -> Finding:
    """Locations with passwords in every place where one may be; all that is shown is searched."""
    from tunewright.errors import TunewrightError
    from tunewright.settings import Settings
    from tunewright.stores import locations

    for location in (
        *(f"redis://u:{SECRET}@127.0.0.1:1/0", f"redis://:a/{SECRET}@127.0.0.1:1", f"redis://h:{SECRET}"),
        *(f"postgresql://u:{SECRET}@127.0.0.1:1/x", f"postgres: host=127.0.0.1 port=1 password={SECRET}"),
        *(
            f"https://{SECRET}@127.0.0.1:1?tries=1",
            f"https://127.0.0.1:1?key={SECRET}",
            f"redis://127.0.0.1:1?password={SECRET}",
        ),
    ):
        settings = Settings(store=location)
        print(settings, repr(settings), settings.store_name)
        try:
            for store in locations.open_each(location):
                print(store)
                list(store.decisions())
        except TunewrightError as error:
            print(error, repr(error), error.__cause__, error.__context__ if not error.__suppress_context__ else "")
    return held()


@attack
def password_in_the_command_line(workspace: Workspace) -> Finding:
    """Commands show the location of a store that does not answer."""
    os.environ["TUNEWRIGHT_STORE"] = f"redis://u:{SECRET}@127.0.0.1:1/0"
    for arguments in (("settings",), ("settings", "--json"), ("show",), ("store", "stats")):
        command(*arguments)
    return held()


# Retention.


def trimmed(workspace: Workspace, **limits: Any) -> Any:
    """Returns a store with an old entry of every kind, and of one that nobody declared, after it was trimmed."""
    from tunewright.stores.namespaces import NAMESPACES
    from tunewright.stores.sqlite import SqliteStore
    from tunewright.stores.statistics import RetentionLimits
    from tunewright.testing.keys import KEY, TIMED

    path = workspace.folder / "store.sqlite"
    store = SqliteStore(path)
    for name in [*(kind.named("x") if kind.many else kind.name for kind in NAMESPACES), "unknown"]:
        store.keep(name, "x", b"x" * 1000)
    store.record(KEY, [TIMED])
    with sqlite3.connect(path) as raw:
        for table in ("entries", "trials"):
            raw.execute(f"UPDATE {table} SET at = at - 8640000")
    raw.close()
    store.trim(RetentionLimits(**limits))
    return store


def lost(store: Any) -> Finding:
    """Says whether a kind went that must stay."""
    from tunewright.stores.namespaces import NAMESPACES, Retention

    kept = [kind for kind in NAMESPACES if kind.retention is Retention.NEVER]
    names = [*(kind.named("x") if kind.many else kind.name for kind in kept), "unknown"]
    gone = [name for name in names if not store.fetch(name, ["x"])]
    return Finding(LOSS, f"removed: {', '.join(gone)}") if gone else held()


@attack
def retention_by_age(workspace: Workspace) -> Finding:
    """Everything is older than the limit, and everything that may be asked for is."""
    return lost(trimmed(workspace, age=1.0, decisions=True, kinds=("memo", "races")))


@attack
def retention_by_size(workspace: Workspace) -> Finding:
    """The store is larger than the limit by what must stay."""
    return lost(trimmed(workspace, bytes=0, decisions=True, kinds=("memo", "races")))


# Recorded misses.


def record_miss(workspace: Workspace, kernel: str, target: str, recipe: str = "{}") -> None:
    """Records a miss, as whoever can write to the store may."""
    from tunewright.stores.sqlite import SqliteStore
    from tunewright.stores.statistics import MissRecord
    from tunewright.testing.keys import other_key

    miss = MissRecord(other_key(kernel=kernel), 5, 1e6, target, recipe)
    SqliteStore(workspace.folder / "store.sqlite").record_misses([miss])


@attack
def recorded_miss_that_names_a_file_or_module(workspace: Workspace) -> Finding:
    """The record says where its kernel is defined."""
    (workspace.folder / "evil.py").write_text(workspace.python)
    (workspace.folder / "kernels.py").write_text(TUNED)
    targets = (
        "evil.py:x",
        "./evil.py:x",
        "evil:x",
        f"{workspace.folder}/evil.py:x",
        "tunewright.operators/../evil.py:x",
    )
    for number, target in enumerate(targets):
        record_miss(workspace, f"gemm{number}", target)
    record_miss(workspace, "total", "evil.py:total")
    for named in ((), ("kernels.py",)):
        command("tune", "--recorded", *named, "--store", "store.sqlite", "--pool", "serial")
    return held()


@attack
def recorded_miss_with_a_recipe_that_fills_the_memory(workspace: Workspace) -> Finding:
    """The key is right; the arguments have terabytes."""
    import numpy as np

    from tunewright.cli import misses
    from tunewright.cli.targets import load_tunables
    from tunewright.stores.sqlite import SqliteStore
    from tunewright.stores.statistics import MissRecord

    (workspace.folder / "kernels.py").write_text(TUNED)
    (kernel,) = load_tunables("kernels.py")
    key = kernel.problem([np.ones(64, np.float32)]).key
    recipe = '{"args":[{"type":"array","shape":[2000000000000]}],"dims":{"N":2000000000000}}'
    SqliteStore("store.sqlite").record_misses([MissRecord(key, 5, 1e6, "kernels.py:total", recipe)])
    return Finding(WRONG_CONFIG, "made") if list(misses.recorded_calls(["kernels.py"], "store.sqlite")) else held()


# Honest uses.


@honest
def a_setting_in_the_current_folder_is_read(workspace: Workspace) -> Finding:
    """The plain case: one's own file."""
    (workspace.folder / FILE).write_text("trials = 7\n")
    return held() if read_trials() == 7 else Finding(WRONG_CONFIG, "not read")


@honest
def settings_with_the_umask_002_and_a_private_group(workspace: Workspace) -> Finding:
    """A file that one's own group may write, as it is by default on Debian and Fedora."""
    (workspace.folder / FILE).write_text("trials = 7\n")
    (workspace.folder / FILE).chmod(0o664)
    return held() if read_trials() == 7 else Finding(WRONG_CONFIG, "not read")


@honest
def a_checkout_of_another_user_in_a_container_of_root(workspace: Workspace) -> Finding:
    """The folder is listed as trusted, with its settings and its cache."""
    (workspace.folder / FILE).write_text('trials = 7\ncache = "cache"\n')
    call(workspace, workspace.folder / "cache")
    give(workspace.folder)
    os.environ["TUNEWRIGHT_TRUSTED_FOLDERS"] = str(workspace.folder)
    call(workspace, workspace.folder / "cache")
    return held() if read_trials() == 7 else Finding(WRONG_CONFIG, "not read")


@honest
def a_cache_with_any_umask_is_used_again(workspace: Workspace) -> Finding:
    """What was built with the umask 000 or 002 is loaded by the next process."""
    for mask in (0o000, 0o002, 0o022, 0o077):
        os.umask(mask)
        cache = workspace.folder / f"cache{mask}"
        call(workspace, cache)
        (library,) = cache.rglob("*.so")
        before = library.stat().st_ino
        call(workspace, cache)
        if library.stat().st_ino != before:
            return Finding(WRONG_CONFIG, f"built again with the umask {mask:03o}")
    return held()


@honest
def a_cache_below_a_folder_like_tmp(workspace: Workspace) -> Finding:
    """All may write to the folder, and rename only what is theirs."""
    (workspace.folder / "tmp").mkdir()
    (workspace.folder / "tmp").chmod(0o1777)
    call(workspace, workspace.folder / "tmp" / "cache")
    return held()


@honest
def a_token_and_a_store_in_the_environment(workspace: Workspace) -> Finding:
    """Both are the user's; the token arrives."""
    from tunewright import Session
    from tunewright.testing.keys import KEY

    with listening() as (address, got):
        os.environ |= {"TUNEWRIGHT_TOKEN": "tw_1", "TUNEWRIGHT_STORE": f"http://{address}?tries=1"}
        Session().store.get(KEY)
    return held() if any(b"tw_1" in request for request in got) else Finding(WRONG_CONFIG, "the token was not sent")


@honest
def a_recorded_kernel_of_a_named_file(workspace: Workspace) -> Finding:
    """What mode=record wrote is selected."""
    import numpy as np

    from tunewright import Session
    from tunewright.cli import misses
    from tunewright.cli.targets import load_tunables

    (workspace.folder / "kernels.py").write_text(TUNED)
    (kernel,) = load_tunables("kernels.py")
    session = Session(mode="record", store="store.sqlite")
    kernel.using(session)
    kernel(np.ones(64, np.float32))
    session.misses.flush()
    return held() if len(list(misses.recorded_calls(["kernels.py"], "store.sqlite"))) == 1 else Finding(WRONG_CONFIG)


@honest
def retention_removes_old_trials(workspace: Workspace) -> Finding:
    """What may go, goes."""
    from tunewright.testing.keys import KEY

    store = trimmed(workspace, age=1.0, kinds=("memo",))
    left = [*store.trials(KEY), *store.fetch("torch", ["x"]), *store.fetch("memo x", ["x"])]
    return Finding(WRONG_CONFIG, "old records stayed") if left else held()
