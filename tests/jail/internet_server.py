"""A host of the tests' own internet: answers on every address it has, and writes down who called.

    internet_server.py PORT RECORD    prints "ready" when it serves

TCP and UDP on PORT, IPv4 and IPv6, answer the caller's address as seen here; port 53 answers DNS.
Every payload that arrives is a line of RECORD. Standard library only, one thread per socket.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
import sys
import threading
from pathlib import Path

IP_PKTINFO = 8  # linux/in.h: struct in_pktinfo is interface, local address, called address
ADDRESSES = {1: "93.184.216.34", 28: "2606:2800:220:1::34"}  # A, AAAA


def answer_dns(query: bytes) -> bytes:
    """Any name has the address of the public host (RFC 1035 section 4)."""
    end = query.index(b"\0", 12) + 5
    question = query[12:end]
    kind = struct.unpack("!H", question[-4:-2])[0]
    packed = ipaddress.ip_address(ADDRESSES[kind]).packed if kind in ADDRESSES else b""
    header = query[:2] + struct.pack("!HHHHH", 0x8180, 1, 1 if packed else 0, 0, 0)
    record = struct.pack("!HHHIH", 0xC00C, kind, 1, 60, len(packed)) + packed
    return header + question + (record if packed else b"")


def serve_udp(family: int, port: int, record: Path) -> None:
    with socket.socket(family, socket.SOCK_DGRAM) as server:
        bind(server, family, port)
        # Asks which address was called: a host that has many must answer from that one.
        if family == socket.AF_INET:
            server.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
        else:
            server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
        while True:
            payload, ancillary, _, caller = server.recvmsg(4096, 256)
            note(record, b"dns" if port == 53 else payload)
            reply = answer_dns(payload) if port == 53 else caller[0].encode()
            server.sendmsg([reply], [called(*each) for each in ancillary], 0, caller)


def called(level: int, kind: int, info: bytes) -> tuple[int, int, bytes]:
    """The packet information of an answer: the same address, the interface left to the routes."""
    unset = b"\0" * 4
    return level, kind, unset + info[4:] if kind == IP_PKTINFO else info[:16] + unset


def serve_tcp(family: int, port: int, record: Path) -> None:
    with socket.socket(family, socket.SOCK_STREAM) as server:
        bind(server, family, port)
        server.listen(128)
        while True:
            client, caller = server.accept()
            threading.Thread(target=serve_client, args=(client, caller, port, record)).start()


def serve_client(client: socket.socket, caller: tuple[str, int], port: int, record: Path) -> None:
    with client:
        client.settimeout(10)
        try:
            if port == 53:
                query = client.recv(4096)[2:]
                note(record, b"dns")
                reply = answer_dns(query)
                client.sendall(struct.pack("!H", len(reply)) + reply)
            else:
                client.sendall(caller[0].encode() + b"\n")
                while payload := client.recv(4096):
                    note(record, payload)
        except OSError:
            return


def bind(server: socket.socket, family: int, port: int) -> None:
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    server.bind(("::" if family == socket.AF_INET6 else "0.0.0.0", port))


LOCK = threading.Lock()


def note(record: Path, payload: bytes) -> None:
    with LOCK, record.open("ab") as file:
        file.write(payload + b"\n")


def main() -> None:
    port, record = int(sys.argv[1]), Path(sys.argv[2])
    record.touch()
    for family in (socket.AF_INET, socket.AF_INET6):
        for number in (port, 53):
            for serve in (serve_udp, serve_tcp):
                threading.Thread(target=serve, args=(family, number, record), daemon=True).start()
    print("ready", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
