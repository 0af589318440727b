"""The hostile corpus: members and archives that the reader has to refuse, and for which reason."""

from __future__ import annotations

import os
from collections.abc import Callable

from tests.unit.checkpoint import forge
from tests.unit.checkpoint.forge import ROOT, directory, file, hard_link, header, pax, record

#: What no checkpoint of ours holds, by the reason it is refused for: members that sort behind
#: `session/&`.
UNSAFE_MEMBERS = {
    "name: absolute name": file(b"/etc/cron.d/evil", b"x"),
    "name: absolute name in pax": pax(record(b"path", b"/etc/evil")) + file(b"session/a"),
    "name: dot dot": file(b"session/../evil", b"x"),
    "name: dot dot at the end": directory(b"session/.."),
    "name: dot dot in the middle": file(b"session/a/../b"),
    "name: only dot dot": file(b".."),
    "name: dot": file(b"session/./a"),
    "name: dot at the end": directory(b"session/."),
    "name: empty component": file(b"session//a"),
    "name: not below session": file(b"a"),
    "name: a neighbour of session": file(b"sessions/a"),
    "order: session twice": ROOT,
    "order: session as a file": file(b"session"),
    "name: a slash behind a file": file(b"session/a/"),
    "name: no name": file(b""),
    "name: no name in pax": pax(record(b"path", b"/")) + file(b"session/a"),
    "header: nul in a name": file(b"session/a\x00b"),
    "name: too long a component": pax(record(b"path", b"session/" + b"n" * 256))
    + file(b"session/n"),
    "type: device": header(b"session/a", b"3", devices=b"0000001\x000000003\x00"),
    "type: block device": header(b"session/a", b"4", devices=b"0000010\x000000001\x00"),
    "type: fifo": header(b"session/a", b"6"),
    "type: contiguous file": header(b"session/a", b"7"),
    "type: old regular file": header(b"session/a", b"\x00"),
    "type: GNU sparse": header(b"session/a", b"S"),
    "type: GNU long name": header(b"././@LongLink", b"L", size=5) + forge.padded(b"x" * 5),
    "type: GNU long link": header(b"././@LongLink", b"K", size=5) + forge.padded(b"x" * 5),
    "type: GNU dump directory": header(b"session/a", b"D"),
    "type: GNU volume": header(b"session/a", b"V"),
    "type: multi-volume": header(b"session/a", b"M"),
    "type: Solaris ACL": header(b"session/a", b"A"),
    "type: global pax header": header(b"g", b"g", size=12) + forge.padded(b"12 mtime=10\n"),
    "type: unknown type": header(b"session/a", b"Z"),
    "set_id: set-uid": file(b"session/a", mode=0o4755),
    "set_id: set-gid": file(b"session/a", mode=0o2755),
    "set_id: set-uid directory": directory(b"session/a/", mode=0o4755),
    "set_id: type bits in the mode": file(b"session/a", mode=0o100644),
    "owner: uid": file(b"session/a", uid=1000),
    "owner: gid": file(b"session/a", gid=1000),
    "header: owner's name": file(b"session/a", uname=b"root"),
    "header: group's name": file(b"session/a", gname=b"root"),
    "header: device numbers of a file": file(b"session/a", devices=b"0000001\x000000003\x00"),
    "header: prefix": file(b"a", prefix=b"session"),
    "header: bytes behind the header": file(b"session/a", tail=b"x" * 12),
    "header: GNU magic": file(b"session/a", magic=b"ustar  \x00"),
    "header: no magic": file(b"session/a", magic=bytes(8)),
    "header: base-256 size": header(b"session/a", size=b"\x80" + bytes(10) + b"\x00"),
    "header: base-256 negative size": header(b"session/a", size=b"\xff" * 12),
    "header: size with a blank": header(b"session/a", size=b"00000000000 "),
    "header: size with a sign": header(b"session/a", size=b"-0000000001\x00"),
    "header: size not octal": header(b"session/a", size=b"00000000008\x00"),
    "header: size with an underscore": header(b"session/a", size=b"0000000_001\x00"),
    "header: empty size": header(b"session/a", size=bytes(12)),
    "header: base-256 mtime": header(b"session/a", mtime=b"\x80" + bytes(11)),
    "header: mode with a blank": header(b"session/a", mode=b" 000644\x00"),
    "body: directory with a body": header(b"session/a/", b"5", size=3) + forge.padded(b"abc"),
    "body: symlink with a body": header(b"session/a", b"2", size=3, link=b"x")
    + forge.padded(b"abc"),
    "body: hard link with a body": header(b"session/a", b"1", size=3, link=b"session/%")
    + forge.padded(b"abc"),
    "link: file with a link name": file(b"session/a", link=b"session/%"),
    "link: symlink without a target": header(b"session/a", b"2", mode=0o777),
    "link: symlink with too long a target": pax(record(b"linkpath", b"x" * 4096))
    + header(b"session/a", b"2", link=b"x"),
    "link: hard link out": hard_link(b"session/a", b"/etc/passwd"),
    "link: hard link out by dot dot": hard_link(b"session/a", b"session/../../workspace/file"),
    "link: hard link to the neighbour": hard_link(b"session/a", b"other"),
    "link: hard link to the root": hard_link(b"session/a", b"session"),
    "link: hard link to what is not there": hard_link(b"session/a", b"session/nothing"),
    "link: hard link to itself": hard_link(b"session/a", b"session/a"),
    "pax: unknown record": pax(record(b"SCHILY.xattr.user.x", b"y")) + file(b"session/a"),
    "pax: GNU sparse": pax(record(b"GNU.sparse.major", b"1")) + file(b"session/a"),
    "pax: uid": pax(record(b"uid", b"0")) + file(b"session/a"),
    "pax: uname": pax(record(b"uname", b"root")) + file(b"session/a"),
    "pax: repeated": pax(record(b"mtime", b"1") * 2) + file(b"session/a"),
    "pax: empty value": pax(record(b"path", b"")) + file(b"session/a"),
    "pax: nul in a path": pax(record(b"path", b"session/a\x00b")) + file(b"session/a"),
    "pax: other charset": pax(record(b"hdrcharset", b"UTF-16")) + file(b"session/a"),
    "pax: nothing in it": pax(b"") + file(b"session/a"),
    "pax: mtime in hex": pax(record(b"mtime", b"0x10")) + file(b"session/a"),
    "pax: mtime nan": pax(record(b"mtime", b"nan")) + file(b"session/a"),
    "pax: mtime too large": pax(record(b"mtime", b"9" * 19)) + file(b"session/a"),
    "pax: negative size": pax(record(b"size", b"-1")) + file(b"session/a"),
    "pax: two headers": pax(record(b"mtime", b"1")) * 2 + file(b"session/a"),
    "pax: for another pax": pax(record(b"path", b"session/z")) + pax(record(b"mtime", b"1")),
}  # fmt: skip

