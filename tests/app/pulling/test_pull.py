"""`parley pull`: the right files, or one clear error, whatever the hub, the line or the disk does."""

from __future__ import annotations

import hashlib
import random
import threading
import tracemalloc
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from app.pulling import download, pull
from app.pulling.errors import PullError
from app.pulling.hugging_face import HuggingFace
from engine import Engine, describe, load_config
from engine.deployment import model_catalog
from engine.deployment.model_catalog import CatalogModel, File, Manifest, located, manifest_of
from engine.errors import WeightsError
from tests.app.pulling.hub import COMMIT, REPOSITORY, FakeHub, serving

BIG = random.Random(7).randbytes(300_000)
FILES = {"model.onnx": BIG, "lexicon/en.txt": b"a b c\n"}


def model(*files: File, **fields: Any) -> CatalogModel:
    whole: dict[str, Any] = {"revision": "main", "licence": "MIT", "languages": ("en",), "size_mb": 1} | fields
    return CatalogModel("some", "voice", "tts.some", REPOSITORY, files=files or tuple(map(File, FILES)), **whole)


def pinned(**changes: str) -> CatalogModel:
    files = [File(path, len(data), hashlib.sha256(data).hexdigest()) for path, data in FILES.items()]
    return model(*files, revision=COMMIT, **changes)


@pytest.fixture
def hub() -> Generator[FakeHub]:
    with serving(FakeHub(dict(FILES))) as running:
        yield running


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "PAUSE_S", 0.0)


def pulled(hub: FakeHub, folder: Path, what: CatalogModel | None = None, token: str | None = None) -> Manifest:
    came = [0]

    def progress(count: int) -> None:
        came[0] += count

    client = HuggingFace(hub.url, token)
    plan = pull.plan(what or model(), client)
    manifest = pull.fetch(plan, folder, client, progress)
    assert came[0] == plan.size, "a bar that ends where the files do"
    return manifest


def is_whole(folder: Path) -> bool:
    return all((folder / path).read_bytes() == data for path, data in FILES.items())


def test_what_comes_is_checked_and_noted(hub: FakeHub, tmp_path: Path) -> None:
    folder = tmp_path / "some"
    manifest = pulled(hub, folder)
    assert is_whole(folder)
    assert manifest_of(folder) == manifest
    assert (manifest.revision, manifest.licence) == (COMMIT, "MIT")
    assert {file.path: file.sha256 for file in manifest.files} == {
        path: hashlib.sha256(data).hexdigest() for path, data in FILES.items()
    }
    assert sorted(path.name for path in folder.rglob("*") if path.is_file()) == [
        ".lock", model_catalog.MANIFEST, "en.txt", "model.onnx",
    ]  # fmt: skip


def test_a_pinned_model_asks_for_nothing_but_its_files(hub: FakeHub, tmp_path: Path) -> None:
    pulled(hub, tmp_path, pinned())
    assert is_whole(tmp_path)
    assert set(hub.asked) == set(FILES)


