import pytest

from mixerscope.kernels import choice
from mixerscope.registry import Entry
from tests.kernels import stand_ins


@pytest.fixture
def kernel(monkeypatch, tmp_path):
    """Registers a stand-in as the kernel of `op`, as if this were a machine on which kernels run, seen for the first
    time; called again it is another process on the same machine."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))

    def register(name: str) -> None:
        for attribute, empty in (("_chosen", {}), ("_used", {}), ("_warned", set())):
            monkeypatch.setattr(choice, attribute, empty)
        monkeypatch.setattr(choice, "_triton_version", lambda: "3.6.0")
        entry = Entry("op", f"tests.kernels.stand_ins:{name}", "", "mixerscope")
        monkeypatch.setitem(choice.KERNELS._entries, "op", entry)
        choice._kernel.cache_clear()
        stand_ins.runs.clear()

    yield register
    choice._kernel.cache_clear()
