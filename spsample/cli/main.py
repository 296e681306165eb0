"""Entry point of the command ``spsample``.

The command sets the environment variable ``OMP_WAIT_POLICY`` to ``passive`` unless the user has set it, before torch
is loaded: its OpenMP threads then sleep between two parallel loops instead of spinning, which on a machine that others
use too would take processor time from other programs. The threads of the compiled core sleep anyway, and
``import spsample`` sets nothing.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import spsample
from spsample.cli.cache_report import cache_report
from spsample.cli.config import REMOVED
from spsample.cli.convert import convert
from spsample.cli.doctor import doctor
from spsample.cli.info import info
from spsample.cli.launch import launch
from spsample.cli.partition import partition
from spsample.cli.plan import plan
from spsample.cli.precompute import precompute
from spsample.cli.ranks import reports_error
from spsample.cli.reorder import reorder
from spsample.cli.resuming import STOPPED
from spsample.cli.sample import sample
from spsample.cli.screen import print_message
from spsample.cli.train import train
from spsample.comm.launch import detect
from spsample.errors import CapacityError, InputError, SpSampleError, require_module


class _CommandGroup(TyperGroup):
    """A group of commands that ends with one line and exit code 2 on an error of the project's own, or the system's.

    The system's: no such file, no space left, not permitted. A closed pipe is left to click, which ends quietly. After
    Ctrl-C the exit code is 130.
    """

    def main(self, *arguments: Any, **options: Any) -> Any:
        """Parse and run; a rank takes its terminal for one that prints line after line.

        mpirun gives each rank a terminal of its own, whose lines may go to a file: escape codes would be in it.
        """
        if detect().launcher:
            os.environ["TERM"] = "dumb"
        return super().main(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        form = warnings.formatwarning
        warnings.formatwarning = lambda message, *_, **__: f"spsample: warning: {message}\n"  # without its place
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise
        except KeyboardInterrupt:
            raise typer.Exit(STOPPED) from None
        except Exception as failure:
            name = str(ctx.invoked_subcommand)
            error = _refused(name, failure)
            if not isinstance(error, (SpSampleError, OSError)):
                raise
            params: Any = self.commands[name].params if name in self.commands else ()
            launch, text = detect(), f"error: {as_typed(error, params)}"
            if launch.size == 1:
                print_message(text)
            elif reports_error(error, launch.rank):
                print_message(f"rank {launch.rank}: {text}")
            raise typer.Exit(2) from None
        finally:
            warnings.formatwarning = form


def _refused(command: str, error: Exception) -> Exception:
    """The error of an option that a command does not have, with what to do if it once had it; others as they are."""
    flag = str(getattr(error, "option_name", ""))
    advice = REMOVED.get(command, {}).get(flag.removeprefix("--").replace("-", "_"))
    return error if advice is None else InputError(argument=flag, given="a removed option", expected=advice)


_BY_ANOTHER_NAME = {"parts": "partition", "part": "parts"}
"""Arguments in Python, and the option that gives each to commands, where that has another name."""


def as_typed(error: BaseException, params: Iterable[Any]) -> BaseException:
    """Return an error about an argument as one about the option of a command that it came from.

    Parameters
    ----------
    error
        Any error.
    params
        Those of the command.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> rate = SimpleNamespace(name="learning_rate", opts=["--lr"])
    >>> error = InputError(argument="learning_rate", given="-1.0", expected="a positive number")
    >>> print(as_typed(error, [rate]))
    --lr: got -1.0; expected a positive number
    """
    if not isinstance(error, (InputError, CapacityError)):
        return error
    flags = {param.name: param.opts[0] for param in params}
    flags |= {flag.removeprefix("--").replace("-", "_"): flag for flag in flags.values()}
    flags |= {argument: flags[name] for argument, name in _BY_ANOTHER_NAME.items() if name in flags}
    name, bracket, position = error.argument.partition("[")
    flag = flags.get(name, "")
    if not flag.startswith("--"):
        return error
    argument = flag + bracket + position
    return type(error)(argument=argument, given=error.given, expected=error.expected, hint=error.hint)


def bench(ctx: typer.Context) -> None:
    """Measure: sampling, loaders, epochs, traffic, beside other libraries; reports, comparisons, figures of papers.

    `spsample bench --help` lists the cases, `spsample bench CASE --help` their options.
    """
    for package in ("click", "pandas", "plotly"):
        require_module(package, needed_for="spsample bench", extra="bench")
    from spsample.bench.command import bench as command

    command.main(ctx.args, prog_name="spsample bench")


app = typer.Typer(
    cls=_CommandGroup,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Bulk minibatch sampling for graph neural networks as sparse matrix algebra.",
)
for command in (train, convert, info, doctor, sample, plan, cache_report, partition, precompute, reorder):
    app.command(command.__name__.replace("_", "-"))(command)
app.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []})(bench)
app.command(context_settings={"allow_interspersed_args": False})(launch)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"spsample {spsample.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Take the options that come before the command, and settle how waiting threads behave."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


if __name__ == "__main__":
    app()
