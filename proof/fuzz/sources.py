"""What comes from files, the environment, the command line and URLs."""

from __future__ import annotations

import contextlib
import io
import struct
from collections.abc import Callable

from accoda.errors import InvalidInput, MissingDriver, SettingsError
from accoda.limits import environment_problems
from accoda.settings.files import SettingsFile
from accoda.settings.variables import Variables, read_overrides
from proof.fuzz.target import Target

_SERVICE = ("accoda",)
_NAMES = b"worker queue emails batch_size visibility_timeout max_processors accoda default".split()
_VALUES = [*b'10 -1 1e309 nan "30s" none true 2030-01-01 0x10'.split(), b"9" * 40, b"\xff\xfe", b"\x00"]
_WORDS = [*_NAMES, *_VALUES]
_TOML = [*b'[ ] [[ . = """ \' { } # \\u0000'.split(), b"\n", b"[a.b.c]\n", b"a.a.a.a=1\n"]
_YAML = [
    *b"&a *a !!binary ? --- ... { } [ ] <<: !<tag:yaml.org,2002:str> !!python/object/apply:os.system".split(),
    *(b": ", b"- ", b"|\n", b">\n", b"%YAML 1.1\n", b"---\n", b"<<: *a", b"\t", b"\n  "),
]
_URL = [
    *b":// @ : / ? # [ ] [::1] %00 %ff & = , 99999 -1 memory sqlite redis rediss tarantool postgresql".split(),
    *b"redis+sentinel redis+cluster durability= prefix= timeout=nan partitions= schema= pool=\xc2\xb2 \xff".split(),
    *(b" ", b"\n", "\u2100".encode()),
]
_ARGUMENTS = [
    *(
        b"\x00%b\x00" % word
        for word in b"-q -c --grace --processes --metrics-port --name --settings --log-level --".split()
    ),
    *b"-1 nan inf 1e999 = , - \xff".split(),
    *(b"\x00--burst=x\x00", b"\x00-", b"9" * 30),
]

_IN_TOML = b"""
[worker.queue.emails]
batch_size = 10
visibility_timeout = "30s"
[accoda.worker.queue.default]
grace = 5
"""
_IN_YAML = b"""
worker:
  queue:
    emails:
      batch_size: 10
      timeout: none
accoda: {worker: {queue: {a: {grace: 5s}}}}
"""
_IN_CONF = b"""# a module
/accoda/worker/queue/emails/batch_size 10
/worker/queue/a:JSON {"batch_size": 5}
#EOF
"""
_URLS = [
    b"redis://user:pw@host:6379/0?prefix=a&wait_replicas=1",
    b"redis+sentinel://a:1,b:2/mymaster?tls=false",
    b"redis+cluster://a:1,b:2?partitions=4",
    b"sqlite:///jobs.db?durability=full",
    b"tarantool://u:p@host:3301",
    b"postgresql://u:p@host:5432/db?schema=accoda&pool=5&sslmode=require",
    b"memory://",
]


def targets() -> list[Target]:
    found = [*_settings(), Target("url", _url, _URLS, (InvalidInput, MissingDriver), _URL)]
    with contextlib.suppress(ModuleNotFoundError):
        found.append(_command_line())
    return found


def _settings() -> list[Target]:
    in_cdb = [*_WORDS, b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"j{", b"s"]
    in_conf = [*_WORDS, b":JSON", b"\n#EOF", b"{", b"[", b"\n/", b" "]
    variables = [b"EMAILS_BATCH_SIZE\x0010", b"A_QUEUE_B_TIMEOUT\x00none"]
    mine = (SettingsError,)
    return [
        Target("settings: toml", _file(".toml"), [_IN_TOML], mine, [*_WORDS, *_TOML]),
        Target("settings: yaml", _file(".yaml"), [_IN_YAML, _aliases()], mine, [*_WORDS, *_YAML]),
        Target("settings: cdb", _file(".cdb"), [_cdb()], mine, in_cdb, 0.5),
        Target("settings: conf", _file(".conf"), [_IN_CONF], mine, in_conf),
        Target("settings: environment", _environment, variables, mine, _WORDS),
        Target("settings: overrides", _overrides, [b"worker/queue/emails/batch_size\x005"], mine, [*_WORDS, b"/"]),
        Target("limits: environment", _limits, [b"1048576", b"512KiB", b"1 m"], (), _VALUES, 0.5),
    ]


def _file(suffix: str) -> Callable[[bytes], object]:
    return lambda data: SettingsFile(f"file{suffix}", _SERVICE)._parse(data)


def _aliases() -> bytes:
    """A few lines that stand for a billion values."""
    lines = [b"a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [b"a%d: &a%d [%s]" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 9)) for n in range(1, 10)]
    return b"\n".join(lines)


def _cdb() -> bytes:
    """A constant database of two records, as small as one can be. One slot for each: only their number is read."""
    records = b""
    for key, value in ((b"/accoda/worker/queue/emails/batch_size", b"s10"), (b"/worker/queue/a", b'j{"grace": 5}')):
        records += struct.pack("<II", len(key), len(value)) + key + value
    table = 2048 + len(records)
    return struct.pack("<II", table, 2) + struct.pack("<II", table, 0) * 255 + records + bytes(16)


def _environment(data: bytes) -> object:
    name, _, value = data.decode("utf-8", "surrogateescape").partition("\0")
    return Variables({f"ACCODA_WORKER_QUEUE_{name}": value}).named()


def _overrides(data: bytes) -> object:
    name, _, value = data.decode("utf-8", "surrogateescape").partition("\0")
    return read_overrides({name: value}, "default", _SERVICE)


def _limits(data: bytes) -> object:
    return environment_problems({"ACCODA_MAX_PAYLOAD": data.decode("utf-8", "surrogateescape")})


def _url(data: bytes) -> object:
    """As far as a URL can be read without a server."""
    from accoda.storage.open import read_url

    parts = read_url(data.decode("utf-8", "surrogateescape"))
    match parts.scheme:
        case "sqlite":
            from accoda.storage.common.urls import options
            from accoda.storage.sqlite.connection import DURABILITY
            from accoda.storage.sqlite.open import file_of

            return file_of(parts), options(parts, durability=DURABILITY)
        case "tarantool":
            from accoda.storage.tarantool.address import address_of

            return address_of(parts)
        case "postgresql":
            from accoda.storage.postgres.open import place_of

            return place_of(parts)
        case "memory":
            return parts
        case _:
            from accoda.storage.redis import open

            return open.read_options(parts), open.place_of(parts)


def _command_line() -> Target:
    import click

    from accoda.cli.worker import _options, worker

    def parse(data: bytes) -> object:
        words = [word.decode("utf-8", "surrogateescape") for word in data.split(b"\x00")]
        with contextlib.redirect_stdout(io.StringIO()), worker.make_context("worker", words) as context:
            return _options(context.params)

    errors = (click.ClickException, click.exceptions.Exit)
    seeds = [b"shop:app -q a,b -c 4 --grace 5", b"shop:app --burst --metrics-port 9000 --log-level INFO"]
    return Target("command line", parse, [seed.replace(b" ", b"\x00") for seed in seeds], errors, _ARGUMENTS, 0.1)
