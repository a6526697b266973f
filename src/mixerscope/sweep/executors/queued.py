"""Which jobs were queued for which item: a file beside it, so that the next call can follow what this one began."""

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from mixerscope.errors import CorruptFile
from mixerscope.store import read_json, write_bytes
from mixerscope.store.checkpoints import WORKSHOP
from mixerscope.store.upkeep import QUEUED
from mixerscope.sweep.executors.base import logs_of, remove_item, remove_logs
from mixerscope.sweep.items import Item


@dataclass(frozen=True)
class Queued:
    """An array of jobs."""

    root: str
    call: str
    asks: str
    """What is to be made, as a hash: the same for every call that asks for the same."""
    array: str
    cluster: str
    """Numbers of jobs mean something on one cluster alone."""
    since: float

    @staticmethod
    def note(item: Item, array: str, cluster: str) -> "Queued":
        queued = Queued(item.root, item.call, item.asks, array, cluster, time.time())
        write_bytes(queued.path, json.dumps(asdict(queued)).encode())
        return queued

    @property
    def path(self) -> Path:
        return Path(self.root) / WORKSHOP / "items" / f"{self.call}{QUEUED}"

    @property
    def logs(self) -> Path:
        return logs_of(self.root, self.call)

    def forget(self, with_logs: bool) -> None:
        """What nobody will make or follow any more."""
        if with_logs:
            remove_logs(self.logs)
        self.path.unlink(missing_ok=True)
        remove_item(self.path.with_suffix(".json"))


def all_queued(root: Path, cluster: str) -> Iterator[Queued]:
    """Those below a root that were queued on a cluster; what makes no sense is left for `gc`."""
    for path in sorted((root / WORKSHOP / "items").glob(f"*{QUEUED}")):
        with suppress(CorruptFile, OSError, TypeError, KeyError):
            found = Queued(**read_json(path))
            if found.cluster == cluster and found.path == path:
                yield found
