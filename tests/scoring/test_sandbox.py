"""What a program can do in the sandbox and what it cannot, at every level of isolation that works here."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import hostile
import pytest

from lm_eval_latentmas.scoring.sandbox import Call, Execution, Limits, Sandbox, SandboxError, pool
from lm_eval_latentmas.scoring.sandbox.pool import ISOLATION

TIGHT = Limits(cpu_seconds=1.0, load_seconds=0.5, idle_seconds=0.5, memory_bytes=1 << 29, output_bytes=1 << 20)
PACKAGES = Path(pool.__file__).parents[3]


def _works(isolation: str) -> bool:
    try:
        return bool(Sandbox(isolation=isolation).level)
    except SandboxError:
        return False


WORKING = [isolation for isolation in ISOLATION if _works(isolation)]


@pytest.fixture(scope="module", params=WORKING)
def sandbox(request):
    return Sandbox(workers=2, isolation=request.param)


@pytest.fixture(scope="module")
def strongest():
    return Sandbox(workers=2, isolation=WORKING[0])


@pytest.fixture
def surroundings(monkeypatch, tmp_path):
    """A home with a secret, an environment with another, a port that listens, and a place to write to."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "token").write_text("secret")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("SECRET", "secret")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        yield f"HOME_FILE = {str(home / 'token')!r}\nOUTSIDE = {str(tmp_path / 'written')!r}\nPORT = {port}\n"


def double(sandbox: Sandbox, program: str, limits: Limits = TIGHT, **rest) -> Execution:
    return sandbox.run(Call(textwrap.dedent(program), "double", [[1], [2]], [0.3, 0.3], **rest), limits)


def is_right(execution: Execution) -> bool:
    """Whether plain outputs are right; what equals everything is not plain."""
    return execution.ending == "finished" and [repr(output) for output in execution.outputs] == ["2", "4"]


