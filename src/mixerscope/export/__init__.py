"""Results that travel: one frame over all runs, folders and files that other tools read."""

from mixerscope.export.collect import collect, write_collected
from mixerscope.export.huggingface import export_run, load_export

__all__ = ["collect", "export_run", "load_export", "write_collected"]
