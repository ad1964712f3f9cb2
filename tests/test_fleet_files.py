"""The deployment files of docs/fleet: valid as far as there is something to hold them to."""

import json
import shutil
import subprocess
import tomllib
from pathlib import Path

import msgspec
import pytest

from tunewright.engine.budget import Budget
from tunewright.fleet.campaign.plan import CampaignFile
from tunewright.settings import Settings

FILES = Path(__file__).parent.parent / "docs" / "fleet"


def test_the_campaign_is_one_that_we_read() -> None:
    said = msgspec.convert(tomllib.loads((FILES / "campaign.toml").read_text()), CampaignFile)
    assert Budget.parse(said.budget).seconds == 8 * 3600
    assert Settings.read(environ={}, **said.settings).pool_name == "ray"


def test_the_cluster_file_keeps_the_schema_of_ray() -> None:
    ray, yaml = pytest.importorskip("ray"), pytest.importorskip("yaml")
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((Path(ray.__file__).parent / "autoscaler" / "ray-schema.json").read_text())
    jsonschema.validate(yaml.safe_load((FILES / "cluster.yaml").read_text()), schema)


def test_the_ray_job_names_its_parts_as_kuberay_does() -> None:
    yaml = pytest.importorskip("yaml")
    job, policy = yaml.safe_load_all((FILES / "rayjob.yaml").read_text())
    assert (job["apiVersion"], job["kind"], policy["kind"]) == ("ray.io/v1", "RayJob", "NetworkPolicy")
    cluster = job["spec"]["rayClusterSpec"]
    assert cluster["authOptions"] == {"mode": "token"}
    for group in [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]:
        pod = group["template"]["spec"]
        mounted = {mount["name"] for container in pod["containers"] for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}


def test_the_slurm_script_is_shell() -> None:
    if not shutil.which("bash"):
        pytest.skip("no bash")
    done = subprocess.run(["bash", "-n", FILES / "slurm.sh"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
