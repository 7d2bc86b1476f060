"""Runs tests of rdma-core one by one, and writes down how each ended.

    run_tests.py FOLDER DEVICE list                  prints the names of all tests
    run_tests.py FOLDER DEVICE RESULTS SECONDS NAME...

FOLDER holds the package `tests`. DEVICE may be followed by a colon and the index of the GID to use. A
line is added to the file RESULTS when a test begins and when it has ended, so that one that takes its
process along is known. A test may take SECONDS.
"""

import json
import os
import signal
import sys
import traceback
import unittest

folder, device, results, *rest = sys.argv[1:]
sys.path[:0] = [folder, os.path.join(folder, "tests")]
device, _, gid = device.partition(":")
sys.argv[1:] = ["--dev", device] + (["--gid", gid] if gid else [])

from args_parser import parser  # noqa: E402

parser.parse_args()
import tests  # noqa: E402


def names(suite):
    """The names of all tests of a suite."""
    if isinstance(suite, unittest.TestCase):
        return [suite.id()]
    return [name for part in suite for name in names(part)]


def text(error):
    """An exception as Python prints it."""
    return "".join(traceback.format_exception(*error))


class Outcome(unittest.TestResult):
    """How one test ended: the worst of what is reported about it."""

    ORDER = ["pass", "skip", "fail", "error"]

    def __init__(self):
        super().__init__()
        self.outcome, self.why = None, ""

    def note(self, outcome, why=""):
        if self.outcome is None or self.ORDER.index(outcome) > self.ORDER.index(self.outcome):
            self.outcome, self.why = outcome, why

    def addSuccess(self, test):
        self.note("pass")

    def addSkip(self, test, reason):
        self.note("skip", reason)

    def addFailure(self, test, error):
        self.note("fail", text(error))

    def addError(self, test, error):
        self.note("error", text(error))

    def addSubTest(self, test, part, error):
        if error is not None:
            failed = issubclass(error[0], test.failureException)
            self.note("fail" if failed else "error", text(error))

    def addExpectedFailure(self, test, error):
        self.note("pass")

    def addUnexpectedSuccess(self, test):
        self.note("fail", "it was expected to fail")


def run(name, seconds, write):
    """Runs one test."""
    write(test=name, outcome="begun", why="")
    # Its default action ends the process wherever it is, also inside the library.
    signal.alarm(seconds)
    result = Outcome()
    unittest.defaultTestLoader.loadTestsFromName(name).run(result)
    signal.alarm(0)
    write(test=name, outcome=result.outcome or "error", why=result.why)


if results == "list":
    for module in tests.__test_modules__:
        print("\n".join(names(unittest.defaultTestLoader.loadTestsFromModule(module))))
else:
    limit, *chosen = rest
    # What the tests print goes beside the results: a pipe would be held open by their children, which
    # have the same limit as they.
    for output in (1, 2):
        os.dup2(os.open(results + ".log", os.O_WRONLY | os.O_CREAT | os.O_APPEND), output)
    os.register_at_fork(after_in_child=lambda: signal.alarm(int(limit)))
    with open(results, "a") as file:
        for name in chosen:
            run(name, int(limit), lambda **line: print(json.dumps(line), file=file, flush=True))
