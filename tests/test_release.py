"""What a release must say of itself; making one needs a network (`make release`)."""

from __future__ import annotations

import tomllib

import pytest

from scripts import release

CHANGELOG = "# Changelog\n\n## 0.2.0 (unreleased)\n\n## 0.1.0 (2026-11-24)\n"


def package(name: str, licence: str) -> dict[str, str]:
    return {"Name": name, "Version": "1", "License": licence, "URL": "UNKNOWN"}


def test_a_tag_names_the_version_that_the_changelog_tells_of() -> None:
    release.check("v0.1.0", "0.1.0", CHANGELOG)
    release.check(None, "0.2.0", CHANGELOG)


@pytest.mark.parametrize(
    ("tag", "version", "why"),
    [
        ("v0.1.1", "0.1.0", "is not v0.1.0"),
        ("0.1.0", "0.1.0", "is not v0.1.0"),
        ("v0.2.0", "0.2.0", "still calls 0.2.0 unreleased"),
        (None, "0.3.0", "no heading for 0.3.0"),
    ],
)
def test_what_does_not_belong_together_is_no_release(tag: str | None, version: str, why: str) -> None:
    with pytest.raises(release.ReleaseError, match=why):
        release.check(tag, version, CHANGELOG)


def test_a_licence_that_is_not_permissive_is_named_with_its_package() -> None:
    fine = ("MIT License", "BSD-3-Clause AND 0BSD", "Apache Software License; MIT License", "PSF-2.0", "MIT OR GPL-3.0")
    assert release.not_permissive([package("a", licence) for licence in fine]) == []
    strange = ("GPL-3.0", "MIT AND LGPL-2.1", "UNKNOWN", "")
    assert release.not_permissive([package("a", licence) for licence in strange]) == [f"a ({one})" for one in strange]
    assert release.not_permissive([package(name, "MPL-2.0 AND MIT") for name in ("orjson", "other")]) == [
        "other (MPL-2.0 AND MIT)"
    ]


def test_every_weight_file_of_the_wheel_is_listed_with_its_hash() -> None:
    listed = release.with_weights({"components": [{"name": "numpy"}]})["components"]
    assert listed[0] == {"name": "numpy"}
    assert {one["name"] for one in listed[1:]} == {
        path.relative_to(release.WEIGHTS).as_posix()
        for path in release.WEIGHTS.rglob("*")
        if path.is_file() and path.name != "LICENSES.md"
    }
    assert all(len(one["hashes"][0]["content"]) == 64 and one["licenses"] for one in listed[1:])


def test_the_report_names_packages_weights_and_exceptions() -> None:
    packages = [package("numpy", "BSD-3-Clause"), package("PyTorch_x", "BSD"), package("parley-voice", "Apache-2.0")]
    text = release.report(packages, {"pytorch-x": "hf, pocket"})
    assert "| numpy | 1 | BSD-3-Clause |  |" in text
    assert "| PyTorch_x | 1 | BSD | hf, pocket |" in text
    assert "| parley-voice |" not in text
    assert all(path.name in text for path in release.weights())
    assert all(name in text for name in release.NAMED)
    assert "| sense-voice | 240 | FunASR Model License | csukuangfj/" in text


def test_extras_are_told_beside_the_packages_that_only_they_bring() -> None:
    plain, extra = {"name": "numpy", "properties": []}, {"name": "PyTorch_x", "version": "1"}
    listed = release.with_extras({"components": [plain, extra]}, {"pytorch-x": "hf"})["components"]
    assert listed == [plain, {**extra, "properties": [{"name": "parley:extras", "value": "hf"}]}]


def test_every_extra_that_users_choose_is_listed() -> None:
    project = tomllib.loads((release.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {*release.EXTRAS} == project["optional-dependencies"].keys() - {"dev", "docs", "torch", "training"}
    assert "parley-voice[torch]" in project["optional-dependencies"]["hf"]


def test_a_program_that_fails_is_told_by_its_last_words() -> None:
    with pytest.raises(release.ReleaseError, match="sh failed: no such thing"):
        release.run("sh", "-c", "echo a line >&2; echo no such thing >&2; exit 3")
