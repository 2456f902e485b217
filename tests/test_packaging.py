"""What the wheel, the source archive and an editable install hold, and that each works from an unfriendly folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hatchling import build as backend

import lm_eval_latentmas

ROOT = Path(__file__).resolve().parents[1]
OUTER = ("model_adapters", "task_configs")
# found, not imported: the adapters need torch, and these interpreters see no other package
PARTS = """
import json, os
from importlib.util import find_spec
parts = [find_spec(f"lm_eval_latentmas{name}") for name in ("", ".model_adapters", ".task_configs")]
strangers = [n for n in ("model_adapters", "task_configs", "tests", "startup", "benchmarks") if find_spec(n)]
print(json.dumps([[os.path.realpath(list(part.submodule_search_locations)[0]) for part in parts], strangers]))
"""


def built(build: Callable[[str], str], source: Path, folder: Path) -> Path:
    """One artefact of the given backend function, built from ``source`` into ``folder``."""
    before = Path.cwd()
    os.chdir(source)
    try:
        return folder / build(str(folder))
    finally:
        os.chdir(before)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    return built(backend.build_wheel, ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def editable(tmp_path_factory) -> Path:
    return built(backend.build_editable, ROOT, tmp_path_factory.mktemp("editable"))


@pytest.fixture
def elsewhere(tmp_path) -> Path:
    """A working directory whose folders have the names of ours."""
    for name in ("lm_eval_latentmas", "lm_eval"):
        (tmp_path / name).mkdir()
    return tmp_path


def names(archive: Path) -> set[str]:
    return set(zipfile.ZipFile(archive).namelist())


def shipped(folder: str) -> set[str]:
    """Files below a folder of the checkout that an install must hold, as paths in the checkout."""
    unwanted = {"__pycache__", ".gitkeep"}
    files = (file for file in (ROOT / folder).rglob("*") if file.is_file() and not unwanted & {*file.parts})
    return {file.relative_to(ROOT).as_posix() for file in files}


def parts_and_strangers(archive: Path, site: Path, folder: Path) -> tuple[list[str], list[str]]:
    """Unpacks an install into ``site`` and finds the package from ``folder``, with no other site-packages."""
    zipfile.ZipFile(archive).extractall(site)
    code = f"import site; site.addsitedir({str(site)!r})\n{PARTS}"
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=folder, env=clean, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_wheel_holds_every_file_inside_the_package(wheel):
    inside = {f"lm_eval_latentmas/{name}" for folder in OUTER for name in shipped(folder)}
    assert "lm_eval_latentmas/model_adapters/__init__.py" in inside
    assert inside | shipped("lm_eval_latentmas") <= names(wheel)


def test_the_wheel_puts_nothing_else_at_the_top_of_site_packages(wheel):
    tops = {name.partition("/")[0] for name in names(wheel)}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"lm_eval_latentmas", "lm_eval_latentmas.pth"}


def test_every_install_records_the_pth_file_so_that_it_goes_with_the_package(wheel, editable):
    for archive in (wheel, editable):
        (record,) = (name for name in names(archive) if name.endswith("/RECORD"))
        assert "lm_eval_latentmas.pth," in zipfile.ZipFile(archive).read(record).decode()


def test_an_editable_install_copies_no_code(editable):
    assert not [name for name in names(editable) if name.endswith((".py", ".yaml", ".json"))]


def test_the_wheel_works_in_any_folder(wheel, tmp_path_factory, elsewhere):
    site = tmp_path_factory.mktemp("site")
    package = os.path.realpath(site / "lm_eval_latentmas")
    expected = [package, f"{package}/model_adapters", f"{package}/task_configs"]
    assert parts_and_strangers(wheel, site, elsewhere) == [expected, []]


def test_an_editable_install_works_in_any_folder(editable, tmp_path_factory, elsewhere):
    expected = [f"{ROOT}/{name}" for name in ("lm_eval_latentmas", *OUTER)]
    assert parts_and_strangers(editable, tmp_path_factory.mktemp("site"), elsewhere) == [expected, []]


def test_in_the_checkout_itself_the_checkout_is_used(wheel, tmp_path_factory):
    parts, _ = parts_and_strangers(wheel, tmp_path_factory.mktemp("site"), ROOT)
    assert parts == [f"{ROOT}/{name}" for name in ("lm_eval_latentmas", *OUTER)]


def test_the_source_archive_builds_the_same_wheel(wheel, tmp_path):
    archive = built(backend.build_sdist, ROOT, tmp_path)
    shutil.unpack_archive(archive, tmp_path)
    rebuilt = built(backend.build_wheel, tmp_path / archive.name.removesuffix(".tar.gz"), tmp_path)
    assert names(rebuilt) == names(wheel)


@pytest.mark.parametrize("name", lm_eval_latentmas.__all__)
def test_every_public_name_is_there(name):
    assert getattr(lm_eval_latentmas, name)
    assert name in dir(lm_eval_latentmas)


def test_a_name_that_is_not_public_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'LatentMASML'"):
        lm_eval_latentmas.LatentMASML  # noqa: B018
