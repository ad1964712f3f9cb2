"""Real programs are tuned: searched, verified, raced, remembered, and called with what was found."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from command_bench import needs, running, wait_until

import tunewright as tw
from tunewright.cli.main import command as cli
from tunewright.errors import BackendError, SignatureError
from tunewright.model.decision import Decision, Evidence
from tunewright.report import formatting
from tunewright.report.progress import verdict

SLOW, FAST = 0.12, 0.02


def words(count: int) -> str:
    return "\n".join(f"{number * 7919 % 104729:06d} word{number % 97}" for number in range(count)) + "\n"


@pytest.fixture
def corpus(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "corpus.txt"
    path.write_text(words(4_000))
    return path


def serial(budget: str = "4") -> dict:
    return {"session": tw.Session(pool="serial"), "budget": budget}


def waits(seconds: dict[int, float]) -> str:
    cases = "".join(f"{n}) sleep {s};; " for n, s in seconds.items())
    return f'case $1 in {cases}esac; sort "$2" > "$3"'


def test_the_faster_flags_win_and_are_remembered(bench) -> None:
    space = tw.Space(tw.Knob("n", [1, 2, 3]))
    made = bench.command(waits({1: SLOW, 2: FAST, 3: 2 * SLOW}), space=space)
    subject = made.tuned(name="subject", **serial())
    done = subject(output=bench.folder / "sorted.txt")
    assert (bench.folder / "sorted.txt").read_text() == "one\nthree\ntwo\n"
    assert isinstance(done, subprocess.CompletedProcess)
    decision = subject.decide()
    assert decision.config == {"n": 2}
    assert decision.evidence is not None
    assert decision.evidence.gain > 1.5
    assert decision.evidence.clock == "wall"
    again = bench.command(waits({1: SLOW, 2: FAST, 3: 2 * SLOW}), space=space).tuned(name="subject", **serial())
    assert again.decide() == decision
    assert again.session.counts["measurements"] == 0
    assert sorted(os.listdir(bench.folder)) == ["input.txt", "scratch", "script.sh", "sorted.txt"]


def test_calls_take_other_files_by_place_or_name(bench) -> None:
    subject = bench.command(waits({1: 0.0, 2: 0.0})).tuned(name="subject", session=tw.Session(mode="off"))
    other = bench.folder / "other.txt"
    other.write_text("b\na\n")
    subject(input=other, output=str(bench.folder / "out"))
    assert (bench.folder / "out").read_text() == "a\nb\n"
    assert other.read_text() == "b\na\n"
    with pytest.raises(SignatureError, match=r"say where to write \{output\}"):
        subject(input=other)
    with pytest.raises(BackendError, match="exited with status 2"):
        subject(input=bench.folder / "nowhere", output="/nowhere/out")


def test_the_decorator_declares_the_same(bench) -> None:
    backend = bench.command(waits({1: 0.0, 2: 0.0}))

    @tw.tune(tw.Space(tw.Knob("n", [1, 2])), backend=backend, session=tw.Session(mode="off"))
    def subject(input, output): ...

    subject(bench.input, bench.folder / "out")
    assert (bench.folder / "out").read_text() == "one\nthree\ntwo\n"
    with pytest.raises(SignatureError, match="'wrong', which is no file or output"):

        @tw.tune(tw.Space(tw.Knob("n", [1, 2])), backend=backend)
        def other(wrong): ...


def test_a_key_has_the_bytes_of_program_and_input_the_template_and_the_metric(bench, monkeypatch) -> None:
    def key(script="exit 0", template="sh {script} {n} {input} {output}", threads=2, **options):
        return bench.command(script, template, **options).tuned(name="k", threads=threads).problem(("", "", "")).key

    first = key()
    assert key() == first, "nothing changed"
    other = bench.folder / "elsewhere"
    other.mkdir()
    (other / "input.txt").write_text(bench.input.read_text())
    moved = {"script": bench.folder / "script.sh", "input": other / "input.txt"}
    assert key(files=moved) == first, "where a file lies does not count"
    assert set(key("exit 1").differences(first)) == {"signature.args.0"}
    assert set(key(template="sh -e {script} {n} {input} {output}").differences(first)) == {"source"}
    assert set(key(metric=tw.CpuSeconds()).differences(first)) == {"mode.metric"}
    assert set(key(check=None).differences(first)) == {"mode.check"}
    assert set(key(check="cmp {output} {input}").differences(first)) == {"mode.check"}
    assert set(key(check=lambda outputs: True).differences(first)) == {"mode.check"}
    assert set(key(threads=1).differences(first)) == {"mode.threads"}
    assert set(key(env={"X": "1"}).differences(first)) == {"source"}
    bench.input.write_text("changed\n")
    assert set(key().differences(first)) == {"signature.args.1"}


def test_another_program_of_the_same_name_is_another_key(bench, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(bench.folder), prepend=os.pathsep)
    tool = bench.folder / "mytool"
    made = tw.Command("mytool {n}", space=tw.Space(tw.Knob("n", [1, 2]))).tuned(name="k")
    with pytest.raises(BackendError, match="there is no program 'mytool'; install it"):
        made.problem(())
    tool.write_text("#!/bin/sh\necho $1\n")
    tool.chmod(0o755)
    first = made.problem(()).key
    tool.write_text("#!/bin/sh\necho $1 \n")
    assert set(made.problem(()).key.differences(first)) == {"toolchain.mytool"}


def test_programs_can_be_chosen_among(bench) -> None:
    space = tw.Space(tw.Knob("program", ["cat", "head -n 9", "nosuch"]))
    made = tw.Command("{program} {input}", space=space, files={"input": bench.input}, scratch=bench.scratch)
    assert set(made.tuned(name="k").problem(("",)).key.toolchain) == {"cat"}, "a program is one word"
    trials = bench.try_all(made)
    assert trials["cat"].works
    assert "No such file or directory" in trials["nosuch"].outcome.reason


@needs("zstd")
@pytest.mark.slow
def test_zstd(corpus) -> None:
    made = tw.Command(
        "zstd -q -{level} -T{threads} {input} -o {output}",
        space=tw.Space(tw.Knob("level", [15, 1]), tw.Knob("threads", [1, 2])),
        files={"input": "corpus.txt"},
        check="zstd -qdc {output} | cmp - {input}",
    )
    compress = made.tuned(name="compress", **serial())
    compress(output="corpus.zst")
    decision = compress.decide()
    assert decision.config["level"] == 1
    assert decision.evidence.gain > 1.2
    subprocess.run(["zstd", "-q", "-d", "corpus.zst", "-o", "back.txt"], check=True)
    assert Path("back.txt").read_text() == corpus.read_text()
    assert made.command_line(decision.config).startswith(f"zstd -q -{decision.config['level']} -T")
    assert compress.problem(("", "")).key.toolchain.keys() == {"zstd"}


@needs("zstd")
def test_zstd_by_the_speed_that_it_prints(corpus) -> None:
    speed = tw.Regex(r"\(x[\d.]+\),\s*([\d.]+) MB/s,", best="high", unit="MB/s")
    made = tw.Command(
        "zstd -b{level} -i0 {input}", space=tw.Space(tw.Knob("level", [12, 1])), files={"input": corpus},
        metric=speed, check=None,
    )  # fmt: skip
    decision = made.tuned(name="speed", **serial()).decide()
    assert decision.config == {"level": 1}
    said = verdict(decision)
    assert " MB/s ±" in said
    assert " ms" not in said
    assert "outputs were not checked (check=None)" in said
    assert "seconds are 1e-6 / MB/s" in said


@needs("sqlite3")
@pytest.mark.slow
def test_sqlite(tmp_path) -> None:
    with sqlite3.connect(tmp_path / "orders.db") as made:
        made.execute("create table orders (id integer primary key, customer int, amount int)")
        made.executemany("insert into orders values (?, ?, ?)", ((n, n * 7919 % 5003, n % 1009) for n in range(3_000)))
    made.close()
    query = "select customer, sum(amount) from orders group by customer order by 2 desc limit 5;"
    pragmas = (
        "PRAGMA synchronous=OFF; PRAGMA page_size={page}; VACUUM; PRAGMA cache_size={cache}; PRAGMA mmap_size={mmap};"
    )
    made = tw.Command(
        f'sqlite3 -cmd ".output /dev/null" -cmd "{pragmas}" -cmd ".output {{output}}" {{db}} "{query}"',
        space=tw.Space(tw.Knob("page", [512, 16384]), tw.Knob("cache", [-100, -20000]), tw.Knob("mmap", [0, 1 << 26])),
        files={"db": tmp_path / "orders.db"},
    )
    before = (tmp_path / "orders.db").read_bytes()
    report = made.tuned(name="report", **serial("4"))
    report(output=tmp_path / "report.txt", db=tmp_path / "orders.db")
    assert len((tmp_path / "report.txt").read_text().splitlines()) == 5
    evidence = report.decide().evidence
    assert (evidence.failures, evidence.trials) == (0, 4)
    assert (tmp_path / "orders.db").read_bytes() != before, "the call vacuums; tuning alone would not have"


@pytest.mark.slow
def test_sort(corpus) -> None:
    made = tw.Command(
        "sort --parallel={parallel} -S {memory} {input} -o {output}",
        space=tw.Space(tw.Knob("parallel", [1, 2]), tw.Knob("memory", ["1M", "64M"])),
        files={"input": corpus}, constant=["input"],
    )  # fmt: skip
    decision = made.tuned(name="sort", **serial()).decide()
    assert decision.evidence.failures == 0
    assert decision.evidence.trials == 4


def test_numbers_that_are_printed_are_shown_with_their_unit() -> None:
    key = (
        tw.Command("sh -c {n}", space=tw.Space(tw.Knob("n", [1])), metric=tw.Regex("(x)", best="low", unit="ms"))
        .tuned(name="k")
        .problem(())
        .key
    )
    assert formatting.measured(1.25e-3, key) == "1250 ms"
    assert "1250 ms" in verdict(Decision(key, tw.Config(n=1), Evidence(1.25e-3, 1.25e-3, 1.25e-3)))
    plain = tw.tune(tw.Space(tw.Knob("n", [1])))(lambda *, n: n)
    assert formatting.measured(1.25e-3, plain.problem(()).key) == "1.25 ms"


PROGRAM = """
import sys
import tunewright as tw

