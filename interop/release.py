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
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path

HERE = Path(__file__).parent
SERVER_RELEASES = ("4.9.7", "5.5.0")
CLIENT_RELEASES = ("4.9.8", "5.5.0")
SUITE_RELEASE = "5.5.0"
GRPC_JAVA_RELEASE = "5.2.0"
GRPC_PYTHON_PACKAGE = "rocketmq-python-client==5.1.2"
GRPC_NODE_PACKAGE = "rocketmq-client-nodejs@1.0.8"
H2SPEC_PACKAGE = "github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible"
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


def _build_go(directory: Path, sources: Path = HERE / "go") -> None:
    command = ["go", "build", "-buildvcs=false", "-o", str(directory / "flows"), "."]
    subprocess.run(command, cwd=sources, check=True, timeout=RESOLVE_TIMEOUT_S, stdin=subprocess.DEVNULL)


def grpc_java() -> list[str]:
    """The command that runs our flows on RocketMQ's gRPC client for Java."""
    libraries = os.pathsep.join(str(jar) for jar in sorted(jars(f"client-java-{GRPC_JAVA_RELEASE}").glob("*.jar")))
    sources = sorted((HERE / "grpc" / "java").glob("*.java"))
    content = b"".join(source.read_bytes() for source in sources)
    programs = _cached("grpc-java", content, lambda directory: _compile(sources, libraries, directory))
    return ["java", "-cp", os.pathsep.join((str(programs), libraries)), "Flows"]


def grpc_go() -> list[str]:
    """The same for Go."""
    sources = HERE / "grpc" / "go"
    content = b"".join(path.read_bytes() for path in sorted(sources.iterdir()))
    return [str(_cached("grpc-go", content, lambda directory: _build_go(directory, sources)) / "flows")]


def h2spec() -> Path:
    """The program that asks a server for HTTP/2 case by case, as the standard has it."""
    return _cached("h2spec", H2SPEC_PACKAGE.encode(), _install_h2spec) / "h2spec"


def _install_h2spec(directory: Path) -> None:
    command, environment = ["go", "install", H2SPEC_PACKAGE], {**os.environ, "GOBIN": str(directory)}
    subprocess.run(command, env=environment, check=True, timeout=RESOLVE_TIMEOUT_S, stdin=subprocess.DEVNULL)


def grpc_python() -> list[str]:
    """The same for Python; the client has an environment of its own, for it brings some twenty packages."""
    directory = _cached("grpc-python", GRPC_PYTHON_PACKAGE.encode(), _make_python)
    return [str(directory / "bin" / "python"), str(HERE / "grpc" / "flows.py")]


def _make_python(directory: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--copies", str(directory)], check=True, timeout=RESOLVE_TIMEOUT_S)
    install = [str(directory / "bin" / "python"), "-m", "pip", "install", "-q", GRPC_PYTHON_PACKAGE]
    subprocess.run(install, check=True, timeout=RESOLVE_TIMEOUT_S, stdin=subprocess.DEVNULL)


def grpc_node() -> list[str]:
    """The same for Node."""
    program = HERE / "grpc" / "node" / "flows.js"
    content = GRPC_NODE_PACKAGE.encode() + program.read_bytes()
    return ["node", str(_cached("grpc-node", content, lambda directory: _make_node(program, directory)) / "flows.js")]


def _make_node(program: Path, directory: Path) -> None:
    install = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(directory), GRPC_NODE_PACKAGE]
    subprocess.run(install, check=True, timeout=RESOLVE_TIMEOUT_S, stdin=subprocess.DEVNULL)
    shutil.copy(program, directory)


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
