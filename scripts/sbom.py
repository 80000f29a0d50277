"""Write build/sbom.json: a CycloneDX bill of materials of the Python environment and of the jars. `make sbom` runs it.

cyclonedx-py lists the packages of an environment; added here are the jars that recon fetches (recon/spark/jars.txt) and
those that pyspark contains. Runs with the Python of .venv/tools, where CycloneDX's library is, and imports no recon.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "build" / "sbom.json"
JARS = ROOT / "recon" / "spark" / "jars.txt"
SPEC = "1.6"
_VERSION = re.compile(r'__version__ = "([^"]+)"')

Component = dict[str, Any]


def component(group: str, artifact: str, version: str, sha256: str, scope: str = "required") -> Component:
    """A jar of Maven Central, with its package URL."""
    purl = f"pkg:maven/{group}/{artifact}@{version}"
    return {
        "type": "library",
        "bom-ref": f"{purl}?sha256={sha256[:12]}",
        "group": group,
        "name": artifact,
        "version": version,
        "purl": purl,
        "hashes": [{"alg": "SHA-256", "content": sha256}],
        "scope": scope,
    }


def fetched_jars(listing: str) -> list[Component]:
    """The jars of the list of digests; those of tests only are excluded from what runs.

    A jar that the broker and Spark both use is there once.
    """
    found: dict[str, Component] = {}
    for line in sorted(line for line in listing.splitlines() if line and not line.startswith("#")):
        sha256, used_by, coordinate = line.split()
        group, artifact, version = coordinate.split(":")
        jar = component(group, artifact, version, sha256, "excluded" if used_by == "tests" else "required")
        found.setdefault(jar["bom-ref"], jar)
    return list(found.values())


def bundled_jars(folder: Path, known: Iterable[Component] = ()) -> Iterator[Component]:
    """The jars of a folder: with a package URL where the jar itself says which one it is, or it is one of the known."""
    by_digest = {jar["hashes"][0]["content"]: (jar["group"], jar["name"], jar["version"]) for jar in known}
    for path in sorted(folder.glob("*.jar")):
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        coordinate = by_digest.get(sha256) or _coordinate(path)
        if coordinate is not None:
            yield component(*coordinate, sha256)
            continue
        yield {
            "type": "file",
            "bom-ref": f"{path.name}?sha256={sha256[:12]}",
            "name": path.name,
            "hashes": [{"alg": "SHA-256", "content": sha256}],
        }


def _coordinate(path: Path) -> tuple[str, str, str] | None:
    """Group, artifact and version of the pom.properties that has the jar's own name; a shaded jar has several."""
    with zipfile.ZipFile(path) as jar:
        for name in jar.namelist():
            if name.startswith("META-INF/maven/") and name.endswith("/pom.properties"):
                lines = jar.read(name).decode("utf-8", "replace").splitlines()
                said = dict(line.split("=", 1) for line in lines if "=" in line)
                group, artifact, version = (said.get(key, "").strip() for key in ("groupId", "artifactId", "version"))
                if group and f"{artifact}-{version}.jar" == path.name:
                    return group, artifact, version
    return None


def with_jars(bom: Mapping[str, Any], version: str, fetched: Iterable[Component], bundled: Iterable[Component]) -> Any:
    """The bill of the packages, with recon's version, its jars, and no path of this machine."""
    fetched, bundled = list(fetched), list(bundled)
    packages = [_portable(package) for package in bom["components"]]
    root = {**_portable(bom["metadata"]["component"]), "version": version}
    depends = {dependency["ref"]: set(dependency.get("dependsOn", ())) for dependency in bom.get("dependencies", ())}
    depends.setdefault(root["bom-ref"], set()).update(jar["bom-ref"] for jar in fetched)
    for package in packages:
        if package["name"] == "pyspark":
            depends.setdefault(package["bom-ref"], set()).update(jar["bom-ref"] for jar in bundled)
    jars = {jar["bom-ref"]: jar for jar in (*fetched, *bundled)}
    return {
        **bom,
        "metadata": {**bom["metadata"], "component": root},
        "components": [*packages, *(jars[ref] for ref in sorted(jars))],
        "dependencies": [
            {"ref": ref, **({"dependsOn": sorted(on)} if on else {})} for ref, on in sorted(depends.items())
        ],
    }


def _portable(package: Component) -> Component:
    # A package that was installed from a file has the file's place among its references.
    kept = [link for link in package.get("externalReferences", ()) if not link["url"].startswith("file:")]
    rest = {key: value for key, value in package.items() if key != "externalReferences"}
    return {**rest, **({"externalReferences": kept} if kept else {})}


def invalid(text: str) -> str | None:
    """What CycloneDX's own schema finds wrong; None where it is valid."""
    # In .venv/tools only; tests run without it.
    from cyclonedx.schema import SchemaVersion  # noqa: PLC0415
    from cyclonedx.validation.json import JsonStrictValidator  # noqa: PLC0415

    fault = JsonStrictValidator(SchemaVersion.from_version(SPEC)).validate_str(text)
    return None if fault is None else str(fault)


def environment(python: Path) -> Any:
    """cyclonedx-py's bill of the packages of an environment."""
    command = [str(Path(sys.executable).parent / "cyclonedx-py"), "environment", "--pyproject", "pyproject.toml"]
    command += ["--mc-type", "library", "--spec-version", SPEC, "--output-format", "JSON", "--output-reproducible"]
    done = subprocess.run([*command, str(python)], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        sys.exit(f"sbom: cyclonedx-py ended with exit code {done.returncode}: {last[0]}")
    return json.loads(done.stdout)


def main() -> None:
    """Write the bill of what the environment has."""
    python = ROOT / ".venv" / "bin" / "python"
    where = "import pyspark.find_spark_home as f; print(f._find_spark_home())"
    asked = subprocess.run([str(python), "-c", where], capture_output=True, text=True, check=True)
    version = _VERSION.search((ROOT / "recon" / "_version.py").read_text(encoding="utf-8"))
    fetched = fetched_jars(JARS.read_text(encoding="utf-8"))
    bundled = bundled_jars(Path(asked.stdout.strip()) / "jars", fetched)
    write(with_jars(environment(python), version[1] if version else "0", fetched, bundled), TARGET)


def write(bom: Any, target: Path, fault_of: Callable[[str], str | None] = invalid) -> None:
    """Write a bill that is valid; with one that is not, leave with a sentence and the old one."""
    text = json.dumps(bom, indent=2, ensure_ascii=False) + "\n"
    if (fault := fault_of(text)) is not None:
        sys.exit(f"sbom: the bill is not valid CycloneDX {SPEC}, and was not written: {fault}")
    target.parent.mkdir(exist_ok=True)
    scratch = target.with_suffix(".new")
    scratch.write_text(text, encoding="utf-8")
    scratch.replace(target)
    print(f"{target.name}: {len(bom['components'])} components, CycloneDX {SPEC}")  # noqa: T201


if __name__ == "__main__":
    main()
