"""Throw garbage and nearly valid arguments at everything that is public: calls, and the command line.

Success, an `SpSampleError`, and a `MemoryError` are right; anything else is a finding, and so is a crash of the process
(--log names the case in progress). Cases are numbered from a seed on, so that each can be run again; `make fuzz` runs
them for a minute, always the same ones first. What is public and has no case fails tests/unit/test_fuzz_cases.py.

    python tests/fuzz/fuzz_entry_points.py --minutes 5 --seed 1
    python tests/fuzz/fuzz_entry_points.py --only bulk_sample --first 1234 --cases 1      # one case again
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

from maker import Maker
from public import all_cases

from spsample.errors import SpSampleError

CASES = all_cases()


def attempt(name, seed, folder):
    """Outcome of one case: "ok", the name of the exception, or "FINDING"."""
    try:
        CASES[name].run(Maker(seed), folder)
    except SpSampleError as error:
        return type(error).__name__ if str(error) else "FINDING", None
    except MemoryError:
        return "MemoryError", None
    except Exception as error:
        if "can't allocate memory" in str(error):  # torch's MemoryError is a RuntimeError
            return "MemoryError", None
        return "FINDING", error
    return "ok", None


def report(counts, findings):
    for name in CASES:
        outcomes = {outcome: n for (target, outcome), n in sorted(counts.items()) if target == name}
        if outcomes:
            print(f"{name:16} {sum(outcomes.values()):8}  " + ", ".join(f"{k} {v}" for k, v in outcomes.items()))
    print(f"{sum(counts.values())} cases, {sum(n for (_, o), n in counts.items() if o == 'FINDING')} findings")
    for place, (name, seed, trace) in findings.items():
        print(f"\n--- {name}, seed {seed}: {place}\n{trace}")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=0, help="base of the cases' seeds")
    parser.add_argument("--only", choices=sorted(CASES), help="one entry point")
    parser.add_argument("--first", type=int, help="seed of the first case, instead of one from --seed")
    parser.add_argument("--cases", type=int, default=10**12, help="at most so many")
    parser.add_argument("--gigabytes", type=int, default=8, help="address space")
    parser.add_argument("--log", type=Path, help="file that always holds the case in progress")
    return parser.parse_args()


def main():
    options = arguments()
    resource.setrlimit(resource.RLIMIT_AS, (options.gigabytes << 30,) * 2)  # a MemoryError instead of a full machine
    warnings.simplefilter("ignore")
    names = [options.only] if options.only else [name for name, case in CASES.items() for _ in range(case.weight)]
    log = options.log and options.log.absolute()
    first = options.seed * 10**9 if options.first is None else options.first
    counts, findings = Counter(), {}
    deadline = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)  # a relative path among the garbage leads there
        seed = first
        (Path(scratch) / "files").mkdir()
        while time.monotonic() < deadline and seed < first + options.cases:
            name = names[seed % len(names)]
            if log:
                log.write_text(f"{name} {seed}\n")
            outcome, error = attempt(name, seed, Path(scratch) / "files")
            counts[name, outcome] += 1
            if error is not None:
                frames = traceback.extract_tb(error.__traceback__)
                place = f"{type(error).__name__} at {frames[-1].filename}:{frames[-1].lineno}"
                findings.setdefault(place, (name, seed, "".join(traceback.format_exception(error)[-4:])))
            seed += 1
    report(counts, findings)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
