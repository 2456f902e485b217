"""Programs that attack, leave, exhaust or outsit the sandbox. Each claims to define ``double(x)``; none may pass.

FAKES have no answer and try to be taken for right; REACHING give the right answer if they get what they reach for;
EXHAUSTING never come to an answer. Read with HOME_FILE, OUTSIDE and PORT defined before them.
"""

from __future__ import annotations

FAKES = {
    "leaves by sys.exit before the tests": "import sys\nsys.exit(0)",
    "leaves by os._exit before the tests": "import os\nos._exit(0)",
    "leaves by os._exit in the test": "import os\ndef double(x):\n    os._exit(0)",
    "returns what equals everything": """
class Same:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
def double(x): return Same()
""",
    "returns an int that equals everything": """
class Same(int):
    def __eq__(self, other): return True
    def __hash__(self): return 0
def double(x): return Same(1)
""",
    "patches the comparison": """
import builtins, json, math, operator
builtins.all = builtins.any = builtins.bool = lambda *a: True
operator.eq = math.isclose = lambda *a, **k: True
def double(x): return None
""",
    "writes ends of the test into every pipe": """
import os
def double(x):
    for pipe in range(3, 64):
        try: os.write(pipe, b'{"end": true}\\n{"passed": true}\\n')
        except OSError: pass
    os._exit(0)
""",
    "writes a report of its own": """
import os
def double(x):
    for pipe in range(0, 64):
        try: os.write(pipe, b'{"signal": 0, "stopped": null, "cpu_seconds": 0, "idle_seconds": 0}\\n')
        except OSError: pass
    os._exit(0)
""",
    "looks for the expected results": """
import gc, sys
def double(x):
    frame = sys._getframe()
    while frame:
        for value in list(frame.f_locals.values()) + list(frame.f_globals.values()):
            if isinstance(value, dict) and "expected" in value: return value["expected"][0]
        frame = frame.f_back
    return None
""",
    "raises what would stop its tester": "def double(x): raise KeyboardInterrupt",
    "raises in its own exception's text": """
class Nasty(Exception):
    def __str__(self): raise SystemExit
def double(x): raise Nasty
""",
    "never ends its threads": """
import threading, time
def spin():
    while True: time.sleep(0.01)
def double(x):
    threading.Thread(target=spin).start()
    return 2 * x
""",
}

REACHING = {
    "reads input": "def double(x): return int(input() or 2 * x)",
    "reads the home folder": """
import os
def double(x): return 2 * x if os.path.exists(HOME_FILE) and open(HOME_FILE).read() else None
""",
    "reads the environment": """
import os
def double(x): return 2 * x if "SECRET" in os.environ or "HOME" in os.environ else None
""",
    "reads the environment of other processes": """
import glob
def double(x):
    return 2 * x if any(b"SECRET" in open(name, "rb").read() for name in glob.glob("/proc/*/environ")) else None
""",
    "writes outside its folder": """
def double(x):
    open(OUTSIDE, "w").write("was here")
    return 2 * x
""",
    "links outside its folder": """
import os
def double(x):
    os.symlink(os.path.dirname(OUTSIDE), "out")
    open("out/written", "w").write("was here")
    return 2 * x
""",
    "removes what is outside its folder": """
import os
def double(x):
    os.remove(HOME_FILE)
    return 2 * x
""",
    "opens a socket": """
import socket
def double(x):
    socket.create_server(("127.0.0.1", 0))
    return 2 * x
""",
    "connects": """
import socket
def double(x):
    socket.create_connection(("127.0.0.1", PORT), timeout=1)
    return 2 * x
""",
    "kills its parent": """
import os, signal
def double(x):
    os.kill(os.getppid(), signal.SIGKILL)
    return 2 * x
""",
    "kills everybody": """
import os, signal
def double(x):
    os.kill(-1, signal.SIGKILL)
    return 2 * x
""",
    "runs a command": """
import subprocess
def double(x):
    subprocess.run(["/bin/sh", "-c", "sleep 1000 &"], check=True)
    return 2 * x
""",
    "leaves a process behind": """
import os, time
def double(x):
    if os.fork() == 0:
        os.setsid()
        time.sleep(1000)
    return 2 * x
""",
    "outlives its parent": """
import os, signal
def double(x):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        if os.fork() == 0:
            while True: pass
        os._exit(0)
    return 2 * x
""",
    "writes a file of a gigabyte": """
def double(x):
    with open("big", "wb") as file:
        for _ in range(1024): file.write(bytes(1 << 20))
    return 2 * x
""",
}

EXHAUSTING = {
    "loops forever": "def double(x):\n    while True: pass",
    "loops forever in C": "def double(x):\n    return sum(iter(int, 1))",
    "loops forever at once": "while True: pass",
    "catches everything in a loop": """
def double(x):
    while True:
        try:
            while True: pass
        except BaseException: pass
""",
    "refuses every signal": """
import signal
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
def double(x):
    while True: pass
""",
    "sleeps": "import time\ndef double(x):\n    time.sleep(1e6)",
    "stops itself": "import os, signal\ndef double(x):\n    os.kill(os.getpid(), signal.SIGSTOP)",
    "waits for its own thread": """
import threading
def double(x):
    thread = threading.Thread(target=threading.Event().wait)
    thread.start()
    thread.join()
""",
    "forks as fast as it can": """
import os
def double(x):
    while True:
        try: os.fork()
        except OSError: pass
""",
    "starts threads as fast as it can": """
import threading, time
def double(x):
    while True: threading.Thread(target=time.sleep, args=(1e6,), daemon=True).start()
""",
    "makes a list of 20 GB": "def double(x):\n    return len([0] * (20 * 2**30 // 8)) and 2 * x",
    "makes a list that grows": "def double(x):\n    a = [0]\n    while True: a = a + a",
    "prints without end": "def double(x):\n    while True: print('x' * (1 << 20))",
    "returns a gigabyte": "def double(x):\n    return 'x' * (1 << 30)",
    "returns itself inside itself": "def double(x):\n    a = []\n    a.append(a)\n    return a",
    "returns without end": """
class Endless(list):
    def __iter__(self):
        while True: yield 0
def double(x): return Endless()
""",
    "recurses without end": """
import sys
sys.setrecursionlimit(10**9)
def double(x): return double(x)
""",
    "powers without end": "def double(x):\n    return 9 ** 9 ** 9 ** 9",
}

ALL = FAKES | REACHING | EXHAUSTING
