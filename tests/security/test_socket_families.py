"""Which sockets a program can have: the families and kinds of the policy, and nothing beyond."""

from __future__ import annotations

import pytest

from tests.security.conftest import Attacker

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: What socket(2) answers to family, type and protocol. Numbers of linux/socket.h and linux/in.h.
SOCKETS = {
    "unix stream": ("1, 1, 0", "ok"),
    "unix seqpacket": ("1, 5, 0", "ok"),
    "inet tcp": ("2, 1, 0", "ok"),
    "inet udp": ("2, 2, 17", "ok"),
    "inet6 tcp": ("10, 1, 6", "ok"),
    "inet6 udp": ("10, 2, 0", "ok"),
    "routes, to look": ("16, 3, 0", "ok"),
    "raw": ("2, 3, 1", "EPERM"),
    "raw, every protocol": ("2, 3, 255", "EPERM"),
    "raw inet6": ("10, 3, 58", "EPERM"),
    "old packet": ("2, 10, 768", "EPERM"),
    "ping": ("2, 2, 1", "EPROTONOSUPPORT"),
    "sctp": ("2, 1, 132", "EPROTONOSUPPORT"),
    "mptcp": ("2, 1, 262", "EPROTONOSUPPORT"),
    "udp-lite": ("2, 2, 136", "EPROTONOSUPPORT"),
    "packet": ("17, 3, 768", "EAFNOSUPPORT"),
    "the hypervisor (vsock)": ("40, 1, 0", "EAFNOSUPPORT"),
    "the kernel's ciphers (alg)": ("38, 5, 0", "EAFNOSUPPORT"),
    "xdp": ("44, 3, 0", "EAFNOSUPPORT"),
    "bluetooth": ("31, 3, 1", "EAFNOSUPPORT"),
    "can": ("29, 3, 1", "EAFNOSUPPORT"),
    "tipc": ("30, 5, 0", "EAFNOSUPPORT"),
    "rds": ("21, 5, 0", "EAFNOSUPPORT"),
    "key management": ("15, 3, 2", "EAFNOSUPPORT"),
    "kcm": ("41, 2, 0", "EAFNOSUPPORT"),
    "smc": ("43, 1, 0", "EAFNOSUPPORT"),
    "audit": ("16, 3, 9", "EPROTONOSUPPORT"),
    "packet filter": ("16, 3, 12", "EPROTONOSUPPORT"),
    "device events": ("16, 3, 15", "EPROTONOSUPPORT"),
    "generic netlink": ("16, 3, 16", "EPROTONOSUPPORT"),
    "high bits do not slip past": ("17 | 1 << 32, 3, 768", "EAFNOSUPPORT"),
}


async def test_only_these_sockets_can_be_had(attack: Attacker) -> None:
    told = "\n".join(
        f"print({name!r}, '->', call('socket', {arguments}))"
        for name, (arguments, _) in SOCKETS.items()
    )
    answers = dict(line.split(" -> ") for line in (await attack(told)).told.splitlines())
    assert answers == {name: answer for name, (_, answer) in SOCKETS.items()}


async def test_the_network_can_be_looked_at_and_not_changed(attack: Attacker) -> None:
    code = """
import socket
routes = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
routes.bind((0, 0))
# RTM_NEWLINK of a dummy (rtnetlink(7)): length, type, flags request|ack|create, sequence, pid.
import struct
body = struct.pack('=BxHiII', 0, 0, 0, 0, 0)
kind = struct.pack('=HH', 12, 1) + b'dummy\\0\\0\\0'
body += struct.pack('=HH', len(kind) + 4, 18) + kind
routes.send(struct.pack('=IHHII', 16 + len(body), 16, 0x405, 1, 0) + body)
print(errno.errorcode[-struct.unpack('=i', routes.recv(4096)[16:20])[0]])
print([name for _, name in socket.if_nameindex()])
"""
    assert (await attack(code)).lines == ["EPERM", "['lo']"]


async def test_without_a_network_only_its_own_loopback_answers(attack: Attacker) -> None:
    port = attack.daemon.url.rpartition(":")[2]
    code = f"""
import socket
for address in ('127.0.0.1', '::1'):
    family = socket.AF_INET6 if ':' in address else socket.AF_INET
    print(refusal(socket.socket(family).connect, (address, {port})))
for address in ('10.0.0.1', '169.254.169.254', '93.184.216.34', '2606:2800:220:1::34'):
    family = socket.AF_INET6 if ':' in address else socket.AF_INET
    print(refusal(socket.socket(family, socket.SOCK_DGRAM).connect, (address, 53)))
print(refusal(socket.getaddrinfo, 'example.org', 80))
"""
    lines = (await attack(code)).lines
    assert lines[:2] == ["ECONNREFUSED"] * 2, "the daemon's port, in the jail's own namespace"
    assert lines[2:6] == ["ENETUNREACH"] * 4
    assert lines[6] != "ok"


async def test_privileged_socket_options_are_refused(attack: Attacker) -> None:
    """IP_TRANSPARENT, SO_MARK, SO_RCVBUFFORCE, TCP_ULP: forged packets and kernel memory."""
    code = """
import socket
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
print(refusal(sender.setsockopt, socket.IPPROTO_IP, 19, 1))
print(refusal(sender.setsockopt, socket.SOL_SOCKET, socket.SO_MARK, 1))
print(refusal(sender.setsockopt, socket.SOL_SOCKET, 33, 1 << 30))
print(refusal(socket.socket(socket.AF_INET, socket.SOCK_STREAM).setsockopt, 6, 31, b'tls'))
"""
    assert (await attack(code)).lines == ["EPERM", "EPERM", "EPERM", "ENOPROTOOPT"]
