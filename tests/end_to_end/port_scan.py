"""A TCP connect scan of every port, run at the lab's place outside as `python3 port_scan.py ADDRESS…`.

It prints `ADDRESS PORT` for each port that took the connection. Nothing but the standard library: it runs on the
machine's own Python, in a network namespace that has no way to anywhere else.
"""

from __future__ import annotations

import itertools
import resource
import select
import socket
import sys
import time

AT_ONCE = 16_000
"""Connections tried at the same time, if the limit of open files allows it."""
WAIT_S = 1.5
"""A firewall drops in silence: a port that said nothing for so long (one SYN and its repetition) counts as closed."""
OPEN, ASKING = 0, (115, 11)


def main(addresses: list[str]) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    at_once = min(AT_ONCE, max(soft, hard) - 50)
    everything = itertools.product(range(1, 65536), addresses)
    while batch := list(itertools.islice(everything, at_once)):
        for port, address in scan(batch):
            print(address, port, flush=True)


def scan(batch: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Those of the (port, address) pairs that took a TCP connection within WAIT_S."""
    found, waiting = [], {}
    poll = select.epoll()
    for port, address in batch:
        one = socket.socket()
        one.setblocking(False)
        status = one.connect_ex((address, port))
        if status == OPEN:
            found.append((port, address))
        if status in ASKING:
            waiting[one.fileno()] = (one, port, address)
            poll.register(one, select.EPOLLOUT | select.EPOLLERR)
        else:
            one.close()
    until = time.monotonic() + WAIT_S
    while waiting and (left := until - time.monotonic()) > 0:
        for number, _ in poll.poll(left):
            one, port, address = waiting.pop(number)
            if one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == OPEN:
                found.append((port, address))
            one.close()
    for one, _, _ in waiting.values():
        one.close()
    poll.close()
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
