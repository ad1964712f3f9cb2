"""What the MCP server offers, without the protocol: tools that check their arguments, bounded in time and output."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tunewright.agents.command_line import CommandLine, Done, OnLine, bounded
from tunewright.agents.folder import CONFIG, NAME, RACED, SHAPE, WorkFolder, matching
from tunewright.agents.searches import AgentSearch, summarize_tuning
from tunewright.agents.seeds import seeds_file
from tunewright.errors import BackendError, SettingsError
from tunewright.model.trial import median

MAX_ROWS = 50
"""Trials of one answer."""

KINDS = ("c", "python", "triton", "torch", "command")
GATE_STATUS = (0, 1, 3)
REFEREE_SHARE = 0.2
"""The share of a referee's time for launches; it spends the rest on starting processes and on comparing."""

MAX_FILES, MAX_FILE_CHARACTERS = 200, 12_000


class AgentTools:
    """The tools of a server, for one folder."""

    def __init__(self, folder: WorkFolder, line: CommandLine) -> None:
        self._folder, self._line = folder, line
        self._search = AgentSearch(line)

    async def describe(self) -> str:
        """Returns the files of the folder, what is decided, and the limits of this server."""
        files = self._folder.list_files((*RACED, ".bundle", ".toml"), MAX_FILES)
        decisions = await self._line.ask("show", "--json")
        decided = [
            {"kernel": each["key"]["kernel"], "signature": each["key"].get("signature"), "config": each["config"]}
            for each in decisions[:MAX_ROWS]
        ]
        limits = {"max_seconds": self._line.max_seconds, "max_rows": MAX_ROWS}
        return bounded(
            {"folder": self._folder.root.name, "files": files, "decided": decided, "limits": limits},
            "there are too many decisions; ask for one kernel with explain",
        )

    async def init(self, name: str, kind: str) -> str:
        """Writes a small kernel and a test of it into the folder."""
        if kind not in KINDS:
            raise SettingsError(f"no kind {str(kind)[:40]!r}; there are {', '.join(KINDS)}")
        done = await self._line.run(("init", "--kind", kind, "--", matching("name", name, NAME, "saxpy")), 60.0)
        return _text(done)

    async def read(self, path: str) -> str:
        """Returns the beginning of a file in the folder."""
        file = self._folder.path(self._folder.file(path))
        text = file.read_text(errors="replace")
        return bounded({"path": path, "text": text[:MAX_FILE_CHARACTERS], "characters": len(text)})

    async def space(self, target: str, sample: int) -> str:
        """Returns the knobs, rules, size and default of a kernel."""
        count = str(min(max(0, int(sample)), MAX_ROWS))
        answer = await self._line.ask("space", "--sample", count, "--json", "--", self._folder.target(target))
        return bounded(answer, "ask for fewer samples")

    async def tune(
        self, target: str, seconds: float, shape: str, propose: Sequence[Any], on_line: OnLine | None = None
    ) -> str:
        """Searches for the best config within the seconds; `propose` are configs to try first."""
        limit = self._line.limit(seconds)
        words = self._tune_words(target, limit, shape)
        seeds = _checked_configs(propose)
        with seeds_file(seeds) as more:
            done = await self._line.measure(
                [*words, *more, "--", self._folder.target(target)], self._line.patience(limit), on_line
            )
        if done.status:
            raise BackendError(done.reason())
        return bounded(summarize_tuning(done.json()))

    def _tune_words(self, target: str, limit: float, shape: str) -> list[str]:
        self._folder.target(target)  # what is wrong is said before anything runs
        shapes = ["--shape", matching("shape", shape, SHAPE, "M=512,N=512 or 512,512")] if shape else []
        return ["tune", "--json", "--progress", "--more", "--budget", f"{limit:g}s", *shapes]

    async def race(self, first: str, second: str, seconds: float, by: float) -> str:
        """Races two functions of files in the folder: whether the second is slower by this fraction."""
        if not 0 < float(by) < 1:
            raise SettingsError("`by` is a fraction between 0 and 1, such as 0.03")
        limit = self._line.limit(seconds)
        targets = [self._folder.target(target, RACED) for target in (first, second)]
        words = ["race", "--json", "--fail-if-slower", f"{float(by):g}", "--seconds", f"{limit:g}", "--", *targets]
        done = await self._line.measure(words, self._line.patience(limit))
        if done.status not in GATE_STATUS:
            raise BackendError(done.reason())
        return bounded(done.json())

    async def race_configs(self, target: str, configs: Sequence[str], seconds: float, shape: str) -> str:
        """Races configs of a kernel: each is KNOB=VALUE,..., or default, or decided."""
        limit = self._line.limit(seconds)
        if not 2 <= len(configs) <= 8:
            raise SettingsError("a race has 2 to 8 configs")
        named = [matching("config", config, CONFIG, "VW=8,MR=4, default or decided") for config in configs]
        shapes = ["--shape", matching("shape", shape, SHAPE, "M=512,N=512")] if shape else []
        words = ["race", "--json", "--seconds", f"{limit:g}", *shapes, "--kernel", self._folder.target(target)]
        done = await self._line.measure([*words, "--", *named], self._line.patience(limit))
        if done.status:
            raise BackendError(done.reason())
        answer = done.json()
        for contestant in answer["contestants"]:
            contestant["rounds"] = len(contestant.pop("samples"))
        return bounded(answer)

    async def referee(self, task: str, candidate: str, against: str, seconds: float, gpu: str = "") -> str:
        """Judges a candidate that is not trusted against a task, both in the folder; within so many seconds in all."""
        limit = self._line.limit(seconds)
        places = [self._folder.place(task), self._folder.file(candidate, RACED)]
        baseline = ["--against", self._folder.file(against, RACED)] if against else []
        measured = ["--seconds", f"{limit * REFEREE_SHARE:g}"]
        target = ["--gpu", matching("gpu", gpu, NAME, "sm_90")] if gpu else []
        words = ["referee", "run", "--json", *measured, *baseline, *target, "--", *places]
        done = await self._line.measure(words, limit)
        return bounded(done.json())

    async def explain(self, kernel: str, shape: str) -> str:
        """Returns why a kernel gets its config; a kernel is FILE.py:NAME, or the name of one that was tuned."""
        target = self._folder.target(kernel) if ":" in kernel else matching("kernel", kernel, NAME, "FILE.py:NAME")
        shapes = ["--shape", matching("shape", shape, SHAPE, "M=512,N=512")] if shape else []
        done = await self._line.run(["explain", *shapes, "--", target], 60.0)
        return _text(done)

    async def trials(self, kernel: str, best: int, failed: bool) -> str:
        """Returns what was tried for a kernel: the best configs, or those that failed."""
        count = min(max(1, int(best)), MAX_ROWS)
        words = ["trials", "--json", *(["--failed"] if failed else ["--best", str(count)])]
        answer = await self._line.ask(*words, "--", matching("kernel", kernel, NAME, "saxpy"))
        return bounded([_summarize_trial(trial) for trial in answer["trials"][:count]], "ask for fewer")

    async def bundle(self, file: str, target: str, note: str) -> str:
        """Packs the decisions and builds of a kernel into a bundle in the folder, and verifies it."""
        path, kernel = self._folder.new_file(file, ".bundle"), self._folder.target(target)
        words = ["bundle", "build", "--json", "--note", str(note)[:200], "--", path, kernel]
        done = await self._line.measure(words, self._line.max_seconds)
        if done.status:
            raise BackendError(done.reason())
        return bounded(done.json())

    async def search_start(self, target: str, seconds: float, shape: str, answer_seconds: float) -> str:
        """Starts a search that asks for configs; they are tried in turn with those of the portfolio."""
        limit = self._line.limit(seconds)
        words = [*self._tune_words(target, limit, shape), self._folder.target(target)]
        await self._search.start(words, self._line.patience(limit), min(max(1.0, float(answer_seconds)), limit))
        return bounded(await self._search.next())

    async def search_propose(self, configs: Sequence[Any]) -> str:
        """Answers the question of the search with configs; returns the next question, or the result."""
        return bounded(await self._search.propose(_checked_configs(configs)))

    async def search_next(self) -> str:
        """Returns the question of the search, or its result."""
        return bounded(await self._search.next())

    async def search_stop(self) -> str:
        """Ends the search."""
        return bounded(await self._search.stop())


def _checked_configs(configs: Sequence[Any]) -> list[dict[str, Any]]:
    """Returns configs if they are short objects. Raises SettingsError otherwise."""
    if not isinstance(configs, list) or len(configs) > MAX_ROWS or len(json.dumps(configs)) > 20_000:
        raise SettingsError(f"propose at most {MAX_ROWS} configs, each as an object with a value for each knob")
    if not all(isinstance(config, dict) for config in configs):
        raise SettingsError('a config is an object with a value for each knob: {"UNROLL": 4}')
    return configs


def _summarize_trial(trial: dict[str, Any]) -> dict[str, Any]:
    """Returns a trial of `tunewright trials --json`: its config, and its seconds or why it failed."""
    outcome = trial["outcome"]
    if "samples" not in outcome:
        failure = f"{outcome['kind']} at {outcome['stage']}: {outcome['reason']}"
        return {"config": trial["config"], "failure": failure[:400]}
    return {"config": trial["config"], "seconds": median(outcome["samples"]), "samples": len(outcome["samples"])}


def _text(done: Done) -> str:
    """Returns what a command printed. Raises BackendError if it failed."""
    if done.status:
        raise BackendError(done.reason())
    return done.printed[:20_000]
