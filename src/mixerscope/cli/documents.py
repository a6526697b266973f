"""Documents of a task with the roles of their tokens coloured."""

from typing import TYPE_CHECKING

from rich.text import Text

if TYPE_CHECKING:
    from mixerscope.tasks import Batch, Task

PALETTE = ("bold cyan", "bold green", "bold magenta", "bold yellow", "bold red", "bold blue")
ANSWER_STYLE = "underline"


def role_styles(batch: "Batch") -> dict[str, str]:
    return {role: PALETTE[i % len(PALETTE)] for i, role in enumerate(batch.roles)}


def legend(batch: "Batch") -> Text:
    words = [Text(role, style) for role, style in role_styles(batch).items()]
    return Text("  ").join([Text("roles:"), *words, Text("answer", ANSWER_STYLE)])


def document_text(task: "Task", batch: "Batch", index: int) -> Text:
    """The tokens with their roles coloured; below them, for eyes without colours, what stands where and why."""
    from mixerscope.tasks.render import document, explanation, pieces, tree_lines

    styles = role_styles(batch)
    plain = document(task, batch, index)
    answers = {int(position): token for position, token in plain["targets"].items()}
    words: list[Text] = []
    for position, (piece, token) in enumerate(zip(pieces(task, batch, index), plain["tokens"], strict=True)):
        word = Text(piece.symbol, styles[piece.role] if piece.role else "dim")
        if answers.get(position - 1) == token:
            word.stylize(ANSWER_STYLE)
        words.append(word)
    where = [Text(f"{role} {plain['symbols'][at]} at {at}", styles[role]) for role, at in plain["roles"].items()]
    lines = [Text(" ").join(words), Text("  ") + Text(", ").join(where)]
    if answers:
        lines.append(Text(f"  {explanation(task, batch, index)}"))
    more = len(answers) - 1
    if more > 0:
        lines.append(Text(f"  and {more} more quer{'ies' if more > 1 else 'y'} after it"))
    lines += [Text(f"  {line}") for line in tree_lines(task, batch, index)]
    return Text("\n").join(lines)
