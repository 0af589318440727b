"""Inputs by reference through the real daemon: pushed, probed, used, returned."""

from __future__ import annotations

from tests.fileserver import FileServer
from tests.harness import Daemon
from tests.pushing import Item, batch, expanded

CSV = Item("hs", "h1", b"x,y\n1,2\n")
SKILL = Item("hs", "h2", b"# SKILL\n", read_only=True)


async def push(daemon: Daemon, *items: Item, **headers: str):
    return await daemon.request(
        "POST",
        "/session/inputs",
        data=batch(*items),
        headers={"Content-Type": "application/x-gtar", **headers},
    )


async def missing(daemon: Daemon, *items: Item) -> list[str]:
    refs = [{"cache_key": item.key} for item in items]
    reply = await daemon.request("POST", "/session/inputs/probe", json={"refs": refs})
    assert reply.status == 200, reply.json
    return [each["cache_key"] for each in reply.json["missing"]]


def reference(item: Item, name: str, **more: str) -> dict[str, str]:
    return {"id": item.id, "storage_session_id": item.session, "name": name, **more}


def files(reply) -> dict[str, dict]:
    assert reply.status == 200, reply.json
    return {each["name"]: each for each in reply.json["files"]}


async def test_a_pushed_input_is_no_longer_missing_and_runs(daemon: Daemon) -> None:
    assert await missing(daemon, CSV, SKILL) == [CSV.key, SKILL.key]
    declared = {"X-CodeAPI-Input-Expanded-Bytes": str(expanded((CSV, SKILL)))}
    pushed = await push(daemon, CSV, SKILL, **declared)
    assert (pushed.status, pushed.json) == (200, {"stored": 2})
    assert await missing(daemon, CSV, SKILL) == []
    reply = await daemon.execute(
        "print(open('in.csv').read(), open('skill/SKILL.md').read())",
        files=[reference(CSV, "in.csv", entity_id="ent-1"), reference(SKILL, "skill/SKILL.md")],
    )
    assert reply.json["run"]["stdout"] == "x,y\n1,2\n # SKILL\n\n"
    assert reply.json["files"] == [
        {
            "id": "h1",
            "name": "in.csv",
            "storage_session_id": "hs",
            "inherited": True,
            "entity_id": "ent-1",
        },
        {"id": "h2", "name": "skill/SKILL.md", "storage_session_id": "hs", "inherited": True},
    ]


async def test_edits_name_their_origin_and_read_only_ones_are_dropped(daemon: Daemon) -> None:
    await push(daemon, CSV, SKILL)
    sent = [reference(CSV, "in.csv"), reference(SKILL, "skill.md")]
    code = """
import os
open('in.csv','a').write('3,4\\n')
os.unlink('skill.md'); open('skill.md','w').write('mine')
"""
    reply = await daemon.execute(code, session="s", files=sent, output_session_id="o1")
    found = files(reply)
    assert found["in.csv"]["modified_from"] == {"id": "h1", "storage_session_id": "hs"}
    assert found["in.csv"]["storage_session_id"] == "o1"
    assert found["skill.md"] == sent[1] | {"inherited": True}
    assert [(each["name"], each["reason"]) for each in reply.json["skipped"]] == [
        ("skill.md", "read_only_input")
    ]
    # The same original again, under another id: the edit stays, and is not returned twice.
    again = [{**each, "id": each["id"] + "_again"} for each in sent]
    for each, item in zip(again, (CSV, SKILL), strict=True):
        each["input_cache_key"] = item.key
    reply = await daemon.execute(
        "print(open('in.csv').read(), open('skill.md').read())", session="s", files=again
    )
    assert reply.json["run"]["stdout"] == "x,y\n1,2\n3,4\n # SKILL\n\n"
    assert list(files(reply)) == ["skill.md"]
    assert files(reply)["skill.md"]["id"] == "h2_again"


async def test_edits_outlive_the_same_original_and_not_another_one(daemon: Daemon) -> None:
    """For inputs by reference and inline ones alike: their bytes decide, not their ids."""
    newer = Item("hs", "h9", b"newer")
    await push(daemon, CSV, newer)

    async def turn(code: str, item: Item, text: str) -> str:
        inline = {"name": "inline", "content": text}
        sent = [reference(item, "in.csv"), inline]
        reply = await daemon.execute(code, session="s", files=sent)
        return reply.json["run"]["stdout"]

    show = "print(open('in.csv').read(), open('inline').read())"
    edit = "for n in ('in.csv', 'inline'): open(n, 'w').write('edited')"
    assert await turn(show, CSV, "first") == "x,y\n1,2\n first\n"
    await turn(edit, CSV, "first")
    assert await turn(show, CSV, "first") == "edited edited\n"
    assert await turn(show, newer, "second") == "newer second\n"
    await turn("import os; os.unlink('in.csv'); os.mkdir('in.csv')", newer, "second")
    assert await turn(show, newer, "second") == "newer second\n"


