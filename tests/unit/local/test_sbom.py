"""The bill of materials: what is added to cyclonedx-py's list of packages. `make sbom` itself validates the whole."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from scripts import sbom
from scripts.sbom import JARS, bundled_jars, component, fetched_jars, with_jars

A, B = "a" * 64, "b" * 64
LIST = f"# comment\n{A}  broker  org.x:one:1.0\n{A}  spark   org.x:one:1.0\n{B}  tests   org.y:two_2.13:2.0\n"


def jar(path: Path, **properties: str) -> str:
    """A jar with a pom.properties for each group of the properties; its digest."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("META-INF/MANIFEST.MF", "")
        for group, coordinate in properties.items():
            artifact, version = coordinate.split(":")
            text = f"# made\r\ngroupId={group}\r\nartifactId={artifact}\r\nversion={version}\r\n"
            file.writestr(f"META-INF/maven/{group}/{artifact}/pom.properties", text)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_fetched_jar_is_a_maven_package_with_its_digest_once() -> None:
    one, two = fetched_jars(LIST)
    assert one["purl"] == "pkg:maven/org.x/one@1.0" and one["scope"] == "required"
    assert one["hashes"] == [{"alg": "SHA-256", "content": A}]
    assert two["purl"] == "pkg:maven/org.y/two_2.13@2.0" and two["scope"] == "excluded"


def test_every_jar_of_the_list_of_digests_is_on_the_bill() -> None:
    text = JARS.read_text(encoding="utf-8")
    digests = {line.split()[0] for line in text.splitlines() if not line.startswith("#")}
    assert len(digests) > 50
    assert {one["hashes"][0]["content"] for one in fetched_jars(text)} == digests


def test_a_bundled_jar_has_a_package_url_where_it_says_which_one_it_is(tmp_path: Path) -> None:
    own = jar(tmp_path / "core-1.0.jar", shaded="inner:9.9", org_x="core:1.0")
    unnamed = jar(tmp_path / "old-3.jar", shaded="inner:9.9")
    known = jar(tmp_path / "same-4.jar")
    found = {
        one["name"]: one
        for one in bundled_jars(tmp_path, [component("org.z", "same", "4", known), component("g", "a", "1", A)])
    }
    assert found["core"]["purl"] == "pkg:maven/org_x/core@1.0" and found["core"]["hashes"][0]["content"] == own
    assert found["same"]["purl"] == "pkg:maven/org.z/same@4"
    # Which package it is would be a guess: a file with its digest.
    assert found["old-3.jar"]["type"] == "file" and "purl" not in found["old-3.jar"]
    assert found["old-3.jar"]["hashes"][0]["content"] == unnamed


def test_the_bill_joins_packages_and_jars_and_names_no_folder_of_this_machine() -> None:
    links = [{"type": "distribution", "url": "file:///home/me/x.whl"}, {"type": "website", "url": "https://x"}]
    bom: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "metadata": {"component": {"bom-ref": "root", "name": "spark-recon", "externalReferences": links[:1]}},
        "components": [{"bom-ref": "pyspark==4", "name": "pyspark", "externalReferences": links}],
        "dependencies": [{"ref": "pyspark==4"}, {"ref": "root", "dependsOn": ["pyspark==4"]}],
    }
    fetched, bundled = fetched_jars(LIST), [component("org.x", "one", "1.0", A), component("org.w", "three", "3", B)]
    joined = with_jars(bom, "0.1.0", fetched, bundled)
    assert joined["metadata"]["component"] == {"bom-ref": "root", "name": "spark-recon", "version": "0.1.0"}
    assert joined["components"][0]["externalReferences"] == links[1:]
    refs = [one["bom-ref"] for one in joined["components"]]
    # The jar that is both fetched and bundled is one component.
    assert len(refs) == len(set(refs)) == 4
    depends = {one["ref"]: one.get("dependsOn") for one in joined["dependencies"]}
    assert depends["root"] == sorted([*(one["bom-ref"] for one in fetched), "pyspark==4"])
    assert depends["pyspark==4"] == sorted(one["bom-ref"] for one in bundled)
    assert "file:" not in str(joined)


def test_an_invalid_bill_is_not_written(tmp_path: Path) -> None:
    bom = {"metadata": {"component": {"bom-ref": "root", "name": "spark-recon"}}, "components": []}
    fetched = fetched_jars(JARS.read_text(encoding="utf-8"))
    sbom.write(with_jars(bom, "0", fetched, ()), tmp_path / "sbom.json", lambda _: None)
    before = (tmp_path / "sbom.json").read_text(encoding="utf-8")
    assert len(json.loads(before)["components"]) == len(fetched)
    with pytest.raises(SystemExit, match=r"not valid CycloneDX 1\.6, and was not written: version is missing"):
        sbom.write(bom, tmp_path / "sbom.json", lambda _: "version is missing")
    assert (tmp_path / "sbom.json").read_text(encoding="utf-8") == before
