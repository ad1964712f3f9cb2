"""Example command lines, shown below the help of each command."""

from __future__ import annotations

import click

EXAMPLES: dict[str, tuple[str, ...]] = {
    "": (
        "tunewright tune gemm.py:gemm --shape 512,512,512 --budget 60s",
        "tunewright show gemm",
        "tunewright explain gemm.py:gemm --shape 500,512,512",
        "TUNEWRIGHT_MODE=frozen python serve.py",
    ),
    "tune": (
        "tunewright tune gemm.py:gemm --shape M=512,N=512,K=512 --shape 64,64,64",
        "tunewright tune gemm.py:gemm --budget 200,5m --strategy anneal --workers 4",
        "tunewright tune gemm.py:gemm --shape 512,512,512 --dtype float64",
        "tunewright tune gemm.py:gemm --more",
        'tunewright tune gemm.py:gemm --proposer "python propose.py" --record-proposals answers.jsonl',
        "tunewright tune --recorded gemm.py --budget 5m",
        "tunewright tune tunewright.operators:gemm_on_1 --shape 512,512,512 --budget 100",
    ),
    "show": (
        "tunewright show",
        "tunewright show gemm --plot search.png --x MR --y NR",
        "tunewright show gemm --json",
    ),
    "explain": (
        "tunewright explain gemm",
        "tunewright explain gemm.py:gemm --shape 500,512,512",
        "tunewright explain gemm.py:gemm --shape 512,512,512 --knobs --plot space.png",
    ),
    "trials": (
        "tunewright trials gemm --best 5",
        "tunewright trials gemm --failed",
        "tunewright trials gemm --save gemm.parquet",
    ),
    "command": (
        'tunewright command "zstd -q -{level} -T{threads} {input} -o {output}" --knob level=3,1,6 --knob threads=1,2 '
        '--file input=corpus.txt --check "zstd -qdc {output} | cmp - {input}" --budget 30s',
        'tunewright command "sort -S {memory} {input}" --knob memory=1M,16M,256M --file input=data.txt',
    ),
    "space": ("tunewright space gemm.py:gemm --sample 5",),
    "report": (
        "tunewright report --out report.html",
        "tunewright report --bundle tuned.bundle --signers signers --out b.html",
    ),
    "init": ("tunewright init saxpy", "tunewright init norm --kind python"),
    "completion": ('eval "$(tunewright completion bash)"', "tunewright completion fish | source"),
    "race": (
        'tunewright race "sort -n data.txt" "sort -g data.txt"',
        "tunewright race sums.py:before sums.py:after --seconds 5 --plot race.png",
        "tunewright race --kernel gemm.py:gemm --shape 512,512,512 default decided VW=8,MR=4",
        "tunewright race sums.py:total --baseline main --fail-if-slower 3%",
    ),
    "mcp": ("tunewright mcp", "tunewright mcp kernels --max-seconds 120 --store decisions.sqlite"),
    "skill": ("tunewright skill", "tunewright skill --path"),
    "referee run": (
        "tunewright referee run task.py candidate.py",
        "tunewright referee run task.py candidate.c --against old.py --seconds 30 --out match.json --sign team.pem",
    ),
    "referee check": ("tunewright referee check match.json --signers signers --task task.py",),
    "referee leaderboard": ("tunewright referee leaderboard a.json b.json --out board.html",),
    "cover": ("tunewright cover gemm --within 5%", "tunewright cover gemm --rule gemm_config.h"),
    "noise": ("tunewright noise --seconds 10",),
    "settings": ("TUNEWRIGHT_MODE=frozen tunewright settings", "tunewright settings --json"),
    "replay": (
        "tunewright replay --spaces spaces --strategies portfolio,anneal,random --seeds 10 --plot regret.png",
        "tunewright replay --spaces spaces --strategies mine.py:Mine,portfolio --cost",
    ),
    "replay import": ("tunewright replay import convolution_A100_T4.json.gz --out spaces",),
    "tables audit": (
        "tunewright tables audit configs",
        'tunewright tables audit configs --shapes M=1,16,8192 --device "NVIDIA H100 80GB HBM3" --versions triton=3.4.0',
    ),
    "bundle key": ("tunewright bundle key team.pem > signers",),
    "bundle build": (
        "tunewright bundle build tuned.bundle gemm.py:gemm --sign team.pem",
        'tunewright bundle build tuned.bundle --sign team.pem --note "release 7"',
        "tunewright bundle build tuned.bundle --sign team.pem --channel prod --version 7 --expires 90d --provenance",
    ),
    "bundle verify": (
        "tunewright bundle verify tuned.bundle --signers signers",
        "tunewright bundle verify tuned.bundle gemm.py:gemm --signers signers --budget 60s",
        "tunewright bundle verify tuned.bundle gemm.py:gemm --signers signers --here",
    ),
    "bundle push": ("tunewright bundle push tuned.bundle oci://registry.example.com/kernels:prod",),
    "bundle pull": (
        "tunewright bundle pull oci://registry.example.com/kernels:prod tuned.bundle --signers signers --channel prod",
        "tunewright bundle pull https://files.example.com/tuned.bundle tuned.bundle --signers signers --channel prod",
        "tunewright bundle pull oci://registry.example.com/kernels:7 tuned.bundle --signers signers --allow 7",
    ),
    "bundle sign": (
        "tunewright bundle sign tuned.bundle --sign mine.pem",
        "tunewright bundle sign signers --sign mine.pem",
    ),
    "bundle rotate": ("tunewright bundle rotate signers signers.new",),
    "bundle show": ("tunewright bundle show tuned.bundle --signers signers",),
    "bundle diff": ("tunewright bundle diff old.bundle new.bundle --signers signers",),
    "bundle merge": ("tunewright bundle merge all.bundle a.bundle b.bundle --signers signers --sign team.pem",),
    "bundle apply": ("tunewright bundle apply tuned.bundle --signers signers",),
    "fleet plan": ("tunewright fleet plan campaign.toml",),
    "fleet run": ("tunewright fleet run campaign.toml",),
    "fleet status": ("tunewright fleet status campaign.toml",),
    "fleet resume": ("tunewright fleet resume campaign.toml",),
    "fleet report": ("tunewright fleet report campaign.toml --json",),
    "service run": (
        "tunewright service run --open",
        "tunewright service run --store postgresql://db/tunewright --address 0.0.0.0 --proxied",
    ),
    "service audit verify": ("tunewright service audit verify audit-2026.ndjson",),
    "service audit export": ("tunewright service audit export audit-2026.ndjson --keep 10000",),
    "service token add": ("tunewright service token add ci --scope read --lasts 90d",),
    "bench": ("tunewright bench gemm --shapes gpt2",),
    "bench run": ("tunewright bench run gemm reduce --impl numpy,c --shapes gpt2 --save runs/a",),
    "bench compare": ("tunewright bench compare runs/a runs/b", "tunewright bench compare --live old new --op gemm"),
    "bench record": ("tunewright bench record -- python app.py",),
    "store stats": ("tunewright store stats --store postgresql://tuner@db/tunewright",),
    "store untuned": ("tunewright store untuned", "tunewright store untuned gemm --json"),
    "store history": ("tunewright store history gemm --device H100",),
    "store rollback": ("tunewright store rollback gemm --device H100 --to yesterday",),
    "store gc": ("tunewright store gc --older 90d --larger 2G",),
    "store export": ("tunewright store export decisions.jsonl", "tunewright store export all.jsonl gemm --trials"),
    "store merge": ("tunewright store merge other.sqlite",),
    "store refused": ("tunewright store refused", "tunewright store refused --drop", "tunewright store refused --json"),
    "store lint": (
        "tunewright store lint",
        "tunewright store lint --perturb gemm.py:gemm --shape 512,512,512 --only sparse",
    ),
    "triton prebuild": (
        'tunewright triton prebuild attention.py:fwd --targets sm_80,sm_90,gfx942 --signature "*fp16,*fp16,i32:16"',
    ),
    "triton check": ("tunewright triton check softmax.py:softmax --target sm_90 --config BLOCK=1024,num_warps=8",),
    "cuda check": (
        "tunewright cuda check transpose.py:transpose --target sm_90 --config TILE=32,ROWS=8",
        "tunewright cuda check transpose.py --all --json",
    ),
    "gpu accept": (
        "tunewright gpu accept --out gpu-report",
        "tunewright gpu accept --only clock,kernels --simulate tunewright.testing.acceptance_cards:healthy",
    ),
    "gpu verify": ("tunewright gpu verify gpu-report/report.json",),
    "emulate": (
        'tunewright emulate kernel.ptx --grid 4 --block 128 --args "*fp32[500],*fp32[500]=nan,500"',
        "tunewright emulate softmax.py:softmax --target sm_80 --json",
    ),
    "tables export": (
        'tunewright tables export fused_moe configs --title "E=8,N=14336,device_name=NVIDIA_H100_80GB_HBM3"',
    ),
    "mlir steps": (
        "tunewright mlir steps schedule.mlir payload.mlir",
        "tunewright mlir steps product.py:product --html steps.html",
    ),
}


def attach(command: click.Command, path: tuple[str, ...] = ()) -> None:
    """Adds examples to the help of a command and of the commands below it that are loaded."""
    if (lines := EXAMPLES.get(" ".join(path))) and command.epilog is None:
        command.epilog = "\b\nExamples:\n" + "\n".join(f"  $ {line}" for line in lines)
    if isinstance(command, click.Group):
        lazy = getattr(command, "entries", {})  # these get their examples when they are loaded
        for name in command.commands:
            if name not in lazy:
                attach(command.commands[name], (*path, name))
