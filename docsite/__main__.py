"""`python -m docsite`: the site of this version, in `site/VERSION/`. Strict: a link that leads nowhere is an error."""

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


def main() -> int:
    zensical = shutil.which("zensical", path=str(Path(sys.executable).parent)) or shutil.which("zensical")
    if zensical is None:
        sys.stderr.write("zensical is not installed; `pip install -e '.[docs]'` brings it\n")
        return 2
    write_pictures(DOCS / "pictures")
    build, site = ROOT / "build" / "docsite", ROOT / "site"
    shutil.rmtree(build, ignore_errors=True)
    pages = stage(build / "docs")
    settings = build / "zensical.toml"
    settings.write_text(configuration(pages, build / "docs"), encoding="utf-8")
    code = subprocess.run([zensical, "build", "--strict", "--config-file", str(settings)]).returncode
    if code == 0:
        shutil.rmtree(site / mixerscope.__version__, ignore_errors=True)
        shutil.copytree(build / "site", site / mixerscope.__version__)
        (site / "index.html").write_text(REDIRECT.format(mixerscope.__version__), encoding="utf-8")
        print(f"the site of version {mixerscope.__version__} is in {site / mixerscope.__version__}")
    return code


if __name__ == "__main__":
    sys.exit(main())
