"""What processes used, told by the system: processor time, bytes written to disk, bytes over their sockets.

Where the system does not tell (not Linux), a figure is 0.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
_BYTES_IN_TCP_INFO = 120  # `tcpi_bytes_acked`, then `tcpi_bytes_received`: two 64-bit numbers


def processor_seconds(pids: Iterable[int]) -> float:
    """Of these processes, all their threads; of those that run, since their beginning."""
    return sum(_of_process(pid) for pid in pids)


def each_processor_seconds(pids: Iterable[int]) -> dict[int, float]:
    """The same, process by process. A server's processes come and go: see `grown`."""
    return {pid: _of_process(pid) for pid in pids}


def grown(before: Mapping[int, float], after: Mapping[int, float]) -> float:
    """What the processes used in between that are there at the end. One that has gone would count as less than 0."""
    return sum(seconds - before.get(pid, 0.0) for pid, seconds in after.items())


def thread_seconds(pid: int, threads: Iterable[int]) -> float:
    return sum(_scheduled(Path(f"/proc/{pid}/task/{thread}/schedstat")) for thread in threads)


def children(pid: int) -> list[int]:
    """The processes that a server started, as PostgreSQL does for each connection."""
    with suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def written_bytes(pids: Iterable[int]) -> int:
    """What they gave to the disk. A page that is written twice counts twice, as it does for the disk."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            lines = Path(f"/proc/{pid}/io").read_text().splitlines()
            total += next(int(line.split()[1]) for line in lines if line.startswith("write_bytes"))
    return total


def wire_bytes(port: int) -> int:
    """What this process sent to a port and received from it, over the connections that are open now."""
    folder = Path("/proc/self/fd")
    total = 0
    for link in folder.iterdir() if folder.exists() else ():
        with suppress(OSError):
            if str(link.readlink()).startswith("socket:"):
                total += _of_socket(int(link.name), port)
    return total


def _of_socket(number: int, port: int) -> int:
    with socket.socket(fileno=os.dup(number)) as one:
        if one.family not in (socket.AF_INET, socket.AF_INET6) or one.getpeername()[1] != port:
            return 0
        told = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_IN_TCP_INFO + 16)
        return sum(struct.unpack_from("QQ", told, _BYTES_IN_TCP_INFO))


def resident_bytes(pids: Iterable[int]) -> int:
    """Memory in use; what processes share is counted for each of them."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return total


def free_memory() -> int:
    """Bytes that may be asked for without swapping."""
    with suppress(OSError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    return 1 << 62


def _of_process(pid: int) -> float:
    with suppress(OSError):
        return sum(_scheduled(task / "schedstat") for task in Path(f"/proc/{pid}/task").iterdir())
    return 0.0


def _scheduled(file: Path) -> float:
    try:
        return int(file.read_text().split()[0]) / 1e9
    except (OSError, IndexError):
        pass
    with suppress(OSError):  # a kernel without schedstat: hundredths of a second
        fields = (file.parent / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS
    return 0.0
