"""Runs of commands: files are new each time, outputs are judged, and nothing is left running."""

import contextlib
import os
import stat
import threading

import pytest
from command_bench import running, wait_until

import tunewright as tw
from tunewright.errors import BackendError
from tunewright.model.trial import Failure, Kind

SORTED = 'sort "$2" > "$3"'


def works(trial) -> bool:
    return bool(trial.works)


def reason(trial) -> str:
    assert isinstance(trial.outcome, Failure), trial
    return f"{trial.outcome.kind}: {trial.outcome.reason}"


def test_honest_configs_work_and_have_equal_fingerprints(bench) -> None:
    trials = bench.try_all(bench.command(SORTED))
    assert all(map(works, trials.values()))
    assert trials[1].fingerprint == trials[2].fingerprint
    assert trials[1].outcome.clock == "wall"


def test_an_output_that_is_right_only_on_the_first_run_is_wrong(bench) -> None:
    bench_file = bench.folder / "counter"
    cheat = (
        f'if [ $1 = 2 ] && [ -e {bench_file} ]; then echo one > "$3"; else {SORTED}; fi; [ $1 = 1 ] || : > {bench_file}'
    )
    trials = bench.try_all(bench.command(cheat))
    assert works(trials[1])
    assert "wrong: {output} (4 bytes) differs from what the default config writes" in reason(trials[2])


def test_an_output_that_is_right_for_some_runs_only_is_wrong_too(bench) -> None:
    count = bench.folder / "count"
    count.touch()
    counts = f"[ $1 = 1 ] || echo x >> {count}"
    cheat = f'{counts}; if [ $1 = 2 ] && [ $(wc -l < {count}) -gt 6 ]; then echo one > "$3"; else {SORTED}; fi'
    trials = bench.try_all(bench.command(cheat))
    assert works(trials[1])
    assert "wrong" in reason(trials[2])
    assert trials[2].outcome.stage == "time", "its first runs were right"


def test_what_is_kept_in_the_folder_for_temporary_files_is_gone(bench) -> None:
    honest = f'if [ -e $TMPDIR/seen ]; then echo one > "$3"; else {SORTED}; fi; : > $TMPDIR/seen; : > seen-here'
    assert all(map(works, bench.try_all(bench.command(honest)).values()))


def test_a_run_that_changes_its_input_changes_only_its_copy(bench) -> None:
    changes = f'{SORTED}; echo changed >> "$2"'
    before = bench.input.read_text()
    assert all(map(works, bench.try_all(bench.command(changes)).values()))
    assert bench.input.read_text() == before


def test_a_run_that_changes_a_constant_input_is_wrong(bench) -> None:
    changes = f'{SORTED}; if [ $1 = 2 ]; then chmod u+w "$2"; echo changed >> "$2"; fi'
    before, mode = bench.input.read_text(), bench.input.stat().st_mode
    trials = bench.try_all(bench.command(changes, constant=["input"]))
    assert works(trials[1])
    assert "it wrote to {input}, which is declared constant" in reason(trials[2])
    assert (bench.input.read_text(), bench.input.stat().st_mode) == (before, mode)


def test_a_constant_input_may_be_removed(bench) -> None:
    assert all(map(works, bench.try_all(bench.command(f'{SORTED}; rm -f "$2"', constant=["input"])).values()))


def test_an_input_that_is_declared_as_output_is_compared(bench) -> None:
    changes = 'if [ $1 = 2 ]; then echo other >> "$2"; else echo more >> "$2"; fi'
    trials = bench.try_all(bench.command(changes, "sh {script} {n} {input}", outputs=["input"]))
    assert works(trials[1])
    assert "{input} (20 bytes) differs" in reason(trials[2])


def test_a_folder_can_be_an_input_and_an_output(bench) -> None:
    project = bench.folder / "project"
    (project / "deep").mkdir(parents=True)
    (project / "deep" / "x").write_text("x")
    script = 'mkdir "$3"; cp -r "$2"/deep "$3"; [ $1 = 1 ] || echo y > "$3"/deep/y'
    command = bench.command(script, files={"script": bench.folder / "script.sh", "input": project})
    trials = bench.try_all(command)
    assert works(trials[1])
    assert "differs" in reason(trials[2])


def test_a_daemon_is_ended_with_each_run(bench) -> None:
    daemon = f"{SORTED}; (setsid sh -c 'sleep 3141.5' >/dev/null 2>&1 &) ; setsid sleep 3141.5 >/dev/null 2>&1 &"
    assert all(map(works, bench.try_all(bench.command(daemon)).values()))
    assert running("3141.5") == []


