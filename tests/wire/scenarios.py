"""Which test replays which pair. Together they have to be all of pairs.json."""

from __future__ import annotations

STATELESS = (
    "health.ok",
    "execute.minimal",
    "execute.exit3",
    "execute.args_stdin",
    "execute.output_file",
    "execute.byref_input_unchanged",
    "download.get",
    "dirkeep.list",
    "execute.stdout_overflow",
    "execute.stderr_truncated",
    "execute.sigsegv",
    "execute.exit137_spoof",
    "execute.sigkill_no_status",
    "execute.malformed_header",
    "execute.compile_failed",
    "input_not_delivered",
    "aws.execute_from_control_plane",
)
BAD_REQUESTS = (
    "err.no_content_type",
    "err.bad_json",
    "err.json_scalar",
    "err.body_too_large",
    "err.no_files",
    "err.empty_files",
    "err.unknown_runtime",
    "err.file_both",
    "err.dup_dest",
    "err.conflict_dest",
    "err.traversal",
    "err.absolute",
    "err.cache_key",
    "err.limit_type",
    "err.limit_negative",
    "err.args",
    "err.env_too_big",
)
INPUTS = (
    "inputs.push",
    "probe.warm",
    "probe.bad_refs",
    "probe.dup",
    "probe.too_many",
    "inputs.expanded_mismatch",
    "inputs.not_gzip",
)
SESSION = (
    "session.execute.turn1",
    "session.execute.turn2_resend",
    "session.execute.turn4_same_bytes",
    "session.execute.other_session",
    "execute.headerless_while_bound",
    "session.no_uid_slot",
    "session.execute.missing_input",
    "session.execute.nul_name",
    "checkpoint.ok",
    "checkpoint.no_header",
    "checkpoint.malformed_header",
    "checkpoint.other_session",
    "restore.ok",
    "session.execute.after_restore",
)
REFUSED_RESTORES = ("restore.corrupt", "restore.extra_member", "restore.no_control")
PLAIN_RESTORE = ("session.execute.after_plain_restore",)
DIRTY = (
    "execute.setup_workspace_missing",
    "session.execute.while_dirty",
    "checkpoint.while_dirty",
    "restore.clears_dirty",
)
BROKEN_JAIL = (
    "execute.nsjail_setup_failed_255",
    "execute.setup_eperm",
    "spawn_failure_session",
)
BROKEN_SAVES = ("checkpoint.tar_failed_before_bytes", "checkpoint.failed_mid_stream")
NO_SESSIONS = ("execute.header_ignored_when_disabled", "checkpoint.disabled")
NO_FILE_SERVER = ("upload_unreachable",)
HOOKS = (
    "hooks.ready",
    "hooks.run.valid",
    "hooks.run.malformed",
    "hooks.run.badjson",
    "hooks.run.get",
    "hooks.terminate",
    "new_session_after_terminate",
)
#: What is not wanted yet. Ours ignores fields that it does not know: signed manifests and the tool
#: socket are neither checked nor refused, and a request runs as if they were not there.
LATER = (
    "err.tool_socket_not_configured",
    "manifest.body_tampered",
    "manifest.not_yet",
    "manifest.wrong_output_session",
    "manifest.bad_signature",
    "manifest.tool_socket_not_claimed",
    "manifest.cache_key_without_body_hash",
)
ALL = (
    STATELESS,
    BAD_REQUESTS,
    INPUTS,
    SESSION,
    REFUSED_RESTORES,
    PLAIN_RESTORE,
    DIRTY,
    BROKEN_JAIL,
    BROKEN_SAVES,
    NO_SESSIONS,
    NO_FILE_SERVER,
    HOOKS,
    LATER,
)
