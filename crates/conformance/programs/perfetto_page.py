"""Opens a timeline in Perfetto's own page, in a real browser, and prints what the page and its trace processor make of it.

Arguments: the folder of the page, the browser, the timeline, and names that the page must show, first that of a process.
The page is served on the loopback interface, and the browser is led over two pipes (Chrome's DevTools protocol).
"""

import functools
import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading
import time

page, browser, timeline, *names = sys.argv[1:]

# The browser reads commands from 3 and answers to 4.
COMMANDS, ANSWERS = 3, 4

# Each query answers with one value.
QUERIES = {
    "problems": "select group_concat(name || ' ' || value) from stats where severity != 'info' and value != 0",
    "slices": "select count(*) from slice",
    "endless": "select count(*) from slice where dur < 0",
    "flows": "select count(*) from flow",
    "processes": "select group_concat(name || ' ' || pid) from process where pid != 0",
    "units": "select group_concat(distinct name || ': ' || unit) from counter_track",
}

# The names that it does not show yet. It draws its tracks after it has read the file.
MISSING = """(() => {
    const text = document.body ? document.body.innerText : "";
    if (text.includes(NAMES[0])) app.commands.runCommand("dev.perfetto.ExpandAllGroups");
    return NAMES.filter(name => !text.includes(name)).join();
})()"""
# How long it may take to show them, in seconds.
PATIENCE = 30
ASKS = """app.trace.engine.query(QUERY).then(result => {
    const row = result.iter({});
    const value = row.get(result.columns()[0]);
    return typeof value == "bigint" ? Number(value) : value;
})"""


class Refused(Exception):
    """The browser does not do something."""


class Pages(http.server.SimpleHTTPRequestHandler):
    """The page, and the timeline beside it."""

    def translate_path(self, path):
        return timeline if path == "/timeline" else super().translate_path(path)

    def log_message(self, *_):
        pass


class Browser:
    """A browser that is led over pipes."""

    def __init__(self, folder):
        from_us, to_us = os.pipe(), os.pipe()

        def give():
            # In two steps, because a pipe may have one of the numbers.
            high = [os.dup2(end, end + 100) for end in (from_us[0], to_us[1])]
            for end, number in zip(high, (COMMANDS, ANSWERS)):
                os.dup2(end, number, inheritable=True)

        # Its own walls need rights that root in a container does not have, and the page is no stranger's.
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--window-size=1400,2000"]
        self.process = subprocess.Popen(
            [browser, *options, f"--user-data-dir={folder}", "about:blank"],
            preexec_fn=give,
            close_fds=False,
            env={**os.environ, "HOME": folder},
            stderr=subprocess.DEVNULL,
        )
        os.close(from_us[0])
        os.close(to_us[1])
        self.commands, self.answers = os.fdopen(from_us[1], "wb", 0), os.fdopen(to_us[0], "rb")
        self.number, self.read, self.session = 0, b"", {}

    def answer(self):
        """The next thing that it says."""
        while b"\0" not in self.read:
            more = os.read(self.answers.fileno(), 1 << 16)
            if not more:
                sys.exit("the browser has gone")
            self.read += more
        said, self.read = self.read.split(b"\0", 1)
        return json.loads(said)

    def do(self, method, **parameters):
        """Does something, and waits for the answer."""
        self.number += 1
        command = {"id": self.number, "method": method, "params": parameters, **self.session}
        self.commands.write(json.dumps(command).encode() + b"\0")
        while True:
            said = self.answer()
            if said.get("id") == self.number and "error" in said:
                raise Refused(said["error"]["message"])
            if said.get("id") == self.number:
                return said["result"]

    def open(self, address):
        """Opens a page, and goes on with it."""
        target = self.do("Target.createTarget", url=address)["targetId"]
        self.session = {"sessionId": self.do("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}

    def value(self, expression):
        """What an expression in the page becomes. The page loads itself once more at first."""
        try:
            said = self.do("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        except Refused as it:
            return self.value(expression) if "context" in str(it) else sys.exit(f"{expression}: {it}")
        return said["result"].get("value") if "exceptionDetails" not in said else sys.exit(f"{expression}: {said}")

    def end(self):
        """It keeps nothing that is worth a slower end."""
        self.process.kill()
        self.process.wait()


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Pages, directory=page))
threading.Thread(target=server.serve_forever, daemon=True).start()
root = f"http://127.0.0.1:{server.server_port}/"
with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
    led = Browser(folder)
    try:
        led.open(f"{root}#!/?url={root}timeline")
        until = time.monotonic() + PATIENCE
        while (missing := led.value(MISSING.replace("NAMES", json.dumps(names)))) and time.monotonic() < until:
            time.sleep(0.1)
        answers = {key: led.value(ASKS.replace("QUERY", json.dumps(query))) for key, query in QUERIES.items()}
        print(json.dumps({"missing": missing, **answers}))
    finally:
        led.end()