def test_a_daemon_cannot_write_the_output_later(bench) -> None:
    late = f'if [ $1 = 2 ]; then (setsid sh -c "sleep 0.05; sort $2 > $3" >/dev/null 2>&1 &); else {SORTED}; fi'
    assert "it wrote no {output}" in reason(bench.try_all(bench.command(late))[2])


def test_a_metric_that_is_printed_and_not_earned_is_found_out(bench) -> None:
    fake = f'if [ $1 = 2 ]; then echo "speed 1e9"; else {SORTED}; echo "speed 5"; fi'
    trials = bench.try_all(bench.command(fake, metric=tw.Regex(r"speed (\S+)", best="high", unit="MB/s")))
    assert trials[1].seconds == pytest.approx(1e-6 / 5)
    assert "it wrote no {output}" in reason(trials[2])


def test_a_fake_metric_beside_a_copied_output_fails_the_check(bench) -> None:
    fake = f'if [ $1 = 2 ]; then cp "$2" "$3"; echo "speed 1e9"; else {SORTED}; echo "speed 5"; fi'
    command = bench.command(fake, metric=tw.Regex(r"speed (\S+)", best="high"), check="sort -c {output}")
    trials = bench.try_all(command)
    assert works(trials[1])
    assert "the check 'sort -c {output}' failed: it exited with status 1: sort: " in reason(trials[2])


def test_outputs_that_differ_need_a_check(bench) -> None:
    random = f'{SORTED}; head -c 8 /dev/urandom >> "$3"'
    said = reason(bench.try_all(bench.command(random))[1])
    assert "differs from run to run even with the default config; give a check=" in said


def sorted_lines(outputs) -> bool:
    lines = outputs["output"].read_bytes().splitlines()
    return sorted(lines[:3]) == [b"one", b"three", b"two"]


@pytest.mark.parametrize("script", [f'{SORTED}; head -c 8 /dev/urandom >> "$3"', 'sort -R "$2" > "$3"'])
def test_random_outputs_are_right_if_a_check_says_so(bench, script) -> None:
    trials = bench.try_all(bench.command(script, check=sorted_lines))
    assert all(map(works, trials.values()))


def test_a_check_may_return_false_or_raise(bench) -> None:
    def refuse(outputs):
        assert outputs["stdout"].read_bytes() == b"1\n"

    trials = bench.try_all(bench.command(f'{SORTED}; echo "$1"', check=refuse))
    assert works(trials[1])
    assert "wrong: the check raised AssertionError" in reason(trials[2])
    bench.close()
    trials = bench.try_all(bench.command(SORTED, check=lambda outputs: False))
    assert "wrong: the check returned False" in reason(trials[1])


def test_without_outputs_what_is_printed_is_compared(bench) -> None:
    trials = bench.try_all(bench.command('sort "$2"; [ $1 = 1 ] || echo more', "sh {script} {n} {input}"))
    assert "{stdout} (19 bytes) differs" in reason(trials[2])


def test_a_check_that_is_waived_is_noted(bench) -> None:
    command = bench.command(f'{SORTED}; head -c 8 /dev/urandom >> "$3"', check=None)
    assert all(map(works, bench.try_all(command).values()))
    assert command.notes == ("outputs were not checked (check=None)",)
    assert command.tuned(name="x").problem(("", "", "")).key.mode["check"] == "nothing: outputs are not checked"


def test_a_failing_command_says_its_last_words(bench) -> None:
    fails = f'if [ $1 = 2 ]; then echo one >&2; echo "no such flag" >&2; exit 3; else {SORTED}; fi'
    assert reason(bench.try_all(bench.command(fails))[2]) == ("raised: it exited with status 3: one; no such flag")


def test_a_default_that_fails_is_the_declaration_s_fault(bench) -> None:
    with pytest.raises(BackendError, match=r"the default config \(n=1\) fails.*status 3.*another `default=`"):
        bench.try_all(bench.command("exit 3"))


def test_a_command_that_names_a_file_beside_the_declaration_gets_a_hint(bench, monkeypatch) -> None:
    monkeypatch.chdir(bench.folder)
    command = bench.command(SORTED, "sh script.sh {n} {input} {output}", files={"input": bench.input})
    with pytest.raises(BackendError, match=r"a folder of its own, where there is no 'script.sh': write \{script\}"):
        bench.try_all(command)


def test_a_command_that_does_not_end_is_killed_with_its_children(bench) -> None:
    hangs = f"if [ $1 = 2 ]; then setsid sleep 2718.2 & sleep 2718.2; else {SORTED}; fi"
    trial = bench.try_all(bench.command(hangs, timeout=0.5))[2]
    assert "it did not end within 0.5 s" in reason(trial)
    assert running("2718.2") == []


