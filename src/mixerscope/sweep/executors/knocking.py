"""Who is at an address, asked without Ray: importing it takes seconds, and it asks on for minutes where nobody answers.

A Ray head speaks gRPC. It is asked whether it is alive, in the few bytes that such a question takes. What matters is
whether a message comes back: who does not know the question refuses it without one.
"""

import os
import socket
import time
from contextlib import suppress
from typing import IO

from mixerscope.errors import UserError

SECONDS = 3.0
"""For a connection, and for an answer."""
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""How every connection to a Ray head begins: HTTP/2."""
DATA, HEADERS, RESET, SETTINGS, GO_AWAY = 0, 1, 3, 4, 7
"""Kinds of frames."""
END_OF_STREAM, END_OF_HEADERS, ACKNOWLEDGED = 1, 4, 1
"""Flags of frames."""
FRAME = 9
"""Bytes that every frame begins with."""
QUESTION = "/ray.rpc.NodeInfoGcsService/CheckAlive"


def knock(address: str) -> bool:
    """Whether a Ray head said that it is alive; refuses an address where nobody, or no gRPC, answers.

    Where connections are encrypted, or want a token, nobody can be asked in this way, and a head is taken to be there.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or "/" in host:
        raise UserError(f"--on ray:ADDRESS takes the host:port of a Ray head, such as 10.0.0.1:6379, got {address!r}")
    private = os.environ.get("RAY_USE_TLS") == "1" or bool(os.environ.get("RAY_AUTH_MODE"))
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=SECONDS) as there:
            there.settimeout(SECONDS)
            there.sendall(PREFACE + _frame(SETTINGS, 0, 0, b""))
            with there.makefile("rb") as said:
                if private:
                    said.read(1)
                    return True
                head = said.read(FRAME)
                if head[3:4] == bytes([SETTINGS]):
                    said.read(_size(head))
                    there.sendall(_frame(SETTINGS, ACKNOWLEDGED, 0, b"") + _question())
                    return _is_answered(said)
    except (OSError, OverflowError) as error:
        raise UserError(f"no Ray cluster answers at {address}: {error}; `ray start --head` starts one") from error
    raise UserError(f"whoever answers at {address} is no Ray head; `ray status` says where one is, and its port")


def _question() -> bytes:
    named = {":method": "POST", ":scheme": "http", ":path": QUESTION, ":authority": "ray"}
    named |= {"content-type": "application/grpc", "te": "trailers"}
    block = b"".join(b"\0" + _text(name) + _text(value) for name, value in named.items())  # neither indexed nor packed
    message = bytes(5)  # of no bytes, and not packed
    return _frame(HEADERS, END_OF_HEADERS, 1, block) + _frame(DATA, END_OF_STREAM, 1, message)


def _is_answered(said: IO[bytes]) -> bool:
    until = time.monotonic() + SECONDS
    with suppress(OSError):  # silence is no answer
        while time.monotonic() < until and len(head := said.read(FRAME)) == FRAME:
            kind, flags = head[3], head[4]
            if kind == DATA:
                return True
            if kind in (RESET, GO_AWAY) or (kind == HEADERS and flags & END_OF_STREAM):
                return False
            said.read(_size(head))
    return False


def _size(head: bytes) -> int:
    return int.from_bytes(head[:3], "big")


def _frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    return len(content).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + content


def _text(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()  # lengths below 127 are one byte