@pytest.mark.parametrize("seed", range(5))
def test_a_line_that_breaks_is_gone_on_from_where_it_broke(hub: FakeHub, tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    hub.cuts = [dice.randrange(1, 60_000) for _ in range(6)]
    cuts = list(hub.cuts)
    pulled(hub, tmp_path)
    assert is_whole(tmp_path)
    assert [start for start in hub.starts if start] == [sum(cuts[: n + 1]) for n in range(6)]


def test_a_server_without_ranges_sends_all_again(hub: FakeHub, tmp_path: Path) -> None:
    hub.cuts, hub.ranges = [1000], False
    pulled(hub, tmp_path)
    assert is_whole(tmp_path)


def test_another_run_goes_on_where_the_last_one_ended(hub: FakeHub, tmp_path: Path) -> None:
    hub.cuts = [100_000, *[0] * download.TRIES]
    with pytest.raises(
        PullError, match=r"the connection to 127\.0\.0\.1 failed .*; downloaded data is kept, run the command again"
    ):
        pulled(hub, tmp_path)
    assert manifest_of(tmp_path) is None
    hub.starts.clear()
    pulled(hub, tmp_path)
    assert is_whole(tmp_path)
    assert hub.starts[0] == 100_000


def test_a_killed_pull_loses_no_file_that_was_whole(hub: FakeHub, tmp_path: Path) -> None:
    """And one that another program has damaged since then is fetched again."""
    pulled(hub, tmp_path)
    (tmp_path / model_catalog.MANIFEST).unlink()
    (tmp_path / "model.onnx").write_bytes(bytes(len(BIG)))
    (tmp_path / "model.onnx.00000000.part").write_bytes(b"of another commit")
    hub.asked.clear()
    pulled(hub, tmp_path)
    assert is_whole(tmp_path)
    assert not list(tmp_path.rglob("*.part"))
    assert (hub.asked["model.onnx"], hub.asked["lexicon/en.txt"]) == (1, 0)


@pytest.mark.parametrize("path", FILES)
@pytest.mark.parametrize("what", ["pinned", "not pinned"])
def test_bytes_that_are_others_are_not_kept(hub: FakeHub, tmp_path: Path, path: str, what: str) -> None:
    """Small files have git's hash at the hub, large ones a SHA-256; the catalogue's own holds for all."""
    hub.served[path] = bytes(len(FILES[path]))
    with pytest.raises(PullError, match=f"{path}: wrong contents .*the file was removed"):
        pulled(hub, tmp_path, pinned() if what == "pinned" else None)
    assert manifest_of(tmp_path) is None
    assert not (tmp_path / path).exists()
    hub.served.clear()
    pulled(hub, tmp_path)
    assert is_whole(tmp_path)


def test_a_file_longer_than_it_should_be_fills_no_disk(hub: FakeHub, tmp_path: Path) -> None:
    hub.served["model.onnx"] = BIG + bytes(5_000_000)
    with pytest.raises(PullError, match="longer than expected"):
        pulled(hub, tmp_path)
    assert not list(tmp_path.rglob("model*"))


@pytest.mark.parametrize(
    ("statuses", "message"),
    [
        ([401], r"requires access rights for someone/some-model: accept its licence .*--token-file"),
        ([403], "requires access rights"),
        ([404], "the catalogue may be out of date"),
        ([418], "status 418"),
        ([200, *[503] * download.TRIES], r"failed with status 503; downloaded data is kept"),
        ([200, *[429] * download.TRIES], r"limits the rate of requests \(429\)"),
    ],
)
def test_a_hub_that_refuses_is_one_sentence(hub: FakeHub, tmp_path: Path, statuses: list[int], message: str) -> None:
    hub.statuses = statuses
    with pytest.raises(PullError, match=message) as caught:
        pulled(hub, tmp_path)
    assert "\n" not in str(caught.value)


def test_a_hub_that_is_busy_for_a_moment_is_asked_again(hub: FakeHub, tmp_path: Path) -> None:
    hub.statuses = [200, 503, 429, 500]
    pulled(hub, tmp_path)
    assert is_whole(tmp_path)


def test_a_gated_model_comes_with_a_token_which_goes_to_no_other_host(hub: FakeHub, tmp_path: Path) -> None:
    with serving(FakeHub(dict(FILES))) as storage:
        hub.token = "hf_secret"
        hub.redirect = f"{storage.url}/{REPOSITORY}/resolve/{COMMIT}/model.onnx".replace("127.0.0.1", "localhost")
        pulled(hub, tmp_path, model(File("model.onnx")), token="hf_secret")
        assert storage.authorizations == [None]
        assert hub.authorizations == ["Bearer hf_secret"] * 2


def test_a_listing_of_another_host_gets_no_token(hub: FakeHub, tmp_path: Path) -> None:
    with serving(FakeHub(dict(FILES))) as other:
        hub.listing_at = f"{other.url}/api/models/{REPOSITORY}/revision/main"
        pulled(hub, tmp_path, token="hf_secret")
        assert other.authorizations[0] is None
        assert set(hub.authorizations) == {"Bearer hf_secret"}


def test_a_listing_that_redirects_without_end(hub: FakeHub, tmp_path: Path) -> None:
    hub.listing_at = f"{hub.url}/api/models/{REPOSITORY}/revision/main"
    with pytest.raises(PullError, match="redirects in a loop"):
        pulled(hub, tmp_path)
    assert hub.asked["revision"] < 30


def test_a_listing_of_brackets_takes_no_memory(hub: FakeHub, tmp_path: Path) -> None:
    """Values of fields that are not used are skipped, not made."""
    entries = hub.listed()
    hub.listing = [{**entry, "cardData": [[]] * 300_000} for entry in entries[:1]] + entries[1:]
    tracemalloc.start()
    try:
        HuggingFace(hub.url).files(REPOSITORY, "main")
        assert tracemalloc.get_traced_memory()[1] < 16_000_000
    finally:
        tracemalloc.stop()


def test_a_listing_that_never_ends_is_given_up(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "DOCUMENT_S", -1.0)
    with pytest.raises(PullError, match=r"took more than -1 s to list someone/some-model"):
        pulled(hub, tmp_path)


def test_the_token_of_this_machine_goes_to_no_mirror(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    pulled(hub, tmp_path)
    assert set(hub.authorizations) == {None}
    assert HuggingFace().token == "hf_secret"


def test_redirects_in_a_circle_end(hub: FakeHub, tmp_path: Path) -> None:
    hub.redirect = f"{hub.url}/{REPOSITORY}/resolve/{COMMIT}/model.onnx"
    with pytest.raises(PullError, match="redirects in a loop"):
        pulled(hub, tmp_path)


@pytest.mark.parametrize(
    ("listing", "message"),
    [
        ([], "has no model.onnx at 6037ea07; the catalogue is out of date"),
        ({"error": "x"}, "returned an invalid list of files for someone/some-model"),
        ([{"type": "file"}], "invalid list of files"),
        ("no list", "invalid list of files"),
        ([{"rfilename": "model.onnx", "size": -1}], "invalid list of files"),
        ([{"rfilename": "model.onnx", "size": "1"}], "invalid list of files"),
        ([{"rfilename": "model.onnx", "size": 1 << 60}], "invalid list of files"),
        ([{"rfilename": "model.onnx", "size": 1, "blobId": "../../over"}], "invalid list of files"),
        ([{"rfilename": "model.onnx", "size": 1, "lfs": {"sha256": 7}}], "invalid list of files"),
        ([{"rfilename": "x" * 2000, "size": 1}], "invalid list of files"),
        ([{"rfilename": f"{n:0900}"} for n in range(10_000)], "with more than 8 MiB"),
    ],
)
def test_a_listing_that_is_none(hub: FakeHub, tmp_path: Path, listing: Any, message: str) -> None:
    hub.listing = listing
    with pytest.raises(PullError, match=message):
        pulled(hub, tmp_path)


@pytest.mark.parametrize(
    "path", ["model.x/../../over.json", "{folder}/over.json", "model\\..\\..\\over.json", "C:\\over.json", "model.x/.."]
)
def test_a_file_that_would_lie_elsewhere_is_not_fetched(hub: FakeHub, tmp_path: Path, path: str) -> None:
    hub.files[path.format(folder=tmp_path)] = b"{}"
    with pytest.raises(PullError, match="is outside the model's folder"):
        pulled(hub, tmp_path / "models" / "some", model(File("model.*"), File("*.json")))
    assert not hub.starts
    assert not list(tmp_path.rglob("*"))


def test_no_hub_at_all(tmp_path: Path) -> None:
    with pytest.raises(PullError, match=r"the connection to 127\.0\.0\.1 failed"):
        pulled(FakeHub({}, url="http://127.0.0.1:9"), tmp_path)


@pytest.mark.parametrize("url", ["huggingface.co", ""])
def test_what_is_no_address_of_a_hub(url: str) -> None:
    with pytest.raises(PullError, match=r"is not the URL of a hub; use one like https://huggingface\.co"):
        HuggingFace(url)


def test_two_at_once_are_one_and_one_error(hub: FakeHub, tmp_path: Path) -> None:
    hub.hold = threading.Event()
    first = threading.Thread(target=pulled, args=(hub, tmp_path))
    first.start()
    try:
        while not hub.starts:  # the first one waits for bytes
            first.join(0.001)
        with pytest.raises(PullError, match="another `parley pull` is writing to it"):
            pulled(hub, tmp_path)
    finally:
        hub.hold.set()
        first.join()
    assert is_whole(tmp_path)


def test_too_little_room_is_said_before_anything_comes(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1000})())
    with pytest.raises(PullError, match=r"some needs 0 MB, but only 0 MB are available; free 67 MB more"):
        pulled(hub, tmp_path)
    assert not hub.starts