def test_a_runner_that_is_closed_leaves_nothing(bench) -> None:
    """As when a worker is killed: the guardian sees the pipe closed while the command runs."""
    workload = bench.evaluator(bench.command("sleep 1618.0")).workload

    def prepare() -> None:
        with contextlib.suppress(BackendError):
            workload.prepare()

    thread = threading.Thread(target=prepare)
    thread.start()
    assert wait_until(lambda: len(running("1618.0")) > 0)
    workload.runner._process.stdin.close()
    thread.join(20)
    assert wait_until(lambda: running("1618.0") == [])
    assert wait_until(lambda: not list(bench.scratch.iterdir()))


def test_folders_that_forbid_their_removal_are_removed(bench) -> None:
    locked = f"{SORTED}; mkdir -p a/b; : > a/b/c; chmod 000 a/b a"
    assert all(map(works, bench.try_all(bench.command(locked)).values()))


def test_names_of_files_are_no_flags_and_may_have_blanks(bench) -> None:
    odd = bench.folder / "-r two words.txt"
    odd.write_text("b\na\n")
    trials = bench.try_all(
        tw.Command(
            "sort {flag} {input}",
            space=tw.Space(tw.Knob("flag", ["", "--parallel=2"])),
            files={"input": odd},
            scratch=bench.scratch,
            check=lambda outputs: outputs["stdout"].read_bytes() == b"a\nb\n",
        )
    )
    assert all(map(works, trials.values()))


def test_a_program_can_be_an_input(bench) -> None:
    script = bench.script('#!/bin/sh\nsort "$2" > "$3"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    files = {"program": script, "input": bench.input}
    command = bench.command(script.read_text(), "{program} {n} {input} {output}", files=files)
    script.chmod(0o755)
    assert all(map(works, bench.try_all(command).values()))


def test_standard_input_and_variables(bench) -> None:
    command = bench.command(
        'read line; echo "$line $LEVEL $OMP_NUM_THREADS" > "$1"',
        "sh {script} {output}",
        stdin="input",
        env={"LEVEL": "level {n}"},
        check=lambda outputs: outputs["output"].read_text().startswith("three level "),
    )
    assert all(map(works, bench.try_all(command).values()))


def test_cpu_time_counts_children(bench) -> None:
    busy = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"
    command = bench.command(
        f'{SORTED}; sh -c "{busy}"; sleep 0.05'.replace("$i", "\\$i").replace("$((", "\\$(("), metric=tw.CpuSeconds()
    )
    trial = bench.try_all(command)[1]
    assert trial.outcome.clock == "cpu"
    assert trial.seconds > 1e-3


def test_a_command_that_is_killed_says_by_which_signal(bench) -> None:
    trial = bench.try_all(bench.command(f"[ $1 = 1 ] || kill -9 $$; {SORTED}"))[2]
    assert trial.outcome.kind is Kind.RAISED
    assert "it was killed by signal 9" in trial.outcome.reason


def test_a_guardian_that_is_killed_costs_one_run(bench) -> None:
    workload = bench.evaluator(bench.command(SORTED)).workload
    workload.prepare()
    workload.runner._process.kill()
    config = tw.Config(n=1)
    with pytest.raises((BackendError, BrokenPipeError)):
        workload.run(config)
    assert workload.run(config).outputs["output"].read_text() == "one\nthree\ntwo\n"


def test_a_command_that_never_stops_printing_is_killed(bench) -> None:
    trial = bench.try_all(bench.command(f"[ $1 = 1 ] || exec yes; {SORTED}", timeout=60))[2]
    assert "it printed more than 256 MB" in reason(trial)


def test_only_a_file_can_be_constant(bench) -> None:
    files = {"script": bench.script(SORTED), "input": bench.folder / "some"}
    files["input"].mkdir()
    with pytest.raises(BackendError, match="only a file can be constant"):
        bench.try_all(bench.command(SORTED, files=files, constant=["input"]))


def test_names_and_variables_need_not_be_text(bench, monkeypatch) -> None:
    monkeypatch.setenv("ODD", os.fsdecode(b"\xff\xfe"))
    odd = bench.folder / os.fsdecode(b"\xff.txt")
    odd.write_text("b\na\n")
    files = {"script": bench.script(SORTED), "input": odd}
    assert all(map(works, bench.try_all(bench.command(SORTED, files=files)).values()))


def test_commands_do_not_inherit_the_pipes_of_the_guardian(bench) -> None:
    script = f'{SORTED}; ls /proc/self/fd > "$3".fds; [ $(ls /proc/$$/fd | wc -l) -le 6 ]'
    assert all(map(works, bench.try_all(bench.command(script)).values()))
