"""Another process that reads a store all the time: two readers take turns, so that there is never a moment without one.

usage: python reader.py FILE     (says "reading", and goes on until its standard input ends)
"""

import select
import sys

import apsw


def run(path: str) -> None:
    readers = [apsw.Connection(path), apsw.Connection(path)]
    for reader in readers:
        reader.set_busy_timeout(10_000)
    begin(readers[0])
    sys.stdout.write("reading\n")
    sys.stdout.flush()
    turn = 1
    while not select.select([sys.stdin], [], [], 0.002)[0]:
        begin(readers[turn])
        turn = 1 - turn
        readers[turn].execute("COMMIT")


def begin(reader: apsw.Connection) -> None:
    reader.execute("BEGIN; SELECT count(*) FROM queues").fetchall()


if __name__ == "__main__":
    run(sys.argv[1])
