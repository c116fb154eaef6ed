"""Every key in Redis, named once.

A *shard* is what one script can reach: the whole store on a single server or Sentinel set, one family of queues in a
Cluster (`deals` and `deals.deliver` share the hash tag `{deals}`), or one partition of such a family (`{deals/2}`).

    <prefix>:layout                     the version of this layout
    <prefix>:shards                     Cluster: tag -> number, the last three digits of every id of that shard

    <root> is <prefix>, in a Cluster <prefix>:{tag}
    <root>:ids                          the last sequence number, and the shard's number
    <root>:queues                       the names of its queues
    <root>:calls:<client>               calls whose answers a client has not seen yet (see lua/parts/once.lua)
    <root>:groups                       the queues that share limits of lanes (lua/parts/rules.lua)
    <root>:outbox                       Cluster: jobs and reports on their way to other shards
    <root>:moved:<run>                  Cluster: a mark that a run of such jobs has arrived

    <base> is <prefix>:<queue>, in a Cluster <prefix>:{tag}:<queue>; every key of a queue begins with it. None is one of
    those above, whatever the queue is called: a client's name is ten hexadecimal digits
    <base>:ready :delayed :held :dead :done :cancelled
                                        jobs that are not taken, each with its index by id (lua/parts/placed.lua)
    <base>:taken :ends :batches         running jobs (lua/parts/lease.lua)
    <base>:kept                         until when done and cancelled jobs are kept (lua/parts/due.lua)
    <base>:keys                         key -> id of the job that holds it
    <base>:waiters:<id>                 list of the waiters of a job
    <base>:meta                         counters, the pause, and the rules for lanes
    <base>:rules                        the rules of single lanes (lua/parts/rules.lua)
    <base>:lanes :turns :ready:of:<lane> :held:of:<lane>
                                        jobs that have lanes (lua/parts/lane.lua)
    <base>:wake                         not a key but a channel: something may be takable

    <prefix>:{docs}:values :names :ends documents (lua/parts/document.lua); in a Cluster {docs/0} ... {docs/15}

In a Cluster, a script is told <root>:queues, which exists, and <base>, which does not. So while a slot is moved to
another node, key by key, Redis finds some of them missing on either node and answers TRYAGAIN: no script ever runs
where half of its queue is elsewhere.
"""

from __future__ import annotations

from binascii import crc_hqx

from msgspec import Struct, structs

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
    ids: str
    queues: str
    outbox: str
    partition: str = ""
    number: int = 0
    step: int = 1
    width: int = 14

    @property
    def tag(self) -> str:
        """What is hashed, in a Cluster."""
        return self.root[self.root.rindex("{") + 1 : -1]

    def moved(self, run: str) -> str:
        return f"{self.root}:moved:{run}"


def shard_at(root: str, slot: int) -> Shard:
    return Shard(root, slot, f"{root}:ids", f"{root}:queues", f"{root}:outbox")


class _Bases(dict[tuple[str, str], str]):
    """The base of each queue and partition, made when it is first asked for."""

    def __init__(self, prefix: str, cluster: bool) -> None:
        self._prefix = prefix
        self._cluster = cluster

    def __missing__(self, place: tuple[str, str]) -> str:
        queue, partition = place
        tag = f"{{{family(queue)}{partition}}}:" if self._cluster else ""
        base = self[place] = f"{self._prefix}:{tag}{queue}"
        return base


class Keys:
    """Names under one prefix."""

    def __init__(self, prefix: str, cluster: bool = False) -> None:
        self.prefix = prefix
        self.layout = f"{prefix}:layout"
        self.shards = f"{prefix}:shards"
        self.single = shard_at(prefix, slot_of(prefix))
        self.bases = _Bases(prefix, cluster)

    def cluster_shard(self, tag: str, number: int = 0) -> Shard:
        _, slash, partition = tag.partition("/")
        place = {"partition": slash + partition, "number": number, "step": CLUSTER_STEP, "width": CLUSTER_WIDTH}
        return structs.replace(shard_at(f"{self.prefix}:{{{tag}}}", slot_of(tag)), **place)

    def document_shards(self, cluster: bool) -> list[Shard]:
        tags = [f"docs/{n}" for n in range(DOCUMENT_SHARDS)] if cluster else ["docs"]
        return [shard_at(f"{self.prefix}:{{{tag}}}", slot_of(tag)) for tag in tags]