#: Whole archives: what is wrong is the order or the company of members.
UNSAFE_ARCHIVES = {
    "order: a file twice": [ROOT, file(b"session/a", b"1"), file(b"session/a", b"2")],
    "order: a directory twice": [ROOT, directory(b"session/a/"), directory(b"session/a/")],
    "order: a file, then a directory": [ROOT, file(b"session/a"), directory(b"session/a/")],
    "order: a directory, then a file": [ROOT, directory(b"session/a/"), file(b"session/a")],
    "order: a file, then a link over it": [
        ROOT, file(b"session/a"), forge.symlink(b"session/a", b"/etc"),
    ],
    "order: a write through a symlink": [
        ROOT, forge.symlink(b"session/a", b"/etc"), file(b"session/a/evil", b"x"),
    ],
    "order: a write through a symlink to staging": [
        ROOT, forge.symlink(b"session/a", b"../other"), file(b"session/a", b"x"),
    ],
    "order: a directory over a symlink": [
        ROOT, forge.symlink(b"session/a", b"/etc"), directory(b"session/a/"),
        file(b"session/a/evil"),
    ],
    "link: a hard link to a symlink": [
        ROOT, forge.symlink(b"session/a", b"/etc/passwd"), hard_link(b"session/b", b"session/a"),
    ],
    "link: a hard link through a symlink": [
        ROOT, forge.symlink(b"session/a", b"/etc"), hard_link(b"session/b", b"session/a/passwd"),
    ],
    "link: a hard link to a directory": [
        ROOT, directory(b"session/a/"), hard_link(b"session/b", b"session/a"),
    ],
    "link: a hard link to a later file": [
        ROOT, hard_link(b"session/a", b"session/b"), file(b"session/b"),
    ],
    "order: a write below a file": [ROOT, file(b"session/a"), file(b"session/a/b")],
    "order: a write below a hard link": [
        ROOT, file(b"session/a"), hard_link(b"session/b", b"session/a"), file(b"session/b/c"),
    ],
    "order: no directory for it": [ROOT, file(b"session/a/b")],
    "order: its directory comes later": [ROOT, file(b"session/a/b"), directory(b"session/a/")],
    "order: back into a directory that was left": [
        ROOT, directory(b"session/a/"), file(b"session/b"), file(b"session/a/c"),
    ],
    "order: out of order": [ROOT, file(b"session/b"), file(b"session/a")],
    "order: out of order by case": [ROOT, file(b"session/a"), file(b"session/B")],
    "order: in the order of whole names": [
        ROOT, file(b"session/a.b"), directory(b"session/a/"), file(b"session/a/c"),
    ],
    "order: no root": [file(b"session/a")],
    "order: nothing at all": [],
    "order: the root is a symlink": [forge.symlink(b"session", b"/etc"), file(b"session/evil")],
    "order: the root is a file": [file(b"session")],
    "order: the root is a hard link": [hard_link(b"session", b"session/a")],
}  # fmt: skip

