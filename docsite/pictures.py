"""The pictures of the concepts, drawn by code. Each has a ground of its own, so it can be read on a dark page too."""

from pathlib import Path

WIDTH = 760
STYLE = (
    "text{font-family:system-ui,sans-serif;fill:#24292f;font-size:14px;text-anchor:middle}"
    ".h{font-size:15px;font-weight:600}.s{font-size:13px;fill:#57606a}.l{text-anchor:start}.r{text-anchor:end}"
    ".clean{fill:#bcd9f5}.corrupted{fill:#f6c7a8}.plain{fill:#eef1f4}.on{stroke:#24292f;stroke-width:2.5}"
    ".line{stroke:#24292f;stroke-width:2;fill:none}"
)
TIP = (
    '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0L10 5L0 10z" fill="#24292f"/></marker></defs>'
)


def picture(height: int, label: str, parts: list[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        f' role="img" aria-label="{label}">\n<style>{STYLE}</style>\n{TIP}\n'
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#fff"/>\n'
    )
    return head + "\n".join(parts) + "\n</svg>\n"


def text(x: float, y: float, said: str, kind: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}"{f" class={kind!r}" if kind else ""}>{said}</text>'.replace("'", '"')


def box(x: float, y: float, width: float, height: float, kind: str, said: str = "") -> str:
    """A rounded box around a point, with a word in it."""
    size = f'width="{width:g}" height="{height:g}" rx="6"'
    rect = f'<rect x="{x - width / 2:g}" y="{y - height / 2:g}" {size} class="{kind}"/>'
    return rect + (text(x, y + 5, said) if said else "")


def arrow(x1: float, y1: float, x2: float, y2: float, kind: str = "line") -> str:
    end = ' marker-end="url(#tip)"' if kind == "line" else ""
    return f'<path d="M{x1:g} {y1:g}L{x2:g} {y2:g}" class="{kind}"{end}/>'


TOKENS = ("BOS", "k5", "v2", "k1", "v7", "EOS", "k1")
ROLES = {3: "key", 4: "value", 5: "divider", 6: "query"}


def task() -> str:
    parts, left, step = [], 210, 76
    for row, (name, kind) in enumerate((("clean", "clean"), ("corrupted", "corrupted"))):
        y = 50 + 110 * row
        parts.append(text(165, y + 5, f"{name} document", "r"))
        for i, token in enumerate(TOKENS):
            changed = row == 1 and i == 3
            here = kind if row == 0 or changed else "clean"
            parts.append(box(left + step * i, y, 62, 36, here + (" on" if changed else ""), "k3" if changed else token))
        answer = "answer: v7" if row == 0 else "k1 stands with nothing"
        parts.append(text(left + step * 6, y + 46, answer, "s"))
    for i, role in ROLES.items():
        parts.append(text(left + step * i, 24, role, "s"))
    parts.append(text(left + step * 3, 206, "the slot that was changed", "s"))
    return picture(230, "A recall document with its roles, and the same document with its key changed", parts)


def site() -> str:
    parts = [text(380, 26, "Every point where an activation can be read or replaced has a name", "h")]
    stream = [("embed", 70), ("blocks.0.resid_pre", 200), ("blocks.0.resid_post", 420), ("blocks.1.resid_post", 640)]
    parts.append(arrow(60, 210, 720, 210))
    parts += [text(380, 264, "the residual stream, at every position of the document", "s")]
    for name, x in stream:
        parts.append(f'<circle cx="{x}" cy="210" r="6" class="clean on"/>')
        parts.append(text(x, 236, name, "s"))
    for block, x in ((0, 310), (1, 530)):
        parts.append(box(x, 110, 180, 70, "plain"))
        parts.append(text(x, 70, f"block {block}", "s"))
        parts.append(text(x, 104, "mixer: convolution, scan"))
        parts.append(text(x, 128, "mixer.conv_out, mixer_out", "s"))
        parts.append(arrow(x - 60, 204, x - 60, 150))
        parts.append(arrow(x + 60, 150, x + 60, 204))
    return picture(282, "A model with two blocks, the residual stream, and the names of its sites", parts)


def _grid(left: float, top: float, kind: str, marked: tuple[int, int] | None, other: str) -> list[str]:
    parts = []
    for row in range(3):
        for column in range(4):
            here = (row, column) == marked
            parts.append(
                box(left + 62 * column, top + 48 * row, 48, 32, f"{other if here else kind}{' on' if here else ''}")
            )
    for column, role in enumerate(("key", "value", "…", "query")):
        parts.append(text(left + 62 * column, top + 48 * 2 + 36, role, "s"))
    return parts


def patching() -> str:
    parts = [text(163, 26, "clean document runs", "h"), text(563, 26, "corrupted document runs", "h")]
    parts += _grid(70, 64, "clean", (1, 1), "clean") + _grid(470, 64, "corrupted", (1, 1), "clean")
    parts.append('<path d="M140 94C220 40 420 40 524 92" class="line" marker-end="url(#tip)"/>')
    parts.append(text(333, 72, "one activation", "s"))
    parts.append(text(380, 226, "Is the answer back? If it is, this site held what the key said, at the value.", ""))
    parts.append(text(380, 248, "The reverse, corrupted into clean, asks whether it is needed there.", "s"))
    return picture(266, "Activation patching: one activation of the clean run is written into the corrupted run", parts)


def route() -> str:
    parts = [text(170, 26, "A route", "h"), text(545, 26, "Tests that could refute it", "h")]
    columns = {"key": 60, "value": 135, "…": 210, "query": 285}
    for row, y in enumerate((190, 130, 70)):
        on = {0: "key", 1: "value", 2: "query"}[row]
        for name, x in columns.items():
            parts.append(box(x, y, 52, 32, "clean on" if name == on else "plain"))
    for name, x in columns.items():
        parts.append(text(x, 228, name, "s"))
    parts += [arrow(68, 172, 124, 148), arrow(150, 112, 262, 84)]
    parts += [text(60, 158, "block 0", "s"), text(205, 88, "block 1", "s")]
    tests = (
        "sufficient: it alone brings the answer back",
        "necessary: without it the answer goes",
        "nine tenths of the documents take it, one by one",
        "key, value and query meet in the block it says",
        "ask another key: the answer follows",
        "longer documents take it too",
    )
    for i, said in enumerate(tests):
        parts.append(text(366, 64 + 28 * i, f"✓ {said}", "l"))
    parts.append(text(380, 258, "Only then it has a name: key → value → query is induction.", ""))
    return picture(276, "A route from key to value to query, and the tests that a name has to pass", parts)


def cohort() -> str:
    parts = [text(380, 26, "Models of one shape, trained and patched as one", "h")]
    for i, (seed, rate) in enumerate(((0, "1e-3"), (0, "3e-3"), (1, "1e-3"), (1, "3e-3"))):
        parts.append(box(150 + 14 * i, 64 + 36 * i, 170, 30, "clean on", f"seed {seed}, lr {rate}"))
    parts += [arrow(320, 110, 396, 110), box(480, 110, 150, 64, "plain on", "one training step")]
    parts.append(text(480, 164, "each model keeps its own loss", "s"))
    parts += [arrow(560, 110, 622, 110)]
    for i in range(4):
        parts.append(box(690, 62 + 34 * i, 110, 26, "plain", f"run {i}"))
    parts.append(text(380, 220, "Each gets the folder, the id and the verdict that it would have alone.", "s"))
    return picture(
        240, "Four models with other seeds and learning rates, stacked and trained as one, and their runs", parts
    )


PICTURES = {"task": task, "site": site, "patching": patching, "route": route, "cohort": cohort}


def write_pictures(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in PICTURES.items():
        (folder / f"{name}.svg").write_text(draw(), encoding="utf-8")
