"""Where RocketMQ's released jars come from, and which of them make a class path.

The poms in `jars/` only name dependencies. Maven resolves one into a directory of the user's cache that carries the
pom's hash, so that a changed pom is resolved anew and an unchanged one costs nothing. A directory appears under its
name only when it is whole: an interrupted download leaves nothing to trip over. The small programs of ours under
`java/` are compiled the same way, once a client release, and the one under `go/`.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path

HERE = Path(__file__).parent
SERVER_RELEASES = ("4.9.7", "5.5.0")
CLIENT_RELEASES = ("4.9.8", "5.5.0")
SUITE_RELEASE = "5.5.0"
COPY_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
RESOLVE_TIMEOUT_S = 600
COMPILE_TIMEOUT_S = 120


class MissingJava(Exception):
    """The machine lacks what runs Java programs; the sentence names the Debian packages."""


class Role(Enum):
    """What a class path is for, with the jars that must not be on it.

    RocketMQ's logging takes the broker's configuration wherever it sees it, so every role sees its own jars only.
    """

    NAMESRV = ("broker", "example")
    BROKER = ("example",)
    CLIENT = ("broker", "namesrv", "controller")

    def admits(self, jar: Path) -> bool:
        return not any(jar.name.startswith(f"rocketmq-{artefact}-") for artefact in self.value)


def require_java() -> None:
    """Say in one sentence what to install when a program is missing."""
    missing = [program for program in ("java", "javac", "mvn") if shutil.which(program) is None]
    if missing:
        raise MissingJava(f"{', '.join(missing)} not found: apt-get install openjdk-17-jdk-headless maven")


def class_path(release: str, role: Role) -> str:
    return os.pathsep.join(str(jar) for jar in sorted(jars(release).glob("*.jar")) if role.admits(jar))


def jars(release: str) -> Path:
    """The directory with the jars of one release and all that they need."""
    pom = HERE / "jars" / f"rocketmq-{release}.xml"
    return _cached(f"rocketmq-{release}", pom.read_bytes(), lambda directory: _resolve(pom, directory))


def compiled_programs(release: str) -> Path:
    """The class files of our own test programs, and of those that only this release can run, compiled against it."""
    sources = sorted((HERE / "java").glob("*.java")) + sorted((HERE / "java" / release).glob("*.java"))
    content = release.encode() + b"".join(source.read_bytes() for source in sources)
    libraries = class_path(release, Role.CLIENT)
    return _cached(f"programs-{release}", content, lambda directory: _compile(sources, libraries, directory))


def suite_class_path() -> str:
    """RocketMQ's released integration tests; in front of them ours of their classes that would start servers."""
    release = f"test-{SUITE_RELEASE}"
    sources = sorted((HERE / "java" / "suite").glob("*.java"))
    content = b"".join(source.read_bytes() for source in sources)
    libraries = os.pathsep.join(str(jar) for jar in sorted(jars(release).glob("*.jar")))
    programs = _cached(f"programs-{release}", content, lambda directory: _compile(sources, libraries, directory))
    return os.pathsep.join((str(programs), libraries))


def go_program() -> Path:
    """Our flows on RocketMQ's Go client, built by the Go that is here."""
    sources = sorted(path for path in (HERE / "go").iterdir() if path.is_file())
    content = b"".join(source.read_bytes() for source in sources)
    return _cached("programs-go", content, _build_go) / "flows"


def _build_go(directory: Path) -> None:
    command = ["go", "build", "-buildvcs=false", "-o", str(directory / "flows"), "."]
    subprocess.run(command, cwd=HERE / "go", check=True, timeout=RESOLVE_TIMEOUT_S, stdin=subprocess.DEVNULL)


def _resolve(pom: Path, directory: Path) -> None:
    command = ["mvn", "-q", "-B", "-f", str(pom), COPY_GOAL, "-DincludeScope=runtime", f"-DoutputDirectory={directory}"]
    subprocess.run(command, check=True, timeout=RESOLVE_TIMEOUT_S, stdin=subprocess.DEVNULL)


def _compile(sources: list[Path], libraries: str, directory: Path) -> None:
    command = ["javac", "-nowarn", "-cp", libraries, "-d", str(directory), *map(str, sources)]
    subprocess.run(command, check=True, timeout=COMPILE_TIMEOUT_S, stdin=subprocess.DEVNULL)


def cache_directory() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "bolide" / "interop"


def _cached(name: str, content: bytes, fill: Callable[[Path], None]) -> Path:
    directory = cache_directory() / f"{name}-{hashlib.sha256(content).hexdigest()[:16]}"
    if directory.is_dir():
        return directory
    require_java()
    cache_directory().mkdir(parents=True, exist_ok=True)
    with _locked(cache_directory() / f"{name}.lock"):
        if not directory.is_dir():
            with tempfile.TemporaryDirectory(dir=cache_directory(), prefix="unfinished-") as unfinished:
                content_directory = Path(unfinished) / name
                content_directory.mkdir()
                fill(content_directory)
                content_directory.rename(directory)
    return directory


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
