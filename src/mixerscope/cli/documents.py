"""Documents of a task as people and programs read them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.text import Text

if TYPE_CHECKING:
    from mixerscope.tasks import Batch, Task

PALETTE = ("bold cyan", "bold green", "bold magenta", "bold yellow", "bold red", "bold blue")
ANSWER_STYLE = "underline"


def document_json(task: "Task", batch: "Batch", index: int) -> dict[str, Any]:
    """One document as plain data; `answer` is the first one asked for, `answers` are all, by position."""
    tokens = _without_padding(task, batch, index)
    answers = dict(_answers(batch, index))
    return {
        "tokens": tokens,
        "symbols": [task.symbol(token) for token in tokens],
        "roles": {name: int(at[index]) for name, at in batch.roles.items()},
        "answer": next(iter(answers.values()), None),
        "answers": answers,
        "labels": {name: label[index].tolist() for name, label in batch.labels.items()},
    }


def role_styles(batch: "Batch") -> dict[str, str]:
    return {role: PALETTE[i % len(PALETTE)] for i, role in enumerate(batch.roles)}


def legend(batch: "Batch") -> Text:
    words = [Text(role, style) for role, style in role_styles(batch).items()]
    return Text("  ").join([Text("roles:"), *words, Text("answer", ANSWER_STYLE)])


def document_text(task: "Task", batch: "Batch", index: int) -> Text:
    """The tokens with their roles coloured; below them, for eyes without colours, what stands where."""
    styles = role_styles(batch)
    places = {role: int(at[index]) for role, at in batch.roles.items()}
    answers = dict(_answers(batch, index))
    words: list[Text] = []
    tokens = _without_padding(task, batch, index)
    for position, token in enumerate(tokens):
        style = next((styles[role] for role, at in places.items() if at == position), "dim")
        word = Text(task.symbol(token), style)
        if answers.get(position - 1) == token:
            word.stylize(ANSWER_STYLE)
        words.append(word)
    lines = [Text(" ").join(words)]
    where = [Text(f"{role} {task.symbol(tokens[at])} at {at}", styles[role]) for role, at in places.items()]
    lines.append(Text("  ") + Text(", ").join(where))
    asked = [f"{task.symbol(answer)} (read at position {at})" for at, answer in answers.items()]
    lines.append(Text(f"  answer{'s' if len(asked) > 1 else ''}: {', '.join(asked) or 'none'}"))
    return Text("\n").join(lines)


def _answers(batch: "Batch", index: int) -> Iterator[tuple[int, int]]:
    """The scored positions and what should be predicted there."""
    from mixerscope.tasks import UNSCORED

    for position, target in enumerate(batch.targets[index].tolist()):
        if target != UNSCORED:
            yield position, target


def _without_padding(task: "Task", batch: "Batch", index: int) -> list[int]:
    tokens: list[int] = batch.tokens[index].tolist()
    while tokens and task.symbol(tokens[-1]) == "PAD":
        tokens.pop()
    return tokens
