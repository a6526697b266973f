"""What a task says about itself beside its documents: routes, slots, guessing, other sizes."""

from mixerscope.check.outcome import demand
from mixerscope.check.task_subject import TaskSubject
from mixerscope.randomness import stream
from mixerscope.tasks.base import Task


def routes(subject: TaskSubject) -> str:
    """No slot is named twice, one of those that belong together is a slot, and a route that has a name is made of the
    task's own roles. Names that several tasks share may say more than each of them has."""
    task, known = subject.single, subject.asked_once.roles
    demand(len({*task.slots}) == len(task.slots), f"a slot is named twice: {', '.join(task.slots)}")
    possible = [found.name for found in task.mechanisms if {*found.route} <= {*known}]
    demand(bool(possible) or not task.mechanisms, f"no route of `mechanisms` is made of its roles: {', '.join(known)}")
    none = task.together and not {*task.together} & {*task.slots}
    demand(
        not none,
        f"of `together`, {', '.join(task.together)}, none is a slot: {', '.join(task.slots) or 'there are none'}",
    )
    return ", ".join(possible) or "none declared"


def guessing(subject: TaskSubject) -> str:
    """What guessing gives, where the task says it itself, is an accuracy."""
    if type(subject.task).guessing is Task.guessing:
        return "worked out from its documents"
    found = subject.task.guessing()
    demand(isinstance(found, float) and 0 <= found <= 1, f"`guessing` gives {found!r}, expected a number from 0 to 1")
    return f"{found:.0%}"


def variants(subject: TaskSubject) -> str:
    """The task with documents of another size has the same vocabulary and slots, and makes documents."""
    task, found = subject.single, subject.single.variants()
    for name, other in found.items():
        size, usual = other.vocab_size, task.vocab_size
        demand(size == usual, f"the vocabulary has {size} tokens in the variant {name!r} and {usual} else")
        demand(other.slots == task.slots, f"the variant {name!r} has other slots: {', '.join(other.slots) or 'none'}")
        made = other.single_query().sample(2, stream(0, "check", "variant", name), "test")
        demand(len(made) == 2, f"the variant {name!r} does not give 2 documents")
    return ", ".join(found) or "none declared"
