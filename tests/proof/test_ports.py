"""Ports for test servers: of several test processes at a time no two get the same one."""

import random
import subprocess
import sys

import pytest
from proof.servers import process

ASK = "from proof.servers.process import free_port; print(free_port(), flush=True); input()"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere chance has to do")
def test_a_port_is_given_once_until_it_is_left_even_if_no_server_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    other = subprocess.Popen([sys.executable, "-c", ASK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdin is not None
    assert other.stdout is not None
    with other:
        theirs = int(other.stdout.readline())
        mine = process.free_port()
        offers = iter([theirs, mine, mine + 1, mine + 2, mine + 3])
        monkeypatch.setattr(random.SystemRandom, "randrange", lambda *_: next(offers))
        later = process.free_port()
        assert later not in (theirs, mine)
        process.leave_port(mine)
        offers = iter([mine, later, theirs])
        assert process.free_port() == mine
        other.stdin.write("\n")
    for port in (mine, later):
        process.leave_port(port)
    offers = iter([theirs])
    assert process.free_port() == theirs, "it is free again when the process that had it has ended"
    process.leave_port(theirs)
