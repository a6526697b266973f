"""What an artifact is: a value with one file name, one writer and one reader. The store moves bytes, nothing else."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from functools import cache, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from pydantic import TypeAdapter, ValidationError

from mixerscope.errors import CorruptFile, UserError
from mixerscope.showing import Shown, counted

if TYPE_CHECKING:
    import polars


class Readable(Protocol):
    """A way of reading a file of a run's folder."""

    file: ClassVar[str]
    """Its name there."""

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The value again, or `CorruptFile`."""
        ...


class Artifact(Readable, Protocol):
    """Anything that can lie in a run's folder."""

    def to_bytes(self) -> bytes:
        """The same bytes for the same value."""
        ...


class JsonArtifact:
    """A dataclass kept as JSON; what is read is checked against its types."""

    file: ClassVar[str]

    def to_bytes(self) -> bytes:
        return (json.dumps(asdict(self), indent=2, allow_nan=False) + "\n").encode()  # type: ignore[call-overload]

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        return _parse(cls, data)


class SharedJson(JsonArtifact):
    """One that is the same in many runs of a sweep: bytes that were made sense of lately are not parsed again."""

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        return _parsed(cls, data)


def _parse(cls: type, data: bytes) -> Any:
    try:
        return _adapter(cls).validate_json(data)
    except ValidationError as error:
        raise CorruptFile(f"this is no {cls.__name__}: {error.errors(include_url=False)[0]['msg']}") from error


_parsed = lru_cache(maxsize=256)(_parse)


@cache
def _adapter(cls: type) -> TypeAdapter[Any]:
    return TypeAdapter(cls)


def tables_of(artifact: Any) -> dict[str, Iterator[dict[str, Any]]]:
    """The tables of an artifact by name; the first is called like its file. One without rows has none."""
    if not callable(getattr(artifact, "rows", None)):
        return {}
    more = artifact.more_tables() if callable(getattr(artifact, "more_tables", None)) else {}
    return {artifact.file.partition(".")[0]: artifact.rows(), **more}


class Frames(Shown):
    """What has rows: shown as a table, and a data frame for those who have the library."""

    def rows(self) -> Iterator[dict[str, Any]]:
        """One column a fact."""
        raise NotImplementedError(f"{type(self).__name__} has no `rows`")

    def sentence(self) -> str:
        """One line for people."""
        return counted(sum(1 for _ in self.rows()), "row")

    def shown(self) -> Iterator[dict[str, Any]]:
        """The rows that a notebook shows."""
        return self.rows()

    def to_polars(self) -> "polars.DataFrame":
        """The table as a polars frame."""
        return _library("polars").DataFrame(list(self.rows()), infer_schema_length=None)

    def to_pandas(self) -> Any:
        """The table as a pandas frame."""
        return _library("pandas").DataFrame(list(self.rows()))


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise UserError(f"{name} is not installed here; `pip install {name}` makes frames of it") from error
