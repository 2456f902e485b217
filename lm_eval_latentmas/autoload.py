"""Makes released lm-eval versions, which discover no plugins, find the model and the tasks of this package.

A ``.pth`` file calls `install` when lm-eval is first imported, unless ``LM_EVAL_LATENTMAS_AUTOLOAD=0``. Where Python
reads no ``.pth`` file (``PYTHONPATH``, ``python -S``), call it yourself, before or after importing lm-eval. Nothing in
here imports lm-eval, and no error in here stops it.
"""

from __future__ import annotations

import logging
import os
import sys
from functools import wraps
from importlib import import_module
from inspect import signature

MODEL = "latentmas-obf"


class _Target(str):
    """Where the model is, as lm-eval writes it; what lm-eval loads goes through the package.

    The package turns whatever its import raises into an ImportError with that cause, even the KeyError that lm-eval
    would take for an unknown model. The text stays the class's own place, so that ``@register_model`` may replace it.
    """

    def partition(self, separator: str) -> tuple[str, str, str]:
        return "lm_eval_latentmas", separator, "LatentMASLM"


_TARGET = _Target("lm_eval_latentmas.model:LatentMASLM")


def install() -> None:
    """Register the model and the tasks with lm-eval, now where it is loaded and else as soon as it is. Repeatable."""
    for name in _HOOKS:
        if name in sys.modules:
            _guarded(_HOOKS[name], sys.modules[name])
    if not any(isinstance(finder, _Watcher) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Watcher())


def task_folder() -> str:
    """The folder with the task YAMLs, to be given as ``--include_path`` where nothing else works."""
    return next(iter(import_module("lm_eval_latentmas.task_configs").__path__))


class _Watcher:
    """A meta-path finder that finds nothing of its own: it lets our hooks run behind the modules they wait for."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> object:
        """The spec that the other finders have for a module we wait for, None for all others."""
        if fullname not in _HOOKS:
            return None
        others = (finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec"))
        spec = next(filter(None, (finder.find_spec(fullname, path, target) for finder in others)), None)
        if spec is not None:
            _guarded(_follow, spec.loader)
        return spec


def _follow(loader: object) -> None:
    """Let this loader run our hook once, after the module it executes next."""
    execute = loader.exec_module

    def exec_module(module: object) -> None:
        del loader.exec_module
        execute(module)
        _guarded(_HOOKS[module.__name__], module)

    loader.exec_module = exec_module


def _guarded(hook: object, subject: object) -> None:
    """Calls a hook; a failure is logged and passes, because the user's run may have nothing to do with us."""
    try:
        hook(subject)
    except Exception:
        message = "lm-eval may not know the model %s or its tasks: hooking into %s failed"
        logging.getLogger(__name__).warning(message, MODEL, subject, exc_info=True)


def _add_model(models: object) -> None:
    """Registers a placeholder behind lm-eval's own, which are only filled in while the registry is empty."""
    registry = sys.modules["lm_eval.api.registry"]
    discovers = hasattr(registry, "load_plugins")  # main branch: reads our entry point itself
    if not discovers and MODEL not in registry.model_registry:
        registry.model_registry.register(MODEL, target=_TARGET)


def _add_tasks(tasks: object) -> None:
    """Makes our folder part of the default tasks of every TaskManager, before the user's own ``include_path``."""
    original = tasks.TaskManager.__init__
    if hasattr(original, "latentmas_tasks"):
        return
    ours = task_folder()
    parameters = signature(original)
    if not {"include_path", "include_defaults"} <= set(parameters.parameters):
        raise TypeError(f"TaskManager{parameters} takes no include_path and include_defaults")

    @wraps(original)
    def __init__(self: object, *args: object, **kwargs: object) -> None:
        call = parameters.bind(self, *args, **kwargs)
        call.apply_defaults()
        theirs = call.arguments["include_path"]
        if call.arguments["include_defaults"]:
            call.arguments["include_path"] = _folders(ours, theirs)
        original(*call.args, **call.kwargs)
        self.include_path = theirs

    __init__.latentmas_tasks = True
    tasks.TaskManager.__init__ = __init__


def _folders(ours: str, theirs: object) -> list:
    """Task folders in order of precedence, the user's last: of two tasks of one name lm-eval takes the later."""
    folders = [theirs] if isinstance(theirs, (str, os.PathLike)) else list(theirs or ())
    known = any(os.path.realpath(folder) == os.path.realpath(ours) for folder in folders)
    return folders if known else [ours, *folders]


_HOOKS = {"lm_eval.models": _add_model, "lm_eval.tasks": _add_tasks}
