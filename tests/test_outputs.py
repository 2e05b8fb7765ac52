"""Files that a user names for output: whole or not at all, and never over what is read."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from evalharness.cli import watch
from evalharness.cli.main import main
from evalharness.errors import DiskFullError, StoreError
from evalharness.report.files import write_files
from evalharness.store.output import output_file

ROOT = Path(__file__).resolve().parents[1]
VECTORS = ROOT / "tests/fixtures/gsm8k/vectors.jsonl"
RECIPE = ROOT / "manifests/recipes/smoke.json"


def _full(*_: object, **__: object) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _score(source: Path, target: Path) -> int:
    return main(["score", "gsm8k", "--input", str(source), "--output", str(target)])


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_stood_there_stays_until_the_end(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("old")
    with pytest.raises(RuntimeError), output_file(path) as out:
        out.write(b"new")
        raise RuntimeError
    assert path.read_text() == "old" and _names(tmp_path) == ["out"]
    full = pytest.raises(DiskFullError, match=f"{path}: .*No space left.*free space")
    with full, output_file(path):
        _full()
    assert path.read_text() == "old" and _names(tmp_path) == ["out"]
    with output_file(path) as out:
        out.write(b"new")
        assert path.read_text() == "old"
    assert path.read_text() == "new" and _names(tmp_path) == ["out"]


def test_a_link_keeps_its_place_and_a_pipe_stays_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    assert _score(VECTORS, tmp_path / "link") == 0
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text().count("\n") == VECTORS.read_text().count("\n")

    pipe, found = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()), daemon=True)
    reader.start()
    assert _score(VECTORS, pipe) == 0
    reader.join(timeout=60)
    assert pipe.is_fifo() and found == [(tmp_path / "real").read_bytes()]


def test_the_input_is_never_the_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, link = tmp_path / "v.jsonl", tmp_path / "link"
    source.write_bytes(VECTORS.read_bytes())
    link.symlink_to(source)
    for target in (source, link):
        assert _score(source, target) == 2
        assert f"{target}: is the input" in capsys.readouterr().err
    recipe = tmp_path / "recipe.json"
    recipe.write_bytes(RECIPE.read_bytes())
    assert main(["manifest", "build", str(recipe), "--out", str(recipe)]) == 2
    assert source.read_bytes() == VECTORS.read_bytes()
    assert recipe.read_bytes() == RECIPE.read_bytes()


def test_a_place_that_cannot_be_written_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for target in (tmp_path / "no/such/file", tmp_path):
        assert _score(VECTORS, target) == 2
        assert f"{target}: cannot be written" in capsys.readouterr().err
        assert main(["manifest", "build", str(RECIPE), "--out", str(target)]) == 2
        assert f"{target}: cannot be written" in capsys.readouterr().err
    with pytest.raises(StoreError, match="give a writable place"), output_file(tmp_path):
        raise AssertionError("opened")


def test_a_recipe_too_deep_leaves_no_manifest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, out = tmp_path / "recipe.json", tmp_path / "out.json"
    recipe.write_text("[" * 100_000)
    assert main(["manifest", "build", str(recipe), "--out", str(out)]) == 2
    assert f"{recipe}: cannot be read as a recipe" in capsys.readouterr().err
    assert _names(tmp_path) == ["recipe.json"]


def test_a_full_disk_is_incomplete_for_every_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = Path.open

    def open_full(self: Path, mode: str = "r", *args: Any, **options: Any) -> Any:
        if "w" in mode:
            self.touch()
            _full()
        return real(self, mode, *args, **options)

    monkeypatch.setattr(Path, "open", open_full)
    assert _score(VECTORS, tmp_path / "o") == 12
    assert f"{tmp_path / 'o'}: " in capsys.readouterr().err
    assert main(["manifest", "build", str(RECIPE), "--out", str(tmp_path / "m")]) == 12
    with pytest.raises(DiskFullError, match=r"report\.json: .*free space") as full:
        write_files({}, tmp_path, {"json": ("report.json", lambda _: "text")})
    assert full.value.exit_code == 12
    assert _names(tmp_path) == []


@pytest.mark.parametrize("kind", [FileNotFoundError, IsADirectoryError, NotADirectoryError])
def test_a_path_nobody_foresaw_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: type[OSError]
) -> None:
    codes = {
        FileNotFoundError: errno.ENOENT,
        IsADirectoryError: errno.EISDIR,
        NotADirectoryError: errno.ENOTDIR,
    }

    def run(_args: object) -> int:
        raise OSError(codes[kind], os.strerror(codes[kind]), "some/path")

    monkeypatch.setattr(watch, "run", run)
    assert main(["watch", "RUN"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("evalharness: some/path: ") and "give a path" in error
