"""`mixerscope serve`: the page over a folder that is still being written."""

from pathlib import Path

from mixerscope.cli.console import results
from mixerscope.errors import FINE, remark


def serve(folder: Path = Path("runs"), /, *, port: int = 8790) -> int:
    """The page over the finished runs in a folder, refreshed while a sweep runs. It listens on this machine alone, and
    writes nothing; Ctrl-C ends it.

    Parameters
    ----------
    folder
        A run's folder, or one that holds run folders.
    port
        Where it is served on 127.0.0.1; 0 for any that is free.
    """
    from mixerscope.report.serve import PageServer

    server = PageServer(folder, port)
    for complaint in server.live.left_out:
        remark(f"left out: {complaint}")
    runs = f"{server.live.runs} run{'' if server.live.runs == 1 else 's'}"
    results().print(f"{runs}: {server.address} (Ctrl-C ends it)", markup=False, soft_wrap=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        return FINE
    finally:
        server.server_close()
    return FINE