def children() -> set[int]:
    """The processes below this one."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else ()):
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(name)] = int(fields[1])
    found, fresh = set(), {os.getpid()}
    while fresh:
        fresh = {child for child, parent in parents.items() if parent in fresh} - found
        found |= fresh
    return found


def test_a_program_returns_its_results(sandbox):
    assert is_right(double(sandbox, "def double(x): return 2 * x"))


@pytest.mark.parametrize("name", hostile.FAKES | hostile.REACHING)
def test_programs_gain_nothing_by_fakes_and_by_reaching_out(sandbox, surroundings, tmp_path, name):
    before = children()
    assert not is_right(double(sandbox, surroundings + hostile.ALL[name]))
    assert children() <= before
    assert not (tmp_path / "written").exists()
    assert (tmp_path / "home" / "token").read_text() == "secret"


@pytest.mark.parametrize("name", hostile.EXHAUSTING)
def test_programs_are_stopped_at_their_limits(strongest, name):
    before = children()
    execution = double(strongest, hostile.EXHAUSTING[name])
    assert not is_right(execution)
    assert execution.cpu_seconds < TIGHT.cpu_seconds + 5
    assert execution.idle_seconds < TIGHT.idle_seconds + 5
    assert children() <= before


@pytest.mark.parametrize(
    ("name", "ending"),
    {
        "loops forever": "timeout",
        "sleeps": "timeout",
        "never ends its threads": "timeout",
        "makes a list of 20 GB": "memory",
        "returns a gigabyte": "memory",
        "leaves by sys.exit before the tests": "exception",
        "reads input": "exception",
    }.items(),
)
def test_the_ending_says_what_stopped_a_program(sandbox, name, ending):
    assert double(sandbox, hostile.ALL[name]).ending == ending


def test_more_than_the_limit_cannot_be_returned(sandbox):
    execution = double(sandbox, "def double(x): return 'x' * 2_000_000")
    assert (execution.ending, execution.outputs) == ("memory", [])


def test_temporary_folders_are_removed(sandbox, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    program = "import os\ndef double(x):\n    os.makedirs(f'a/{x}')\n    open('b', 'w').write('b')\n    return 2 * x"
    assert is_right(double(sandbox, program))
    assert list(tmp_path.iterdir()) == []


def test_the_environment_holds_nothing_of_ours(sandbox, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "secret")
    execution = double(sandbox, "import os\ndef double(x): return dict(os.environ)")
    assert "HF_TOKEN" not in execution.outputs[0]
    assert "HOME" not in execution.outputs[0]


def test_the_working_folder_is_empty_and_can_be_written_to(sandbox):
    program = """
        import os
        def double(x):
            found = os.listdir(".")
            open(f"file{x}", "w").write("text")
            return found, open(f"file{x}").read()
    """
    assert double(sandbox, program).outputs == [([], "text"), (["file1"], "text")]


def test_installed_packages_can_be_imported(sandbox):
    assert is_right(double(sandbox, "def double(x):\n    import numpy\n    return int(numpy.int64(2) * x)"))


def test_standard_library_modules_that_need_more_than_most_work(sandbox):
    program = """
        import concurrent.futures, dataclasses, decimal, tempfile
        @dataclasses.dataclass
        class Twice:
            x: int
        def double(x):
            with tempfile.TemporaryFile() as file, concurrent.futures.ThreadPoolExecutor(2) as threads:
                file.write(b"1")
                return threads.submit(lambda: int(decimal.Decimal(2) * Twice(x).x)).result()
    """
    assert is_right(double(sandbox, program))


def test_printing_is_harmless(sandbox):
    program = "import sys\ndef double(x):\n    print('\\ud800', file=sys.stderr)\n    print(x)\n    return 2 * x"
    assert is_right(double(sandbox, program))


def test_main_guards_do_not_hold(sandbox):
    assert is_right(double(sandbox, "def double(x): return 2 * x\nif __name__ == '__main__': input()"))


def test_sets_of_strings_have_the_same_order_in_every_run(sandbox):
    program = "def double(x): return list({str(i) for i in range(99)})"
    assert double(sandbox, program).outputs == double(sandbox, program).outputs


def test_inputs_that_one_call_changes_are_whole_for_the_next(sandbox):
    shared = [3, 1, 2]
    call = Call("def first(a):\n    a.sort()\n    return a[0], len(a), a.pop()", "first", [[shared], [shared]])
    assert sandbox.run(call).outputs == [(1, 3, 3), (1, 3, 3)]
    assert shared == [3, 1, 2]


def test_a_call_that_takes_too_long_does_not_count_for_the_others(sandbox):
    execution = sandbox.run(Call("def spin(n):\n    while n: n -= 1\n    return 1", "spin", [[5], [10**9]], [9.0, 0.2]))
    assert (execution.ending, execution.outputs) == ("timeout", [1])


def test_one_exception_ends_the_calls(sandbox):
    execution = double(sandbox, "def double(x): return 2 // (x - 2) and 2")
    assert (execution.ending, execution.outputs) == ("exception", [2])
    assert "ZeroDivisionError" in execution.detail


def test_a_missing_function_is_named(sandbox):
    assert "'double'" in double(sandbox, "def triple(x): return 3 * x").detail


def test_a_program_that_is_not_python_is_an_exception(sandbox):
    for program in ("def double(x)", "\ud800", "\0", "(" * 10_000):
        assert double(sandbox, program).ending == "exception"


def test_iterators_are_sent_where_asked(sandbox):
    program = "def double(x): return iter([x, x])"
    assert [list(output) for output in double(sandbox, program, collect="iterate").outputs] == [[1, 1], [2, 2]]
    assert double(sandbox, program).outputs != [[1, 1], [2, 2]]


def test_only_whether_there_is_a_result_is_sent_where_asked(sandbox):
    program = "import re\ndef double(x): return re.match('1', str(x))"
    assert double(sandbox, program, collect="not_none").outputs == [True, False]


def test_results_come_in_the_order_of_the_calls(sandbox):
    program = "import time\ndef double(x):\n    time.sleep(0.1 / x)\n    return 2 * x"
    executions = sandbox.run_all((Call(program, "double", [[x]]), Limits()) for x in range(1, 8))
    assert [execution.outputs for execution in executions] == [[2 * x] for x in range(1, 8)]


def test_a_program_does_not_end_with_the_evaluation_that_is_killed(sandbox, tmp_path):
    script = f"""
        from lm_eval_latentmas.scoring.sandbox import Call, Limits, Sandbox
        sandbox = Sandbox(isolation={sandbox.level.partition("+")[0]!r})
        print(sandbox.level, flush=True)
        sandbox.run(Call("def f():\\n    while True: pass", "f", [[]]), Limits(cpu_seconds=60))
    """
    environment = os.environ | {"PYTHONPATH": str(PACKAGES), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", textwrap.dedent(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as evaluation:
        evaluation.stdout.readline()
        below = set()
        while len(below) < 2:
            below = children() - {evaluation.pid}
        evaluation.kill()
    wait_until(lambda: not any(alive(process) for process in below))


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until(fact) -> None:
    reached = threading.Event()
    for _ in range(600):
        if fact():
            return
        reached.wait(0.05)
    raise AssertionError("it never came to be")


def limited(**limits: int):
    """Runs in a new process before its program: lowers what the system allows."""

    def apply() -> None:
        for name, value in limits.items():
            resource.setrlimit(getattr(resource, name), (value, value))

    return apply


def test_limits_of_the_system_that_are_lower_are_kept_and_do_no_harm():
    script = """
        from lm_eval_latentmas.scoring.sandbox import Call, Sandbox
        execution = Sandbox().run(Call("def double(x): return 2 * x", "double", [[1], [2]]))
        print(execution.ending, execution.outputs)
    """
    lower = limited(RLIMIT_STACK=8 << 20, RLIMIT_AS=3 << 30, RLIMIT_CPU=30, RLIMIT_FSIZE=1 << 20)
    environment = os.environ | {"PYTHONPATH": str(PACKAGES)}
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, preexec_fn=lower, env=environment, check=True, capture_output=True, text=True)
    assert done.stdout == "finished [2, 4]\n"


def test_the_memory_limit_is_not_above_the_system_s(monkeypatch):
    script = """
        from lm_eval_latentmas.scoring.sandbox import Call, Sandbox
        print(Sandbox().run(Call("def ask(): return len(bytearray(1 << 30))", "ask", [[]])).ending)
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    environment = os.environ | {"PYTHONPATH": str(PACKAGES)}
    lower = limited(RLIMIT_AS=1 << 30)
    done = subprocess.run(command, preexec_fn=lower, env=environment, check=True, capture_output=True, text=True)
    assert done.stdout == "memory\n"