#: Damage that was there when the seal was put on.
CORRUPT = {
    "checksum": ROOT + header(b"session/a", checksum=1),
    "no checksum": ROOT + header(b"session/a")[:148] + bytes(8) + header(b"session/a")[156:],
    "padding of a body": ROOT + header(b"session/a", size=3) + forge.padded(b"abc", b"x"),
    "padding of a pax header": ROOT
    + header(b"x", b"x", size=12)
    + forge.padded(b"12 mtime=10\n", b"x")
    + file(b"session/a"),
    "pax without length": ROOT + pax(b"mtime=10\n") + file(b"session/a"),
    "pax length too long": ROOT + pax(b"99 mtime=10\n") + file(b"session/a"),
    "pax length too short": ROOT + pax(b"8 mtime=10\n") + file(b"session/a"),
    "pax length with zeros": ROOT + pax(b"013 mtime=10\n") + file(b"session/a"),
    "pax without newline": ROOT + pax(b"12 mtime=10x") + file(b"session/a"),
    "pax without equals": ROOT + pax(b"9 mtime1\n") + file(b"session/a"),
    "pax and no member": ROOT + pax(record(b"mtime", b"10")) + bytes(512),
    "body cut": ROOT + header(b"session/a", size=5000) + b"x" * 512,
}  # fmt: skip

#: Each built when it is asked for: some are large.
BOMBS: dict[str, Callable[[], bytes]] = {
    "zeros": lambda: forge.sealed(ROOT, file(b"session/a", bytes(64 << 20))),
    "a size that lies": lambda: forge.sealed(ROOT, header(b"session/a", size=8**11 - 1)),
    "a pax size that lies": lambda: forge.sealed(
        ROOT, pax(record(b"size", b"9" * 18)) + file(b"session/a")
    ),
    "many small ones": lambda: forge.sealed(
        ROOT, *(file(b"session/%05d" % n) for n in range(2000))
    ),
    "a long name": lambda: forge.sealed(
        ROOT, pax(record(b"path", b"session/" + b"n" * 20_000)) + file(b"session/n")
    ),
    "an endless pax header": lambda: forge.sealed(ROOT, pax(record(b"path", b"n" * (1 << 20)))),
    "a large sidecar": lambda: forge.gzipped(
        ROOT + header(b"runner-sidecar.json", size=17 << 20) + bytes(17 << 20) + forge.END
    ),
    "incompressible": lambda: forge.sealed(ROOT, file(b"session/a", os.urandom(2 << 20))),
}