async def test_what_the_client_sends_back_unchanged_is_inherited(daemon: Daemon) -> None:
    await push(daemon, CSV)
    edit = "open('in.csv','a').write('3,4\\n')"
    first = await daemon.execute(edit, session="s", files=[reference(CSV, "in.csv")])
    edited = Item("o1", files(first)["in.csv"]["id"], b"x,y\n1,2\n3,4\n")
    await push(daemon, edited)
    second = await daemon.execute("1", session="s", files=[reference(edited, "in.csv")])
    assert files(second) == {"in.csv": reference(edited, "in.csv") | {"inherited": True}}
    third = await daemon.execute("1", session="s")
    assert files(third) == {}


async def test_a_missing_input_changes_nothing_and_is_named(daemon: Daemon) -> None:
    await daemon.execute("open('kept','w').write('1')", session="s")
    reply = await daemon.execute("1", session="s", files=[reference(CSV, "a/b.csv")])
    assert reply.status == 409
    assert reply.json["error"] == "input_unavailable"
    assert reply.json["field"] == "a/b.csv" and reply.json["recycle"] is False
    after = await daemon.execute("import os; print(sorted(os.listdir()))", session="s")
    assert after.json["run"]["stdout"] == "['kept', 'main']\n"


async def test_one_object_goes_to_several_places(start) -> None:
    async with FileServer() as server:
        server.put("s1", "f1", b"bytes")
        daemon = await start(RUNNER_FILE_SERVER_URL=server.url)
        item = Item("s1", "f1", b"bytes")
        sent = [reference(item, name) for name in ("a", "b/c", "b/d")]
        reply = await daemon.execute(
            "print(*(open(n).read() for n in ('a','b/c','b/d')))", files=sent
        )
        assert reply.json["run"]["stdout"] == "bytes bytes bytes\n"
        assert [(each["name"], each["inherited"]) for each in reply.json["files"]] == [
            ("a", True),
            ("b/c", True),
            ("b/d", True),
        ]
        assert len([each for each in server.requests("GET") if "?" not in each.path]) == 1


async def test_empty_directories_come_back_beside_the_files_of_their_session(start) -> None:
    def row(name: str, session: str = "s1") -> dict[str, object]:
        return {"id": f"id-{name}", "name": name, "storage_session_id": session, "size": 0}

    async with FileServer() as server:
        server.put("s1", "f1", b"bytes")
        server.listings["s1"] = [
            row("empty/deep/.dirkeep"),
            row("other.txt"),
            row("../up/.dirkeep"),
            row(".dirkeep"),
            row("a/.dirkeep"),
            row("prefix/.dirkeep", "s1-and-more"),
        ]
        daemon = await start(RUNNER_FILE_SERVER_URL=server.url)
        # `a` is a file of this request: no directory of that name can be made.
        sent = [reference(Item("s1", "f1", b""), "a")]
        reply = await daemon.execute("import os; print(os.listdir('empty'))", files=sent)
        assert reply.json["run"]["stdout"] == "['deep']\n"
        marker = {"id": "id-empty/deep/.dirkeep", "storage_session_id": "s1", "inherited": True}
        assert files(reply) == {
            "a": sent[0] | {"inherited": True},
            "empty/deep/.dirkeep": marker | {"name": "empty/deep/.dirkeep"},
        }
        # A session keeps its directories by itself, and may have removed one on purpose.
        reply = await daemon.execute("import os; print(os.listdir())", session="s", files=sent)
        assert "empty" not in reply.json["run"]["stdout"]


async def test_outputs_are_uploaded_and_only_what_arrived_is_returned(start) -> None:
    async with FileServer() as server:
        daemon = await start(RUNNER_FILE_SERVER_URL=server.url)
        code = """
import os
os.makedirs('empty/deep')
for name in ('a.csv', 'b.bin', 'naïve \\n.txt'):
    open(name, 'w').write(name)
"""
        server.refusals = [403]
        reply = await daemon.execute(
            code, session="s", output_session_id="out/1", egress_grant="ceg1.grant"
        )
        uploads = server.requests("PUT")
        assert len(uploads) == 4
        assert {each.headers["x-codeapi-egress-grant"] for each in uploads} == {"ceg1.grant"}
        returned = files(reply)
        [skipped] = reply.json["skipped"]
        assert skipped["reason"] == "upload_refused"
        names = {"a.csv", "b.bin", "empty/deep/.dirkeep", "naïve \n.txt"}
        assert returned.keys() == names - {skipped["name"]}
        for name, row in returned.items():
            assert len(row["id"]) == 21 and row["storage_session_id"] == "out/1"
            stored = server.objects[("out/1", row["id"])]
            assert stored.body.decode() == ("" if name.endswith(".dirkeep") else name)
        # What did not get there is offered again, the rest is not.
        again = await daemon.execute("1", session="s")
        assert files(again).keys() == {skipped["name"]}
        assert files(await daemon.execute("1", session="s")) == {}


async def test_the_same_fifty_come_first(daemon: Daemon) -> None:
    code = "for n in range(60): open(f'f{n:02}','w').write('x')"
    for session in (None, "s"):
        reply = await daemon.execute(code, session=session)
        assert list(files(reply)) == [f"f{n:02}" for n in range(50)]
        assert [(s["name"], s["reason"]) for s in reply.json["skipped"]] == [
            (f"f{n}", "too_many") for n in range(50, 60)
        ]
    rest = await daemon.execute("1", session="s")
    assert list(files(rest)) == [f"f{n}" for n in range(50, 60)]
