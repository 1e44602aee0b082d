"""The recipe of the image: what can be read of it, and, in the long runs, the image itself."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from bolide import Producer
from tests.cli.processes import wait_for
from tests.tidy.source import ROOT

RECIPE = ROOT / "deploy" / "oci" / "Containerfile"
BUILD_LIMIT_S, START_LIMIT_S = 1200, 120
ADDRESS = re.compile(r"NAMESRV_ADDR=(\S+)")
CHROOT = {**os.environ, "STORAGE_DRIVER": "vfs", "BUILDAH_ISOLATION": "chroot"}  # works where there is no container yet


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"\\\n", " ", RECIPE.read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in lines]


def test_the_recipe_runs_as_nobody_and_stops_as_servers_stop() -> None:
    said = dict(instructions())
    assert said["USER"].split(":")[0] not in ("0", "root")
    assert said["STOPSIGNAL"] == "SIGTERM"
    assert json.loads(said["ENTRYPOINT"]) == ["bolide"]
    assert json.loads(said["CMD"])[0] == "up"
    assert said["VOLUME"] == said["WORKDIR"] == "/data"
    assert "pip install" in said["RUN"]
    assert "--no-index" in said["RUN"]


@pytest.mark.soak
def test_the_image_is_built_from_debians_packages_and_takes_a_message(tmp_path: Path) -> None:
    missing = [tool for tool in ("buildah", "mmdebstrap") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"no {' and no '.join(missing)} here (on Debian: apt-get install buildah mmdebstrap)")
    if not list((ROOT / "dist").glob("*-cp311-*.whl")):
        pytest.skip("no wheel for Python 3.11 in dist/: make wheels")
    name = "localhost/bolide-test"
    subprocess.run([ROOT / "deploy" / "oci" / "build", name], check=True, timeout=BUILD_LIMIT_S, env=CHROOT)
    container = subprocess.check_output(["buildah", "from", name], text=True, env=CHROOT).strip()
    place = ("--host", "127.0.0.1", "--port", "0", "--namesrv-port", "0", "--grpc-port", "0", "--data", "/data/store")
    # The disk of the machine is not what is tried.
    command = ["buildah", "run", container, "--", "bolide", "up", *place, "--set", "diskSpaceWarningLevelRatio=100"]
    said = tmp_path / "said"
    with said.open("wb") as lines, subprocess.Popen(command, stdout=lines, env=CHROOT) as process:
        try:
            wait_for(lambda: process.poll() is not None or ADDRESS.search(said.read_text()), START_LIMIT_S)
            found = ADDRESS.search(said.read_text())
            assert found is not None, said.read_text()
            with Producer("p", found[1], timeout_s=20) as producer:
                assert producer.send("T", b"to the container").is_ok
        finally:
            process.terminate()
            process.wait()
            subprocess.run(["buildah", "rm", container], check=False, env=CHROOT, stdout=subprocess.DEVNULL)
            subprocess.run(["buildah", "rmi", name], check=False, env=CHROOT, stdout=subprocess.DEVNULL)
