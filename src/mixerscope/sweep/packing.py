"""What a call packs at its end, got ready as cohorts end."""

from pathlib import Path

from mixerscope.packs import write_pack, write_packs
from mixerscope.packs.ahead import PartsAhead
from mixerscope.packs.parts import part_of
from mixerscope.results import Runs, run_folder
from mixerscope.sweep.cohorts import Cohort
from mixerscope.sweep.listening import Listener
from mixerscope.sweep.table import CohortRow

MIB = 2**20


class Packing(Listener):
    """Packs the finished runs of a sweep, in as many files as `most` MiB of each take."""

    def __init__(self, file: Path, most: float | None, root: Path, ahead: bool) -> None:
        """`ahead`: in processes of their own and while others train, for which there have to be idle cores."""
        self.file, self.most, self.root = file, most, root
        self.ahead = PartsAhead() if ahead else None

    def cohort_ended(self, cohort: Cohort, row: CohortRow) -> None:
        if self.ahead is not None and row.ending == "finished":
            self.ahead.begin(run_folder(run, self.root) for run in cohort.runs)

    def pack(self, found: Runs) -> list[str]:
        """Writes the packs, and says so in a line each."""
        if not found:
            return [f"no run is finished below {self.root}, so {self.file} was not written"]
        made = part_of if self.ahead is None else self.ahead.part
        if self.most is None:
            packs = {self.file: write_pack(self.file, found, made)}
        else:
            packs = write_packs(self.file, found, int(self.most * MIB), made)
        return [
            f"{size.runs} finished runs are packed in {path}, {size.packed / MIB:.1f} MiB"
            for path, size in packs.items()
        ]

    def close(self) -> None:
        if self.ahead is not None:
            self.ahead.close()
