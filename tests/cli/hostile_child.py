"""Runs commands one after the other on the terminal that it was given, each on a fresh copy of the hostile store.

`python hostile_child.py FOLDER`: FOLDER has `commands.json`, a list of lists of words, and the store. After each
command a line says which one it was and how it ended.
"""

import asyncio
import json
import os
import shutil
import signal
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.error import URLError
from urllib.parse import quote
from urllib.request import urlopen

from hostile_store import HOSTILE

from accoda import App
from accoda.cli.commands import accoda
from accoda.model import Bury
from accoda.runtime import forced_end

forced_end.end_within = lambda *_: None  # a command that ends its process within seconds would end those after it

folder = Path(sys.argv[1])
URL = f"sqlite:///{folder}/work/accoda.db"


def run(words: list[str]) -> object:
    try:
        accoda.main(args=words, prog_name="accoda")
    except SystemExit as ended:
        return ended.code
    return "did not exit"


def fresh() -> None:
    shutil.rmtree(folder / "work", ignore_errors=True)
    shutil.copytree(folder / "store", folder / "work")
    os.chdir(folder / "work")
    for name in ("hostile_app", "hostile_import"):
        sys.modules.pop(name, None)


def bury_next() -> None:
    """What a worker elsewhere does with the job that a command waits for."""

    async def work() -> None:
        async with App(URL) as app:
            while not (taken := await app.storage.take("waits", 1)):
                await app.storage.wait(["waits"], 1.0)
            await app.storage.settle([Bury(taken[0].lease, HOSTILE)])

    asyncio.run(work())


class Receiver(BaseHTTPRequestHandler):
    """Answers one webhook."""

    def do_POST(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(HOSTILE.encode())

    def log_message(self, *args: object) -> None:
        pass


def end_service(port: int) -> None:
    """Ask the service something hostile, and end it."""
    while True:
        try:
            urlopen(f"http://127.0.0.1:{port}/{quote(HOSTILE)}", timeout=5)
        except URLError as error:
            if hasattr(error, "code"):  # it has answered
                break
        threading.Event().wait(0.05)
    os.kill(os.getpid(), signal.SIGTERM)


def counterpart(words: list[str]) -> threading.Thread | None:
    """What a command needs beside it: a client, a worker or a receiver."""
    if words == ["serve", "--no-auth"]:
        with socket.create_server(("127.0.0.1", 0)) as found:
            port = found.getsockname()[1]
        words += ["--port", str(port)]
        return threading.Thread(target=end_service, args=(port,))
    if words == ["webhooks", "test", "RECEIVER"]:
        server = HTTPServer(("127.0.0.1", 0), Receiver)
        words[2] = f"http://127.0.0.1:{server.server_port}/"
        return threading.Thread(target=lambda: (server.handle_request(), server.server_close()))
    return threading.Thread(target=bury_next) if "--wait" in words else None


def main() -> None:
    for number, words in enumerate(json.loads((folder / "commands.json").read_text())):
        fresh()
        beside = counterpart(words)
        if beside is not None:
            beside.start()
        code = run(words)
        if beside is not None:
            beside.join()
        sys.stdout.flush()
        sys.stderr.flush()
        os.write(1, f"\n<<{number} {code}>>\n".encode())


main()
