"""Tutorial 5: from a program that nobody tuned to production that cannot tune.

    python tutorials/5_ship.py

Record what a program calls, tune that, pack it into a signed bundle, and use it in another environment in strict mode:
another folder, another home, no compiler. Then damage it in several ways, all of which are refused. Then roll back.

The commands are those you would type. They run in a temporary folder, and their output is shown.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent / "shipping"
COMMANDS = {"tunewright": [sys.executable, "-m", "tunewright"], "python": [sys.executable]}


class Machine:
    """A simulated machine with its own folder, home and environment."""

    def __init__(self, folder, **more):
        self.folder = folder
        shutil.copytree(HERE, folder, ignore=shutil.ignore_patterns("__pycache__"))
        ours = {name: text for name, text in os.environ.items() if not name.startswith("TUNEWRIGHT")}
        self.environ = {**ours, "HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache"), **more}

    def run(self, line, status=0, **settings):
        """Runs a command, prints it with its output, and checks its exit status."""
        print(f"\n{self.folder.name}$ {' '.join(f'{k}={v} ' for k, v in settings.items())}{line}")
        first, *words = line.split()
        environ = {**self.environ, **{f"TUNEWRIGHT_{name}": text for name, text in settings.items()}}
        done = subprocess.run(
            [*COMMANDS[first], *words], cwd=self.folder, env=environ, capture_output=True, text=True, check=False
        )
        said = done.stdout + (done.stderr.strip().splitlines()[-1] + "\n" if done.stderr.strip() else "")
        print(said[:2000], end="")
        assert done.returncode == status, done.stderr
        return said


def main():
    with tempfile.TemporaryDirectory() as scratch:
        story(Path(scratch))


def story(scratch):
    # 1. A program runs with defaults. Mode `record` records what it calls and how long that takes.
    bench = Machine(scratch / "workbench")
    bench.run("python app.py 400x600", MODE="record")
    bench.run("python app.py 64x4096", MODE="record")
    bench.run("tunewright store untuned")

    # 2. Tune what it called, most expensive first.
    bench.run("tunewright tune --recorded app.py --budget 15")

    # 3. Pack the decisions into one file, with artifacts and transcripts. Make the signing key once.
    signer = bench.run("tunewright bundle key team.pem").splitlines()[0]
    bench.run("tunewright bundle build blur.bundle app.py:blur --sign team.pem")

    # 4. Production: another folder, another home, no compiler. It trusts one signer. In mode `strict` a miss is an
    # error. Nothing is measured or compiled.
    production = Machine(scratch / "production", PATH="/nonexistent")
    (production.folder / "signers").write_text(signer + "\n")
    shutil.copy(bench.folder / "blur.bundle", production.folder)
    trusted = {"MODE": "strict", "STORE": "bundle:blur.bundle?signers=signers"}
    served = json.loads(production.run("python app.py 400x600", **trusted))
    assert served == {"mean": 1.0, "exact": 1}, served

    # 5. Errors: a size that was not tuned (the message lists what is there), a flipped bit, an unsigned bundle, and a
    # bundle that somebody else signed.
    production.run("python app.py 401x600", status=1, **trusted)
    damaged = bytearray((production.folder / "blur.bundle").read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (production.folder / "damaged.bundle").write_bytes(damaged)
    production.run("tunewright bundle verify damaged.bundle --signers signers", status=2)
    bench.run("tunewright bundle build unsigned.bundle blur")
    shutil.copy(bench.folder / "unsigned.bundle", production.folder)
    production.run("tunewright bundle verify unsigned.bundle --signers signers", status=2)
    bench.run("tunewright bundle key stranger.pem")
    bench.run("tunewright bundle build strange.bundle blur --sign stranger.pem")
    shutil.copy(bench.folder / "strange.bundle", production.folder)
    production.run("tunewright bundle verify strange.bundle --signers signers", status=2)

    # 6. A bundle can also be applied to a store. Earlier decisions stay in its history, so one command rolls back.
    production.run("tunewright bundle apply blur.bundle --signers signers")
    good = production.run("tunewright show blur")
    # A bad bundle: tuned with a budget of one trial, which is the default config.
    bench.run("tunewright tune app.py:blur --shape 400,600 --budget 1 --store other.sqlite")
    bench.run("tunewright bundle build hasty.bundle blur --sign team.pem --store other.sqlite")
    shutil.copy(bench.folder / "hasty.bundle", production.folder)
    production.run("tunewright bundle diff blur.bundle hasty.bundle --signers signers", status=1)
    production.run("tunewright bundle apply hasty.bundle --signers signers")
    production.run("tunewright store rollback blur --yes")
    assert production.run("tunewright show blur") == good

    # 7. The store serves the decisions of the bundle, still without a compiler.
    served = json.loads(production.run("python app.py 64x4096", MODE="strict"))
    assert served == {"mean": 1.0, "exact": 1}, served
    print(f"\nproduction: compiles {served.get('compiles', 0)}, measurements {served.get('measurements', 0)}")


if __name__ == "__main__":
    main()
