"""Templates, options and metrics of commands: what is filled in stays one word, what does not fit is named."""

import subprocess
from types import SimpleNamespace

import pytest

import tunewright as tw
from tunewright.commands.template import CommandTemplate
from tunewright.errors import BackendError, SpaceError

NASTY = [
    "a b",
    "a;b",
    "$(touch pwned)",
    "`touch pwned`",
    "'",
    '"',
    "'\"; touch pwned; \"'",
    "a\nb",
    "*",
    "\\",
    "|",
    "é",
]

LEVEL = tw.Space(tw.Knob("level", [1, 2]))


@pytest.mark.parametrize("value", NASTY)
@pytest.mark.parametrize("shell", [False, True])
@pytest.mark.parametrize("template", ["printf %s {value}", 'printf %s "{value}"', "printf %s '{value}'"])
def test_a_value_arrives_as_it_is(value, shell, template, tmp_path) -> None:
    made = CommandTemplate(template, shell=shell)
    words, variables = made.fill({"value": value}), made.variables({"value": value})
    done = subprocess.run(
        words, env={"PATH": "/usr/bin:/bin", **variables}, cwd=tmp_path, capture_output=True, check=True
    )
    assert done.stdout.decode() == value
    assert not list(tmp_path.iterdir()), "nothing was interpreted"


def test_words_are_split_before_values_are_filled_in() -> None:
    made = CommandTemplate("tool --name='{name} x' -{level:02d} {{literal}} {flag} {path}")
    values = {"name": "a b", "level": 3, "flag": "", "path": "x y"}
    assert made.fill(values) == ["tool", "--name=a b x", "-03", "{literal}", "x y"]
    assert made.names == ("name", "level", "flag", "path")


def test_an_empty_flag_is_left_out_and_an_empty_argument_stays() -> None:
    assert CommandTemplate("tool {flag} '' -x{flag}").fill({"flag": ""}) == ["tool", "", "-x"]


@pytest.mark.parametrize(
    ("template", "options", "said"),
    [
        ("zstd -{level} {unknown}", {}, r"\{unknown\}, which is no knob, file or output; there are level"),
        ("zstd {output}", {}, "does not use the knob level"),
        ("zstd -{level} a | cat", {}, "'|' means something only to a shell"),
        ("zstd -{level} a > b", {}, "'>' means something only to a shell"),
        ("zstd -{level} 'a", {}, "No closing quotation"),
        ("awk {print} {level}", {}, r"\{print\}, which is no knob"),
        ("awk {print $1} {level}", {}, "write {{ or }}"),
        ("", {}, "needs a program"),
        ("zstd {level}", {"files": "corpus.txt"}, "maps names to paths"),
        ("zstd {level}", {"files": {"level": "a"}}, "two meanings"),
        ("zstd {level} {stdout}", {"outputs": ["stdout"]}, "two meanings"),
        ("zstd {level} {a}", {"outputs": {"a": "../b"}}, "no file name"),
        ("zstd {level} {a} {b}", {"files": {"a": "x/c", "b": "y/c"}}, "share a name"),
        ("zstd {level}", {"stdin": "a"}, "is no file"),
        ("zstd {level}", {"constant": ["a"]}, "is no file"),
        ("zstd {level}", {"timeout": 0}, "number of seconds"),
        ("zstd {level}", {"metric": "seconds"}, "metric="),
        ("zstd {level}", {"check": 3}, "check="),
        ("zstd {level}", {"check": "cmp {nothing}"}, r"the check has \{nothing\}"),
        ("zstd {level}", {"nonsense": 3}, "nonsense"),
        ("zstd", {"env": {"X": "{levl}"}}, r"env= has \{levl\}"),
    ],
)
def test_what_does_not_fit_is_named(template, options, said) -> None:
    with pytest.raises(SpaceError, match=said):
        tw.Command(template, space=LEVEL, **options)


@pytest.mark.parametrize(
    ("template", "options"),
    [
        ("awk '{{print $1}}' -v x={level}", {}),
        ("grep '|' -m{level}", {}),
        ("find . -exec ls ';' -maxdepth {level}", {}),
        ("tool", {"env": {"LEVEL": "{level}"}}),
        ("tool {level} {db}", {"files": {"db": "a.db"}, "outputs": ["db"]}),
        ("tool {level} | cat > {output}", {"shell": True}),
    ],
)
def test_what_fits_is_taken(template, options) -> None:
    tw.Command(template, space=LEVEL, **options)


def test_options_of_kernels_that_commands_do_not_have_are_refused() -> None:
    command = tw.Command("zstd {level}", space=LEVEL)
    for options in ({"reference": print}, {"cases": [tw.Case()]}, {"regime": "cold"}):
        with pytest.raises(SpaceError, match="not for commands"):
            command.tuned(name="x", **options)
    with pytest.raises(SpaceError, match="give the command a space"):
        tw.Command("zstd {level}").tuned(name="x")


def printing(text: str) -> SimpleNamespace:
    return SimpleNamespace(seconds=1.0, cpu_seconds=0.5, printed=lambda: text)


def test_metrics_are_costs() -> None:
    run = printing("1 MB/s\nspeed: 250 MB/s\n1,000 ms")
    assert (tw.Seconds().cost(run), tw.CpuSeconds().cost(run)) == (1.0, 0.5)
    assert tw.Regex(r"(\d+) MB/s", best="high").cost(run) == pytest.approx(1e-6 / 250)
    assert tw.Regex(r"([\d,]+) ms", best="low").cost(run) == pytest.approx(1e-3)
    faster = printing("500 MB/s")
    assert tw.Regex(r"(\d+) MB/s", best="high").cost(faster) < tw.Regex(r"(\d+) MB/s", best="high").cost(run)


@pytest.mark.parametrize("text", ["", "x MB/s", "0 MB/s", "-3 MB/s", "nan MB/s", "inf MB/s"])
def test_a_metric_that_is_no_positive_number_fails_the_config(text) -> None:
    with pytest.raises(BackendError):
        tw.Regex(r"(\S+) MB/s", best="high").cost(printing(text))


def test_a_malformed_metric_is_refused() -> None:
    for pattern in ("MB/s", "(", r"\d+"):
        with pytest.raises(SpaceError):
            tw.Regex(pattern, best="high")
    with pytest.raises(SpaceError, match="best"):
        tw.Regex(r"(\d+)", best="most")
