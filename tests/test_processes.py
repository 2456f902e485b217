"""Several processes and killed ones: every document once, the same texts, nothing finished computed again."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tiny import saved_model

from lm_eval_latentmas.model import LatentMASLM

HERE = Path(__file__).parent
PROGRAM = """
import json, os, sys
sys.path.insert(0, {here!r})
import lm_eval, lm_eval.evaluator
lm_eval.evaluator.add_env_info = lambda results: None
from lm_eval.tasks import TaskManager
models, task, out = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]
if sys.argv[4:5] == ["machines"]:
    # of one host name
    from lm_eval_latentmas import machine_name
    machine_name._distinction = lambda: os.environ["RANK"]
found = []
for arguments in models:
    results = lm_eval.simple_evaluate(
        model="latentmas-obf", model_args=arguments, tasks=[task], device="cpu", batch_size=2, bootstrap_iters=0,
        use_cache=(sys.argv[5:] or [None])[0],
        task_manager=TaskManager(include_path={tasks!r}, include_defaults=False))
    if results is not None:
        texts = [[s["doc_id"], s["resps"][0]] for s in results["samples"][task]]
        found.append({{"texts": texts, "latentmas": results["config"]["latentmas"]}})
if found:
    with open(out, "w") as file:
        json.dump(found, file)
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    from test_model import PROMPTS, QUESTIONS, TASK

    folder = tmp_path_factory.mktemp("processes")
    saved_model(folder / "model")
    (folder / "prompts.yaml").write_text(PROMPTS)
    data = folder / "data.jsonl"
    data.write_text("".join(json.dumps({"question": q, "answer": "4"}) + "\n" for q in QUESTIONS))
    (folder / "tasks").mkdir()
    for name, sample in (("sampled", "true"), ("greedy", "false")):
        text = TASK.format(name=name, data=data, repeats=1, sample=sample, temperature=0.9)
        (folder / "tasks" / f"{name}.yaml").write_text(text.replace("max_gen_toks: 10", "max_gen_toks: 60"))
    (folder / "program.py").write_text(PROGRAM.format(here=str(HERE), tasks=str(folder / "tasks")))
    return folder


def command(home, out, task="sampled", before=(), **arguments):
    """A run of one model; of others before it where ``before`` says what differs in their arguments."""
    values = {
        "pretrained": str(home / "model"),
        "prompts": str(home / "prompts.yaml"),
        "latent_steps": 3,
        "kv_budget": 8,
        "seed": 4,
        **arguments,
    }
    models = [*({**values, **changes} for changes in before), values]
    return [str(home / "program.py"), json.dumps(models), task, str(out)]


def results_in(out):
    """What the results of the last model say."""
    return json.loads(Path(out).read_text())[-1]


def environment(**changes):
    return {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **changes}


def alone(home, out, **arguments):
    subprocess.run([sys.executable, *command(home, out, **arguments)], check=True, env=environment(), timeout=240)
    return results_in(out)


@pytest.fixture(scope="module")
def expected(home):
    return alone(home, home / "expected.json")


def test_two_processes_share_the_documents_and_give_the_same_texts(home, tmp_path, expected):
    out, run_dir = tmp_path / "two.json", tmp_path / "run"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    subprocess.run(
        [*launcher, *command(home, out, run_dir=str(run_dir))],
        check=True,
        env=environment(ACCELERATE_USE_CPU="true"),
        timeout=300,
    )
    found = results_in(out)
    assert sorted(found["texts"]) == sorted(expected["texts"])
    assert found["latentmas"]["processes"] == 2
    # five documents over two ranks: lm-eval pads the shorter one with a copy, which must not be computed or counted
    assert found["latentmas"]["samples"]["sampled"]["doc_id"] == [0, 1, 2, 3, 4]
    assert found["latentmas"]["summary"]["sampled"]["decoded_tokens"] == sum(
        expected["latentmas"]["samples"]["sampled"]["decoded_tokens"]
    )
    (path,) = run_dir.glob("journal*.sqlite")
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT count(*) FROM records").fetchone() == (5,)


def test_the_results_cover_processes_on_other_machines(home, tmp_path, expected):
    out = tmp_path / "two.json"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    subprocess.run(
        [*launcher, *command(home, out), "machines"],
        check=True,
        env=environment(ACCELERATE_USE_CPU="true", TMPDIR=str(temporary)),
        timeout=300,
    )
    found = results_in(out)
    assert sorted(found["texts"]) == sorted(expected["texts"])
    mine, theirs = (told["latentmas"]["samples"]["sampled"] for told in (found, expected))
    for name in ("doc_id", "decoded_tokens", "prompt_tokens", "relay_bytes"):
        assert mine[name] == theirs[name]
    assert list(temporary.glob("lm-eval-latentmas-*")) == []


