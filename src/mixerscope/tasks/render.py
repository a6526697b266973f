"""Documents as text, without colours: what stands where, which role it plays, and the tree of an ATR document."""

from typing import Any, NamedTuple

from mixerscope.tasks.base import PAD, UNSCORED, Batch, Task


class Piece(NamedTuple):
    """One token as people write it."""

    symbol: str
    role: str | None


def pieces(task: Task, batch: Batch, index: int) -> list[Piece]:
    """The tokens of a document in order, without padding, each with its role; the first named where it has two."""
    tokens = batch.tokens[index].tolist()
    roles: dict[int, str] = {}
    for name, at in batch.roles.items():
        roles.setdefault(int(at[index]), name)
    while tokens and tokens[-1] == PAD and len(tokens) - 1 not in roles:
        tokens.pop()
    return [Piece(task.symbol(token), roles.get(position)) for position, token in enumerate(tokens)]


def document(task: Task, batch: Batch, index: int) -> dict[str, Any]:
    """A document as plain data: tokens, symbols, targets by position, the first of them as `answer`, roles, labels."""
    shown = pieces(task, batch, index)
    scored = {position: token for position, token in enumerate(batch.targets[index].tolist()) if token != UNSCORED}
    return {
        "tokens": batch.tokens[index, : len(shown)].tolist(),
        "symbols": [piece.symbol for piece in shown],
        "targets": {str(position): token for position, token in scored.items()},
        "answer": next(iter(scored.values()), None),
        "roles": {name: int(at[index]) for name, at in batch.roles.items()},
        "labels": {
            name: int(label[index]) if label.dim() == 1 else label[index, : len(shown)].tolist()
            for name, label in batch.labels.items()
        },
    }


def explanation(task: Task, batch: Batch, index: int) -> str:
    """One sentence: what is asked first, the answer, and where in the document it comes from."""
    asked = next(position for position, token in enumerate(batch.targets[index].tolist()) if token != UNSCORED)
    answer = task.symbol(int(batch.targets[index, asked]))
    sentence = f"{task.symbol(int(batch.tokens[index, asked]))} at {asked} asks for {answer}"
    if "value" not in batch.roles:
        return sentence
    sentence += f", which stands at {int(batch.roles['value'][index])}"
    if "key" not in batch.roles:
        return sentence
    key = int(batch.roles["key"][index])
    return f"{sentence} and belongs to {task.symbol(int(batch.tokens[index, key]))} at {key}"


def tree_lines(task: Task, batch: Batch, index: int) -> list[str]:
    """The tree of a document whose batch has one (`labels["parents"]`), a symbol a line; no line for other tasks."""
    if "parents" not in batch.labels:
        return []
    shown = pieces(task, batch, index)
    parents = batch.labels["parents"][index].tolist()
    inside = range(1, int(batch.roles["divider"][index]))
    children: dict[int, list[int]] = {}
    for position in inside:
        children.setdefault(parents[position], []).append(position)

    def name(position: int) -> str:
        roles = [role for role, at in batch.roles.items() if int(at[index]) == position]
        return f"{shown[position].symbol} @{position}{' <- ' + ', '.join(roles) if roles else ''}"

    lines: list[str] = []
    # An explicit stack, as a tree may be deeper than Python's own would like.
    stack = [(root, "", "") for root in reversed(children[-1])]
    while stack:
        position, lead, below = stack.pop()
        lines.append(lead + name(position))
        inner = children.get(position, [])
        for child in reversed(inner):
            last = child == inner[-1]
            stack.append((child, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  ")))
    return lines
