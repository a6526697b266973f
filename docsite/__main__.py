"""`python -m docsite`: the site of this version, in `site/VERSION/`. Strict: a link that leads nowhere is an error.

Versions that `site/` has already stay; the menu at the top of every page, of old versions too, lists them all.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import mixerscope
from docsite.pictures import write_pictures
from docsite.site import DOCS, ROOT, configuration, stage

REDIRECT = (
    '<!doctype html><meta charset="utf-8"><title>Mixerscope</title><meta http-equiv="refresh" content="0; url={0}/">'
)


def main(site: Path = ROOT / "site") -> int:
    zensical = shutil.which("zensical", path=str(Path(sys.executable).parent)) or shutil.which("zensical")
    if zensical is None:
        sys.stderr.write("zensical is not installed; `pip install -e '.[docs]'` brings it\n")
        return 2
    write_pictures(DOCS / "pictures")
    build = ROOT / "build" / "docsite"
    shutil.rmtree(build, ignore_errors=True)
    pages = stage(build / "docs")
    settings = build / "zensical.toml"
    settings.write_text(configuration(pages, build / "docs"), encoding="utf-8")
    code = subprocess.run([zensical, "build", "--strict", "--config-file", str(settings)]).returncode
    if code == 0:
        shutil.rmtree(site / mixerscope.__version__, ignore_errors=True)
        shutil.copytree(build / "site", site / mixerscope.__version__)
        list_versions(site)
        print(f"the site of version {mixerscope.__version__} is in {site / mixerscope.__version__}")
    return code


def list_versions(site: Path) -> list[str]:
    """Writes what the menu of versions reads, and the page that leads to the newest; all versions, the newest first."""
    known = [page.parent.name for page in site.glob("*/index.html") if re.match(r"\d+\.\d", page.parent.name)]
    versions = sorted(known, key=lambda name: [int(part) for part in re.findall(r"\d+", name)], reverse=True)
    menu = [{"version": name, "title": name, "aliases": [] if i else ["latest"]} for i, name in enumerate(versions)]
    (site / "versions.json").write_text(json.dumps(menu, indent=2) + "\n", encoding="utf-8")
    (site / "index.html").write_text(REDIRECT.format(versions[0]), encoding="utf-8")
    return versions


if __name__ == "__main__":
    sys.exit(main())
