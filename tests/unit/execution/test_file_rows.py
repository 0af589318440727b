"""From a collection to the rows of a result."""

from __future__ import annotations

from runner.execution.outputs import EMPTY_SHA256, collected, merged, result_file
from runner.execution.request import ReferencedFile
from runner.wire import ObjectReference, ResultFile
from runner.workspace.outputs import Output, Outputs, Reason, Skipped, Status
from runner.workspace.paths import SafePath
from runner.workspace.priming import Primed

path = SafePath.parse


def output(name: str, origin: Primed | None = None) -> Output:
    return Output(path(name), 3, 0o755, "a" * 64, Status.NEW, origin)


def reference(name: str, **more: str) -> ReferencedFile:
    return ReferencedFile(path(name), f"id-{name}", "s", None, **more)


def test_files_and_markers_come_in_the_order_of_their_components() -> None:
    found = Outputs(files=[output("a/z"), output("a-b")], empty_dirs=[path("a/b"), path("b")])
    names = [each.name for each in collected(found, {}, {}, ()).deliverables]
    assert names == ["a/b/.dirkeep", "a/z", "a-b", "b/.dirkeep"]


def test_a_marker_is_delivered_once_and_must_have_a_name_that_can_come_back() -> None:
    deep = "/".join("d" * 10)
    found = Outputs(empty_dirs=[path("known"), path("new"), path(deep), path("x" * 250)])
    surfaced = {"known/.dirkeep": EMPTY_SHA256}
    [marker] = collected(found, {}, surfaced, ()).deliverables
    assert (marker.name, marker.output.size, marker.is_marker) == ("new/.dirkeep", 0, True)


def test_only_inputs_of_this_request_are_inherited() -> None:
    found = Outputs(unchanged=[path("now"), path("earlier"), path("inline")])
    primed = {name: Primed("b" * 64) for name in ("now", "earlier", "inline")}
    [row] = collected(found, primed, {}, (reference("now", entity_id="e"),)).inherited
    assert row == ResultFile(
        id="id-now", name="now", storage_session_id="s", inherited=True, entity_id="e"
    )


def test_the_input_behind_a_dropped_edit_still_stands() -> None:
    found = Outputs(
        skipped=[Skipped("ro", Reason.READ_ONLY_INPUT), Skipped("big", Reason.TOO_LARGE)],
        skipped_total=2,
    )
    result = collected(found, {}, {}, (reference("ro"), reference("big"), reference("gone")))
    assert [row.name for row in result.inherited] == ["ro"]
    assert [(row.name, row.reason) for row in result.skipped] == [
        ("ro", "read_only_input"),
        ("big", "too_large"),
    ]


def test_what_the_client_sent_back_is_what_it_has() -> None:
    """An output was delivered from here before; now its place holds what the client sent."""
    found = Outputs(unchanged=[path("x"), path("never-delivered")])
    primed = {"x": Primed("b" * 64), "never-delivered": Primed("c" * 64)}
    result = collected(found, primed, {"x": "a" * 64}, (reference("x"),))
    assert result.surfaced == {"x": "b" * 64}


def test_a_walk_that_did_not_end_is_told() -> None:
    result = collected(Outputs(complete=False), {}, {}, ())
    assert [(row.name, row.reason) for row in result.skipped] == [("*", "not_walked")]
    assert result.skipped_total == 1


def test_a_row_names_the_object_that_a_file_was_made_from() -> None:
    def row(origin: Primed | None) -> ResultFile:
        [deliverable] = collected(Outputs(files=[output("x", origin)]), {}, {}, ()).deliverables
        return result_file(deliverable, object_id="new", storage_session_id="out")

    made = row(Primed("b" * 64, input_id="i", storage_session_id="s"))
    assert made.modified_from == ObjectReference(id="i", storage_session_id="s")
    assert (made.id, made.storage_session_id, made.mode) == ("new", "out", 0o755)
    # Inline sources have no name on the file server.
    assert row(Primed("b" * 64)).modified_from is None and row(None).modified_from is None


def test_one_list_in_the_order_of_the_walk() -> None:
    rows = [ResultFile(id="i", name=name, storage_session_id="s") for name in ("a-b", "a/b", "c")]
    assert [row.name for row in merged([rows[2], rows[0]], [rows[1]])] == ["a/b", "a-b", "c"]
