"""Packs: the results of many runs in one small file, to carry home from a machine that was borrowed.

A pack is a zip: a list of its runs, then the folder of each without weights and times. Means and intervals of the table
of effects travel exactly, numbers of single documents rounded, but not so far that a verdict would change.
"""

from mixerscope.packs.reading import finished_analyses, finished_ids, unpack
from mixerscope.packs.writing import PackSize, claim_pack, write_pack, write_packs

__all__ = ["PackSize", "claim_pack", "finished_analyses", "finished_ids", "unpack", "write_pack", "write_packs"]
