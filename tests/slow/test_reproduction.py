"""What the reproduction's documents say is what its data says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_table_of_figure_3_is_that_of_the_pack():
    said = subprocess.run(
        [sys.executable, "-m", "benchmarks.figure3"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    printed = re.search(r"(\| architecture \|.*?)\n\n", (ROOT / "reproduction/fig3/README.md").read_text(), re.S)
    assert printed is not None
    assert printed[1].strip() == said.stdout.strip()
