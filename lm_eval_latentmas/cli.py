"""The command `latentmas-obf`: one subcommand a module, and only the one that was asked for is imported.

Such a module has `add_arguments(parser)` and `run(arguments) -> int`, which returns the exit status.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from lm_eval_latentmas import __version__
from lm_eval_latentmas.naming import nearest

#: subcommand -> its module and what it does
COMMANDS = {
    "compressors": ("lm_eval_latentmas.listing", "list presets and the stages of compositions"),
    "doctor": ("lm_eval_latentmas.doctor", "check this machine, and say what to do"),
    "models": ("lm_eval_latentmas.listing", "list families of models that are supported"),
    "tasks": ("lm_eval_latentmas.listing", "list this package's tasks and groups"),
    "compare": ("lm_eval_latentmas.grid.compare", "say which compressor is better, and how surely"),
    "sweep": ("lm_eval_latentmas.grid.sweep", "run an argument over a list of values"),
    "fidelity": ("lm_eval_latentmas.grid.fidelity_command", "measure how close each compressor stays to full"),
    "report": ("lm_eval_latentmas.report.commands.report", "make tables, pictures and a page of finished results"),
    "score": ("lm_eval_latentmas.scoring.command", "grade saved answers again, without a model"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; wrong settings and unreadable files end in one line and status 2."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    asked = next((word for word in given if not word.startswith("-")), None)
    parser = argparse.ArgumentParser(prog="latentmas-obf", description="Tools around the latent relay of lm-eval runs.")
    parser.add_argument("--version", action="version", version=f"lm-eval-latentmas {__version__}")
    if asked is not None and asked not in COMMANDS:
        parser.error(f"unknown command {nearest(asked, COMMANDS)}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (module, purpose) in COMMANDS.items():
        command = commands.add_parser(name, help=purpose, formatter_class=argparse.RawDescriptionHelpFormatter)
        if name == asked:
            importlib.import_module(module).add_arguments(command)
    parsed = parser.parse_args(given)
    try:
        return importlib.import_module(COMMANDS[parsed.command][0]).run(parsed)
    except (ValueError, ImportError, OSError) as error:
        print(f"latentmas-obf {parsed.command}: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
