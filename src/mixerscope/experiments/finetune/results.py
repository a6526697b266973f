"""What fine-tuning leaves on disk: a folder for the pretrained model, and one for random weights beside it."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from mixerscope.artifacts import Artifact
from mixerscope.errors import CorruptFile, UserError
from mixerscope.experiments.finetune.tuning import GATE, Settings, Tuned
from mixerscope.store import make_folder, write_bytes

ABOUT = "finetuned.json"
PRETRAINED, RANDOM = "pretrained", "random"
A = TypeVar("A", bound=Artifact)


def write_tuned(folder: Path, which: str, about: dict[str, Any], settings: Settings, found: Tuned) -> Path:
    """Writes what was found of one of the two; what says that it is all there is written last."""
    own = folder / which
    make_folder(own)
    files: dict[str, str] = {}
    for artifacts in found.found.values():
        for artifact in artifacts:
            data = artifact.to_bytes()
            write_bytes(own / artifact.file, data)
            files[artifact.file] = hashlib.sha256(data).hexdigest()
    said = {
        **about,
        "weights": which,
        "settings": asdict(settings),
        "accuracy": found.accuracy,
        "passed": found.accuracy >= GATE,
        "losses": found.losses,
        "impossible": found.reasons,
        "files": files,
    }
    write_bytes(own / ABOUT, (json.dumps(said, indent=1) + "\n").encode())
    return own


@dataclass(frozen=True)
class TunedResult:
    """One of them, as it lies on disk."""

    path: Path

    @cached_property
    def about(self) -> dict[str, Any]:
        try:
            return json.loads((self.path / ABOUT).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise CorruptFile(f"{self.path / ABOUT} cannot be read: {error}") from error

    def find(self, artifact: type[A]) -> A | None:
        """An artifact, whose hash is checked; None where the stage gave none."""
        if artifact.file not in self.about["files"]:
            return None
        data = (self.path / artifact.file).read_bytes()
        if hashlib.sha256(data).hexdigest() != self.about["files"][artifact.file]:
            raise CorruptFile(f"{self.path / artifact.file} is not what was written")
        return artifact.from_bytes(data)


def tuned_in(folder: Path) -> Iterator[TunedResult]:
    """Those below a folder; a pretrained model without the one of random weights is an error."""
    for file in sorted(folder.rglob(ABOUT)):
        found = TunedResult(file.parent)
        other = file.parent.parent / (RANDOM if found.about["weights"] == PRETRAINED else PRETRAINED) / ABOUT
        if not other.is_file():
            raise UserError(f"{file.parent} stands alone; {other.parent.name} is missing beside it")
        yield found