space = tw.Space(tw.Knob("n", [1, 2]))
made = tw.Command("sh -c 'if [ $0 = 2 ]; then setsid sleep {marker} & sleep {marker}; fi; sleep 0.01' {{n}}",
                  space=space, scratch="scratch", timeout=600)
hangs = made.tuned(name="hangs")
if __name__ == "__main__":
    tw.configure(pool=sys.argv[1])
    hangs.tune()
"""


@pytest.mark.parametrize("pool", ["serial", "process"])
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_ctrl_c_and_a_kill_end_the_command_and_leave_no_folder(tmp_path, pool, end) -> None:
    marker = f"{os.getpid() + 1000}.{pool == 'serial':d}{end:d}"
    (tmp_path / "scratch").mkdir()
    (tmp_path / "hangs.py").write_text(PROGRAM.format(marker=marker))
    process = subprocess.Popen([sys.executable, "hangs.py", pool], cwd=tmp_path, stderr=subprocess.DEVNULL)
    try:
        assert wait_until(lambda: len(running(f"sleep\0{marker}")) == 2, 60)
        process.send_signal(end)
        assert process.wait(60) != 0
    finally:
        process.kill()
    assert wait_until(lambda: not running(marker))
    assert wait_until(lambda: not list((tmp_path / "scratch").iterdir()))


def test_the_command_line(corpus, capsys) -> None:
    line = ["command", "sort --parallel={parallel} {input} -o {output}", "--knob", "parallel=1,2"]
    line += ["--file", "input=corpus.txt", "--budget", "2", "--pool", "serial"]
    cli(line, standalone_mode=False)
    last = capsys.readouterr().out.splitlines()[-1]
    assert last in ("sort --parallel=1 corpus.txt -o output", "sort --parallel=2 corpus.txt -o output")
    cli([*line, "--json"], standalone_mode=False)
    known = json.loads(capsys.readouterr().out)
    assert known["known"]
    assert known["command"] == last
    assert known["decision"]["key"]["kernel"] == "sort"
    assert sorted(os.listdir()) == ["corpus.txt"]


@pytest.mark.slow
def test_the_command_line_reads_values_metrics_and_the_default(corpus, capsys) -> None:
    line = ["command", "printf 'rate %s\\n%.0s' {rate} {name}", "--knob", "rate=1.5,20", "--knob", "name=a b,c"]
    line += ["--metric", "rate (.*)", "--best", "high", "--unit", "Hz", "--check", "none", "--default", "name=c"]
    cli([*line, "--budget", "4", "--pool", "serial"], standalone_mode=False)
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1] in (r"printf 'rate %s\n%.0s' 20 'a b'", r"printf 'rate %s\n%.0s' 20 c")
    cli(["show", "printf"], standalone_mode=False)
    assert "20 Hz" in capsys.readouterr().out
    cli(["trials", "printf"], standalone_mode=False)
    assert "1.5 Hz" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--knob", "level=1", "--metric", "(x)"], "--best high"),
        (["--knob", "level"], "write NAME=VALUE"),
        ([], "at least one --knob NAME=A,B"),
        (["--knob", "level=1", "--default", "level=7"], "level=7"),
    ],
)
def test_what_cannot_be_read_is_named(more, said) -> None:
    with pytest.raises(Exception, match=said):
        cli(["command", "zstd {level}", *more], standalone_mode=False)
