"""Every key in Redis, named once.

A *shard* is what one script can reach: the whole store on a single server or Sentinel set, one family of queues in a
Cluster (`deals` and `deals.deliver` share the hash tag `{deals}`), or one partition of such a family (`{deals/2}`).

    <prefix>:layout                     the version of this layout
    <prefix>:shards                     Cluster: tag -> number, the last three digits of every id of that shard

    <root> is <prefix>, in a Cluster <prefix>:{tag}
    <root>:ids                          the last sequence number, and the shard's number
    <root>:queues                       the names of its queues
    <root>:calls:<client>               calls whose answers a client has not seen yet (see lua/parts/once.lua)
    <root>:outbox                       Cluster: jobs on their way to other shards
    <root>:moved:<run>                  Cluster: a mark that a run of such jobs has arrived

    <base> is <prefix>:{tag}:<queue>; every key of a queue begins with it, but it is no key itself
    <base>:ready  <base>:delayed        waiting jobs (lua/parts/shelf.lua)
    <base>:taken  :ends  :batches       running jobs (lua/parts/lease.lua)
    <base>:dead   :done  :kept          ended jobs (lua/parts/kept.lua)
    <base>:dead:at  <base>:done:at      the same in the order of their ends
    <base>:keys                         key -> id of the job that holds it
    <base>:waiters:<id>                 list of those who wait for a job
    <base>:notes  :afresh               what is known of jobs that have run (lua/parts/notes.lua)
    <base>:meta                         counters, and the pause
    <base>:wake                         not a key but a channel: something may be takable

    <prefix>:{docs}:values :names :ends documents (lua/parts/document.lua); in a Cluster {docs/0} ... {docs/15}

A script is told <root>:queues, which exists, and <base>, which does not. So while a Cluster moves the slot to another
node, key by key, Redis finds some of them missing on either node and answers TRYAGAIN: no script ever runs where half
of its queue is elsewhere.
"""

from __future__ import annotations

from binascii import crc_hqx

from msgspec import Struct

SLOTS = 16384
CLUSTER_STEP = 1000  # ids of a Cluster are sequence * 1000 + the shard's number
CLUSTER_WIDTH = 11  # leading digits of such an id that name its bucket; of others 14: a hundred ids share one
DOCUMENT_SHARDS = 16  # of a Cluster
LAST_ID = (1 << 53) - 1


def slot_of(tag: str) -> int:
    """The slot of every key with this hash tag."""
    return crc_hqx(tag.encode(), 0) % SLOTS


def family(queue: str) -> str:
    """The part of a queue's name before the first dot."""
    return queue.partition(".")[0]


class Shard(Struct, frozen=True, cache_hash=True):
    """What one script can reach. `width` is how many leading digits of an id name its bucket."""

    root: str
    slot: int
    partition: str = ""
    number: int = 0
    step: int = 1
    width: int = 14

    @property
    def tag(self) -> str:
        """What is hashed, in a Cluster."""
        return self.root[self.root.rindex("{") + 1 : -1]

    @property
    def ids(self) -> str:
        return f"{self.root}:ids"

    @property
    def queues(self) -> str:
        return f"{self.root}:queues"

    @property
    def outbox(self) -> str:
        return f"{self.root}:outbox"

    def moved(self, run: str) -> str:
        return f"{self.root}:moved:{run}"


class Keys:
    """Names under one prefix."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.layout = f"{prefix}:layout"
        self.shards = f"{prefix}:shards"
        self.single = Shard(prefix, slot_of(prefix))
        self._bases: dict[tuple[str, str], str] = {}
        self._lines: dict[tuple[str, str], tuple[str, str, str]] = {}

    def base(self, queue: str, partition: str = "") -> str:
        base = self._bases.get((queue, partition))
        if base is None:
            base = self._bases[queue, partition] = f"{self.prefix}:{{{family(queue)}{partition}}}:{queue}"
        return base

    def line(self, shard: Shard, queue: str) -> tuple[str, str, str]:
        """What those who line up in a queue need: its shard's `ids` and `queues`, and its base."""
        line = self._lines.get((shard.root, queue))
        if line is None:
            line = self._lines[shard.root, queue] = (shard.ids, shard.queues, self.base(queue, shard.partition))
        return line

    def cluster_shard(self, tag: str, number: int) -> Shard:
        _, slash, partition = tag.partition("/")
        return Shard(f"{self.prefix}:{{{tag}}}", slot_of(tag), slash + partition, number, CLUSTER_STEP, CLUSTER_WIDTH)

    def document_shards(self, cluster: bool) -> list[Shard]:
        tags = [f"docs/{n}" for n in range(DOCUMENT_SHARDS)] if cluster else ["docs"]
        return [Shard(f"{self.prefix}:{{{tag}}}", slot_of(tag)) for tag in tags]