def test_a_disk_that_fills_up_meanwhile(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.open

    def full(self: Path, mode: str = "r", **rest: Any) -> Any:
        file = real(self, mode, **rest)
        if self.suffix == ".part":
            file.close()
            file = real(Path("/dev/full"), "wb", buffering=0)
        return file

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(PullError, match="the disk is full; received data is kept"):
        pulled(hub, tmp_path)
    assert manifest_of(tmp_path) is None


@pytest.mark.parametrize("what", [model, pinned])
def test_a_machine_without_a_network_takes_a_folder(tmp_path: Path, what: Callable[[], CatalogModel]) -> None:
    source, folder = tmp_path / "stick", tmp_path / "some"
    for path, data in FILES.items():
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        (source / path).write_bytes(data)
    pull.take(what(), source, folder, lambda _: None)
    assert is_whole(folder)
    assert manifest_of(folder) is not None


SOME = model(File("model.*"), File("lexicon/*.txt"), File("voices/*"))


def test_a_pattern_brings_what_the_hub_has_of_it(hub: FakeHub, tmp_path: Path) -> None:
    manifest = pulled(hub, tmp_path, SOME)
    assert is_whole(tmp_path)
    assert sorted(file.path for file in manifest.files) == sorted(FILES)
    assert all(file.sha256 for file in manifest.files)


def test_a_pattern_brings_what_a_folder_has_of_it(tmp_path: Path) -> None:
    source, folder = tmp_path / "stick", tmp_path / "some"
    for path, data in {**FILES, "README.md": b"not asked for"}.items():
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        (source / path).write_bytes(data)
    manifest = pull.take(SOME, source, folder, lambda _: None)
    assert is_whole(folder)
    assert sorted(file.path for file in manifest.files) == sorted(FILES)


def test_a_folder_with_other_files_is_not_taken(tmp_path: Path) -> None:
    source, folder = tmp_path / "stick", tmp_path / "some"
    (source / "lexicon").mkdir(parents=True)
    with pytest.raises(PullError, match=r"has no model\.onnx, which some needs"):
        pull.take(pinned(), source, folder, lambda _: None)
    (source / "model.onnx").write_bytes(BIG[:-1])
    (source / "lexicon/en.txt").write_bytes(FILES["lexicon/en.txt"])
    with pytest.raises(PullError, match="has 299999 bytes instead of 300000; it is a different or incomplete file"):
        pull.take(pinned(), source, folder, lambda _: None)
    (source / "model.onnx").write_bytes(BIG[:-1] + bytes([BIG[-1] ^ 1]))
    with pytest.raises(PullError, match="wrong contents"):
        pull.take(pinned(), source, folder, lambda _: None)
    assert manifest_of(folder) is None
    assert (source / "model.onnx").exists(), "what is not ours is not removed"


def test_weights_by_name_are_where_they_were_pulled_to(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setattr(model_catalog, "catalogue", lambda: {"some": model()})
    with pytest.raises(
        WeightsError, match=r"some is not on this machine; `parley pull some` downloads it \(1 MB, MIT\)"
    ):
        located("some")
    folder = model_catalog.models_folder() / "some"
    pulled(hub, folder)
    assert located("some") == folder
    (folder / "model.onnx").write_bytes(b"short")
    with pytest.raises(WeightsError, match="parley pull some"):
        located("some")
    assert located("elsewhere/folder") == Path("elsewhere/folder")


def test_all_that_a_deployment_lacks_is_one_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    spec = load_config("configs/laptop.yaml")
    everything = (
        r"zipformer-en and qwen3-1\.7b and kokoro-en are not on this machine; `parley pull zipformer-en qwen3-1\.7b"
    )
    with pytest.raises(WeightsError, match=everything):
        Engine(spec)
    with pytest.raises(WeightsError, match=everything):
        describe(spec)
