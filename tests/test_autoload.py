"""The bridge to lm-eval: in fresh interpreters against a stand-in of a few lines, and once against the real one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

import lm_eval_latentmas
from lm_eval_latentmas import autoload

REGISTRY = """
class Registry(dict):
    def register(self, name, target):
        self[name] = target
model_registry = Registry()
"""
MODELS = """
from lm_eval.api.registry import model_registry
if not model_registry:
    model_registry.register("hf", "theirs")
"""
TASKS = """
class TaskManager:
    def __init__(self, verbosity=None, include_path=None, include_defaults=True, metadata=None):
        self.include_path, self.searched, self.metadata = include_path, include_path, metadata
"""


def stand_in(folder: Path, registry: str = REGISTRY, models: str = MODELS, tasks: str = TASKS) -> Path:
    """A package named lm_eval with the three modules that the bridge touches."""
    sources = {"": "", "api/": "", "models/": models, "tasks/": tasks}
    for package, source in sources.items():
        file = folder / "lm_eval" / package / "__init__.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)
    (folder / "lm_eval/api/registry.py").write_text(registry)
    return folder


def python(code: str, *path: Path, options: tuple[str, ...] = (), **environment: str) -> subprocess.CompletedProcess:
    """Runs code in a fresh interpreter of this environment; what it leaves in ``out`` comes back as ``.out``."""
    code = f"out = None\n{textwrap.dedent(code)}\nimport json, sys\nprint(json.dumps(out), file=sys.stdout)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), **environment}
    done = subprocess.run([sys.executable, *options, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    done.out = json.loads(done.stdout)
    return done


LOOK = """
    import lm_eval.models, lm_eval.tasks
    from lm_eval.api.registry import model_registry
    manager = lm_eval.tasks.TaskManager(include_path="mine")
    out = [model_registry, manager.searched, manager.include_path]
