"""The documentation site: pages that people wrote, pages that the code writes, one folder for each version.

Not part of the package: `make docs` calls `python -m docsite`, and the tests read the same pages.
"""