def test_an_interpreter_that_does_not_start_is_an_error_with_the_reason(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(SandboxError, match="/nowhere/python"):
        Sandbox().run(Call("def f(): return 1", "f", [[]]))


def test_a_wall_that_stops_a_harmless_program_is_an_error_with_the_reason(monkeypatch):
    monkeypatch.setattr(pool, "visible_paths", lambda: ["/nowhere"])
    with pytest.raises(SandboxError, match="nowhere"):
        Sandbox(isolation="namespaces").run(Call("def f(): return 1", "f", [[]]))


def test_a_machine_that_is_short_of_processes_for_a_while_costs_time_only(monkeypatch):
    sandbox, real, refusals = Sandbox(), pool._converse, [1, 2]
    assert sandbox.level
    monkeypatch.setattr(pool, "_RETRIES", (0.0, 0.0))

    def converse(request):
        if refusals.pop():
            raise pool._NotStarted("Resource temporarily unavailable")
        return real(request)

    refusals.insert(0, 0)
    monkeypatch.setattr(pool, "_converse", converse)
    assert sandbox.run(Call("def f(): return 1", "f", [[]])).outputs == [1]
    refusals[:] = [1, 1, 1]
    with pytest.raises(SandboxError, match="temporarily unavailable"):
        sandbox.run(Call("def f(): return 1", "f", [[]]))


def test_an_error_of_one_run_ends_all(monkeypatch):
    sandbox = Sandbox(workers=1)
    assert sandbox.level
    monkeypatch.setattr(pool, "_RETRIES", ())
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(SandboxError):
        sandbox.run_all([(Call("def f(): return 1", "f", [[]]), Limits())] * 3)


def test_a_process_that_is_killed_by_another_signal_says_which(sandbox):
    for number, name in ((signal.SIGABRT, "SIGABRT"), (40, "signal 40")):
        program = f"import signal\ndef double(x): signal.raise_signal({number})"
        assert name in double(sandbox, program).detail


@pytest.mark.parametrize(("name", "value"), [("cpu_seconds", 0), ("memory_bytes", -1), ("idle_seconds", float("inf"))])
def test_a_limit_out_of_range_is_refused(name, value):
    with pytest.raises(ValueError, match=name):
        Limits(**{name: value})


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="workers=0"):
        Sandbox(workers=0)
    with pytest.raises(ValueError, match="namespaces"):
        Sandbox(isolation="docker")