"""


def test_an_unrelated_process_loads_nothing_of_ours():
    loaded = python("import sys, json, re; out = list(sys.modules)").out
    assert not [name for name in loaded if name.startswith(("lm_eval", "torch", "transformers"))]


def test_importing_the_package_imports_nothing_heavy():
    new = python(
        "import sys; before = set(sys.modules); import lm_eval_latentmas; out = list(set(sys.modules) - before)"
    )
    tops = {name.partition(".")[0] for name in new.out}
    assert "lm_eval_latentmas" in tops
    assert not tops & {"lm_eval", "torch", "transformers", "numpy", "yaml", "datasets", "typing", "logging"}


def test_model_and_tasks_are_known_once_lm_eval_is_imported(tmp_path):
    models, searched, shown = python(LOOK, stand_in(tmp_path)).out
    assert models == {"hf": "theirs", autoload.MODEL: "lm_eval_latentmas.model:LatentMASLM"}
    assert searched == [autoload.task_folder(), "mine"]
    assert shown == "mine"


def test_an_lm_eval_inside_a_zip_file_is_bridged_too(tmp_path):
    stand_in(tmp_path)
    with zipfile.ZipFile(tmp_path / "lm_eval.zip", "w") as archive:
        for file in sorted(tmp_path.rglob("*.py")):
            archive.write(file, file.relative_to(tmp_path))
    models, searched, _ = python(LOOK, tmp_path / "lm_eval.zip").out
    assert autoload.MODEL in models
    assert searched == [autoload.task_folder(), "mine"]


def test_the_environment_variable_turns_it_off(tmp_path):
    done = python(LOOK, stand_in(tmp_path), LM_EVAL_LATENTMAS_AUTOLOAD="0")
    assert done.out == [{"hf": "theirs"}, "mine", "mine"]


@pytest.mark.parametrize("order", ["before", "after"])
def test_install_works_without_the_pth_file(tmp_path, order):
    install = "    from lm_eval_latentmas import autoload; autoload.install(); autoload.install()"
    look = LOOK.replace("    manager =", f"{install}\n    manager =") if order == "after" else f"{install}\n{LOOK}"
    models, searched, _ = python(look, stand_in(tmp_path), LM_EVAL_LATENTMAS_AUTOLOAD="0").out
    assert autoload.MODEL in models
    assert searched == [autoload.task_folder(), "mine"]


def test_a_name_that_lm_eval_knows_is_left_alone(tmp_path):
    known = MODELS + f'model_registry.register("{autoload.MODEL}", "already here")'
    assert python(LOOK, stand_in(tmp_path, models=known)).out[0][autoload.MODEL] == "already here"


def test_an_lm_eval_that_reads_entry_points_finds_the_model_itself(tmp_path):
    discovering = REGISTRY + textwrap.dedent("""
        from importlib.metadata import entry_points
        def load_plugins(group, registry):
            for entry in entry_points(group=group):
                registry.register(entry.name, entry.value)
    """)
    look = (
        LOOK + "    from lm_eval.api.registry import load_plugins\n    out = [dict(model_registry), model_registry]\n"
    )
    look += "    load_plugins('lm_eval.models', model_registry)\n"
    before, after = python(look, stand_in(tmp_path, registry=discovering)).out
    assert before == {"hf": "theirs"}
    assert after[autoload.MODEL] == "lm_eval_latentmas.model:LatentMASLM"


def test_the_entry_point_names_the_class_that_the_bridge_registers():
    (entry,) = metadata.entry_points(group="lm_eval.models", name=autoload.MODEL)
    assert entry.value == autoload._TARGET


def test_default_tasks_that_are_not_wanted_stay_away(tmp_path):
    look = "from lm_eval.tasks import TaskManager\nout = TaskManager(None, ['mine'], False).searched"
    assert python(look, stand_in(tmp_path)).out == ["mine"]


def test_our_folder_given_by_hand_is_searched_once(tmp_path):
    look = "from lm_eval.tasks import TaskManager\nout = TaskManager(include_path=FOLDER).searched"
    look = look.replace("FOLDER", repr(autoload.task_folder()))
    assert python(look, stand_in(tmp_path)).out == [autoload.task_folder()]


def test_a_task_manager_that_we_cannot_hook_is_reported_and_works(tmp_path):
    changed = TASKS.replace("include_path=None, include_defaults=True", "folders=None").replace(
        "include_path,", "folders,"
    )
    look = "from lm_eval.tasks import TaskManager\nimport lm_eval.models\nTaskManager(folders=[])"
    done = python(look, stand_in(tmp_path, tasks=changed.replace("= include_path", "= folders")))
    assert "takes no include_path and include_defaults" in done.stderr


def test_lm_eval_works_when_the_package_is_gone(tmp_path):
    look = "import sys; sys.modules['lm_eval_latentmas'] = None\nimport lm_eval.tasks\nout = lm_eval.tasks.__name__"
    done = python(look, stand_in(tmp_path))
    assert done.out == "lm_eval.tasks"
    assert "installed but not loaded" in done.stderr


@pytest.mark.parametrize("error", [ImportError("no gguf"), KeyError("no gguf")])
def test_a_failing_import_is_reported_with_its_cause(monkeypatch, error):
    from lm_eval.api import registry

    def broken(name: str) -> None:
        raise error

    fresh = registry.Registry("model")
    fresh.register(autoload.MODEL, target=autoload._Target(f"{autoload._TARGET}"))
    monkeypatch.setattr(registry, "model_registry", fresh)
    monkeypatch.setattr(lm_eval_latentmas, "import_module", broken)
    monkeypatch.delitem(vars(lm_eval_latentmas), "LatentMASLM", raising=False)
    registry._materialise_placeholder.cache_clear()
    with pytest.raises(ImportError, match=r"lm_eval_latentmas.model failed: \w+: .*no gguf") as caught:
        registry.get_model(autoload.MODEL)
    assert caught.value.__cause__ is error


def test_the_class_may_replace_its_placeholder():
    from lm_eval.api.registry import Registry

    class LatentMASLM:
        pass

    LatentMASLM.__module__ = "lm_eval_latentmas.model"
    fresh = Registry("model")
    fresh.register(autoload.MODEL, target=autoload._TARGET)
    fresh.register(autoload.MODEL)(LatentMASLM)
    assert fresh.get(autoload.MODEL) is LatentMASLM


def test_the_real_harness_knows_the_model():
    from lm_eval.api.registry import get_model

    assert get_model(autoload.MODEL) is lm_eval_latentmas.LatentMASLM


def test_the_real_harness_lists_our_tasks_and_the_users_win(tmp_path):
    from lm_eval.tasks import TaskManager

    names = {file.stem for file in Path(autoload.task_folder()).glob("*.yaml")}
    (tmp_path / "mine.yaml").write_text("task: latentmas_demo\ndataset_path: mine\noutput_type: generate_until\n")
    manager = TaskManager(include_path=str(tmp_path))
    assert "latentmas_gsm8k" in names
    assert names <= set(manager.all_tasks)
    assert "mine" in str(manager.task_index["latentmas_demo"])
    assert manager.include_path == str(tmp_path)
