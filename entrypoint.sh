#!/bin/sh
# Makes the best of the container or VM that it finds itself in, says what it did, and becomes the
# daemon. Every step may fail: the daemon then says `advisory`, or the doctor says what is missing.
# shellcheck disable=SC3045 # ulimit -S and -H: dash, busybox and bash have them
set -eu

say() { printf 'entrypoint: %s\n' "$*" >&2; }

# 1. Open files: only ever upwards. A jail's life takes about ten descriptors.
soft=$(ulimit -Sn)
hard=$(ulimit -Hn)
if [ "$soft" != unlimited ] && [ "$soft" != "$hard" ] && ulimit -Sn "$hard" 2>/dev/null; then
	say "open files: raised from $soft to $hard"
else
	say "open files: $soft"
fi

# 2. cgroups: a container gets its own read-only unless it is privileged. On v2 the daemon then needs
#    a leaf of its own, so that the controllers can be given to the jails' groups (a group with
#    processes in it cannot have controllers for its children).
cgroup=/sys/fs/cgroup
read_only() { awk '$3 ~ /^cgroup2?$/ && $4 ~ /^ro(,|$)/ { print $2 }' /proc/mounts; }
read_only | while read -r target; do mount -o remount,bind,rw "$target" 2>/dev/null || true; done
delegate() {
	if [ -n "$(read_only)" ]; then
		say "cgroup: read-only, so limits are advisory; add SYS_ADMIN or mount $cgroup writable"
		return
	fi
	[ -f "$cgroup/cgroup.controllers" ] || { say "cgroup: v1 or none: nothing to delegate"; return; }
	mkdir -p "$cgroup/daemon" || return
	while read -r pid; do
		echo "$pid" >"$cgroup/daemon/cgroup.procs" 2>/dev/null || true # kernel threads stay
	done <"$cgroup/cgroup.procs"
	enabled=
	for controller in memory pids cpu; do
		if grep -qw "$controller" "$cgroup/cgroup.controllers" &&
			echo "+$controller" >"$cgroup/cgroup.subtree_control" 2>/dev/null; then
			enabled="$enabled $controller"
		fi
	done
	say "cgroup: v2, enabled for jails:${enabled:- none}"
}
delegate

# 3. /proc: a runtime hides parts of it behind mounts. Under those the kernel refuses a fresh procfs
#    to a user namespace, and egress cannot switch forwarding on. The jails make their own masks.
hidden=$(awk '$2 ~ "^/proc/" { print $2 }' /proc/mounts | sort -ru)
cleared=0
for target in $hidden; do
	if umount "$target" 2>/dev/null; then cleared=$((cleared + 1)); fi
done
left=$(awk '$2 ~ "^/proc/" { n++ } END { print n + 0 }' /proc/mounts)
say "/proc: $cleared masks removed, $left left"

# 4. The data root: nothing in it is ever to be run with a set-id bit or as a device.
data=${RUNNER_DATA_ROOT:-/var/lib/sandbox-runner}
mkdir -p "$data"
if awk -v d="$data" '$2 == d { found = 1 } END { exit !found }' /proc/mounts &&
	mount -o remount,nosuid,nodev "$data" 2>/dev/null; then
	say "data root: $data, nosuid and nodev"
else
	say "data root: $data"
fi

# 5. When the whole machine runs short of memory, the guests go first and the daemon last.
if echo -900 2>/dev/null >/proc/self/oom_score_adj; then say "OOM score: -900"; fi

# 6. PID 1 has to reap whatever is orphaned in its namespace; the daemon reaps its own children only.
if [ $$ -eq 1 ] && command -v tini >/dev/null; then
	say "PID 1: tini reaps and forwards signals"
	exec tini -- sandbox-runner "$@"
fi
exec sandbox-runner "$@"
