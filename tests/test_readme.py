"""The README says what the code does: tables are generated or checked, and every name in it exists."""

import re
from pathlib import Path

import pytest

from lm_eval_latentmas.config import own_arguments
from lm_eval_latentmas.relay.presets import table

README = (Path(__file__).parent.parent / "README.md").read_text("utf-8")


def section(name):
    return README.partition(f"<!-- {name} -->\n")[2].partition(f"<!-- /{name} -->")[0].strip()


def test_the_table_of_compressors_is_the_registry():
    assert section("compressors") == table().strip()


def test_every_argument_stands_in_the_table_with_its_default():
    rows = re.findall(r"^\| (`.+?) \| (.+?) \|", README, re.MULTILINE)
    told = {}
    for names, defaults in rows:
        names = re.findall(r"`(\w+)`", names)
        values = re.findall(r"`([^`]+)`", defaults) or [None]
        told |= dict(zip(names, values if len(values) == len(names) else values * len(names), strict=True))
    for name, default in own_arguments().items():
        assert name in told, f"{name} is not in the README's table"
        if default is not None:
            assert told[name] == str(default)


@pytest.mark.parametrize("name", sorted(set(re.findall(r"latentmas_\w+", README))))
def test_every_task_exists(name):
    from lm_eval_latentmas.autoload import task_folder

    known = {path.stem for path in Path(task_folder()).glob("*.yaml")}
    assert name in known | {"latentmas_"}