def test_no_process_waits_for_another_that_the_cache_answers(home, tmp_path):
    cache, texts = tmp_path / "cache", []
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    for number in range(2):
        out = tmp_path / f"{number}.json"
        arguments = [*command(home, out, task="greedy"), "machines", str(cache)]
        subprocess.run([*launcher, *arguments], check=True, env=environment(ACCELERATE_USE_CPU="true"), timeout=120)
        found = results_in(out)
        texts.append(sorted(found["texts"]))
        if not number:
            assert found["latentmas"]["samples"]["greedy"]["doc_id"] == [0, 1, 2, 3, 4]
            Path(f"{cache}_rank1.db").unlink()
    assert texts[0] == texts[1]
    # the first process found its answers in the cache, and has what the other one computed
    assert found["latentmas"]["samples"]["greedy"]["doc_id"] == [1, 3]


def test_shuffled_relays_in_several_processes_are_refused_before_weights_load(home, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(LatentMASLM, "_create_model", lambda *_, **__: pytest.fail("weights were loaded"))
    with pytest.raises(ValueError, match=r"relay=shuffled: .* each of 2 processes knows its own documents alone"):
        LatentMASLM(pretrained=str(home / "model"), prompts=str(home / "prompts.yaml"), relay="shuffled", device="cpu")


def test_a_pipeline_of_two_processes_gives_the_same_texts_and_any_other_run_goes_on_with_them(home, tmp_path, expected):
    out, run_dir = tmp_path / "first.json", tmp_path / "run"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    earlier = {"kv_budget": 4, "run_dir": None}
    arguments = command(home, out, before=[earlier], run_dir=str(run_dir), pipeline=True, pipeline_timeout=60)
    subprocess.run([*launcher, *arguments], check=True, env=environment(ACCELERATE_USE_CPU="true"), timeout=300)
    found = results_in(out)
    assert found["texts"] == expected["texts"]
    first = json.loads(out.read_text())[0]
    assert first["latentmas"]["chain"]["hand_off"]["kv_budget"] == 4
    assert len(first["texts"]) == 5
    assert first["texts"] != found["texts"]
    told, summary = found["latentmas"], found["latentmas"]["summary"]["sampled"]
    assert told["processes"] == 2
    assert told["places"] == {"pipeline": [["refiner", "judger"], ["planner", "critic"]]}
    assert summary["relay_bytes_per_hop"] == expected["latentmas"]["summary"]["sampled"]["relay_bytes_per_hop"]
    assert summary["relay_seconds_per_hop"][1] > 0
    assert summary["seconds"]["transport"] > 0
    assert summary["seconds"]["compression"] > 0
    records = finished(run_dir)
    assert len(records) == 5
    # another number of processes goes on with the same folder
    assert alone(home, tmp_path / "second.json", run_dir=str(run_dir))["texts"] == expected["texts"]
    assert finished(run_dir) == records


def finished(run_dir):
    paths = list(Path(run_dir).glob("journal*.sqlite"))
    if not paths:
        return {}
    with sqlite3.connect(paths[0], timeout=30) as db:
        try:
            return dict(db.execute("SELECT key, record FROM records"))
        except sqlite3.OperationalError:  # the tables are not there yet
            return {}


def test_a_killed_run_goes_on_where_it_was(home, tmp_path, expected):
    run_dir, out = tmp_path / "run", tmp_path / "killed.json"
    # one row at a time and long answers leave time to hit it between two samples
    process = subprocess.Popen(
        [sys.executable, *command(home, out, run_dir=str(run_dir))], env=environment(), start_new_session=True
    )
    while not finished(run_dir):
        assert process.poll() is None, "the run ended before it could be killed"
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    kept = finished(run_dir)
    assert 1 <= len(kept) < 5
    assert not out.exists()

    found = alone(home, out, run_dir=str(run_dir))
    assert found["texts"] == expected["texts"]
    after = finished(run_dir)
    assert len(after) == 5
    # records hold the seconds that each sample took, so an equal record is one that was not computed again
    assert {key: after[key] for key in kept} == kept


LEAVING = """
import atexit, sys
def report():
    print("torch" in sys.modules and sys.modules["torch.distributed"].is_initialized())
atexit.register(report)  # first registered, so last to run
import torch.distributed as dist
from lm_eval_latentmas.launch import Launch, leave_at_exit
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
if sys.argv[1] == "launch":
    Launch(2)
else:
    own = dist.new_group(backend="gloo")
    leave_at_exit()
    leave_at_exit(own)
if sys.argv[2] == "ended":
    dist.destroy_process_group()
elif sys.argv[2] == "failed":
    raise ValueError("the work failed")
"""


@pytest.mark.parametrize("group", ["launch", "own"])
@pytest.mark.parametrize(("end", "open_"), [("done", False), ("ended", False), ("failed", True)])
def test_gloo_is_left_before_the_interpreter_ends(group, end, open_):
    """Otherwise a thread of gloo that still holds a tensor aborts a process whose work is done."""
    done = subprocess.run(
        [sys.executable, "-c", LEAVING, group, end], capture_output=True, text=True, env=environment(), timeout=120
    )
    assert done.stdout.split() == [str(open_)]
    assert (done.returncode, done.stderr) == (0, "") if end != "failed" else "the work failed" in done.stderr
