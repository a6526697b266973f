"""Results that travel: one frame over all runs, folders and files that other tools read."""

from mixerscope.export.collect import collect, write_collected

__all__ = ["collect", "write_collected"]
