"""`mixerscope check`: does a mixer keep the promises that everything else here rests on?"""

from rich.console import Console
from rich.table import Table

from mixerscope.check import check_mixer


def check(name: str) -> int:
    """Tries every property on a mixer: a name, `pkg.module:Class` or `path/file.py:Class`; 1 when it is refused."""
    console = Console()
    results = check_mixer(name)
    table = Table("test", "", "what was found", title=name)
    for result in results:
        table.add_row(result.name, "[green]passed[/]" if result.passed else "[red]failed[/]", result.detail)
    console.print(table)
    failed = [result.name for result in results if not result.passed]
    if failed:
        console.print(f"{name} is refused: {', '.join(failed)}", soft_wrap=True)
        return 1
    console.print(f"{name} passed all {len(results)} tests", soft_wrap=True)
    return 0
