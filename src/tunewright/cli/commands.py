"""The commands of `tunewright`: where each is defined, its line in the help, and former spellings."""

from __future__ import annotations

from tunewright.cli.lazy_group import CommandEntry

DAILY, MANAGE, COMPARE, INTEGRATE, MORE = "Tune and look", "Keep and ship", "Compare", "Integrations", "More"

COMMANDS = {
    "tune": CommandEntry("tunewright.cli.tune", "tune", "Find the best config of a kernel and store it.", DAILY),
    "show": CommandEntry("tunewright.cli.show", "show", "Show what is decided; with --plot, how it was found.", DAILY),
    "explain": CommandEntry("tunewright.cli.explain", "explain", "Say why a kernel gets its config.", DAILY),
    "trials": CommandEntry("tunewright.cli.trials", "trials", "List what was tried: times and failures.", DAILY),
    "race": CommandEntry(
        "tunewright.cli.race", "race", "Race commands, functions or configs: which is fastest, and by how much.", DAILY
    ),
    "command": CommandEntry(
        "tunewright.cli.command", "command", "Find the best flags of a program.", DAILY, "commands"
    ),
    "space": CommandEntry("tunewright.cli.space", "space", "Describe a kernel's space: knobs, rules, size.", DAILY),
    "report": CommandEntry(
        "tunewright.cli.report", "report", "Write the dashboard of a store as one HTML file.", DAILY, "dashboard"
    ),
    "init": CommandEntry("tunewright.cli.init", "init", "Write a small kernel to start from, and a test of it.", DAILY),
    "store": CommandEntry(
        "tunewright.cli.store", "store", "Maintain the store: size, age, history, merge, export.", MANAGE
    ),
    "cover": CommandEntry(
        "tunewright.cli.cover",
        "cover_command",
        "Find few configs that serve all tuned shapes of a kernel.",
        MANAGE,
        "shapes",
    ),
    "bundle": CommandEntry(
        "tunewright.cli.bundle", "bundle", "Build, check and apply bundles: decisions as one signed file.", MANAGE
    ),
    "fleet": CommandEntry(
        "tunewright.cli.fleet", "fleet", "Tune many kernels, shapes and devices within one budget.", MANAGE, "fleet"
    ),
    "service": CommandEntry(
        "tunewright.cli.service",
        "service",
        "Run an HTTP service in front of a store, and manage who may use it.",
        MANAGE,
        "service",
    ),
    "bench": CommandEntry(
        "tunewright.cli.bench", "bench", "Compare implementations of operators, runs and builds.", COMPARE, "bench"
    ),
    "referee": CommandEntry(
        "tunewright.cli.referee",
        "referee",
        "Judge whether a candidate that nobody trusts is right, and faster.",
        COMPARE,
        "referee",
    ),
    "replay": CommandEntry(
        "tunewright.cli.replay", "replay", "Compare search strategies on recorded spaces.", COMPARE, "replay"
    ),
    "noise": CommandEntry(
        "tunewright.cli.noise", "noise", "Measure which differences this machine can tell apart now.", COMPARE
    ),
    "torch": CommandEntry(
        "tunewright.cli.torch", "torch", "Diagnose, report on and ship torch.compile models.", INTEGRATE, "torch"
    ),
    "triton": CommandEntry(
        "tunewright.cli.triton", "triton", "Compile Triton kernels for GPUs that are not here.", INTEGRATE, "triton"
    ),
    "gpu": CommandEntry(
        "tunewright.cli.gpu", "gpu", "Test whether everything works on a card, and write a report.", INTEGRATE, "triton"
    ),
    "cuda": CommandEntry(
        "tunewright.cli.cuda", "cuda", "Check CUDA C++ kernels for GPUs that are not here.", INTEGRATE, "cuda"
    ),
    "emulate": CommandEntry(
        "tunewright.cli.emulate",
        "emulate_command",
        "Execute compiled GPU code on the CPU: results, faults and counts.",
        INTEGRATE,
        "emulator",
    ),
    "mlir": CommandEntry("tunewright.cli.mlir", "mlir", "Show and tune schedules of MLIR payloads.", INTEGRATE, "mlir"),
    "tables": CommandEntry(
        "tunewright.cli.tables", "tables", "Check and write the config tables of other tools.", INTEGRATE, "interop"
    ),
    "mcp": CommandEntry(
        "tunewright.cli.mcp", "mcp", "Run an MCP server for agents over standard input and output.", MORE, "agents"
    ),
    "skill": CommandEntry(
        "tunewright.cli.mcp", "skill", "Print the guide for agents: how to use this command line well.", MORE, "agents"
    ),
    "settings": CommandEntry(
        "tunewright.cli.settings", "settings", "Show every setting and where it comes from.", MORE
    ),
    "completion": CommandEntry(
        "tunewright.cli.completion", "completion", "Print the completion script of a shell.", MORE
    ),
}

RENAMED = {
    "campaign": "fleet",
    "serve": "service run",
    "record": "bench record",
    "audit": "tables audit",
    "quiet": "noise",
    "triton moe": "tables export",
    "torch journey": "torch report",
}
"""Former spellings and the present ones."""

REMOVED_IN = "0.5"
"""The version in which former spellings stop working."""
