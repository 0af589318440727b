/*
 * launch: what runs between the daemon and nsjail, as root, outside the jail.
 *
 *   launch --parent PID --log-fd N --oom-score-adj N [--net-fd N] [--cgroup-fd N]... -- PROGRAM [ARG]...
 *
 * It ties the jail to the daemon's life, enters the jail's cgroups so that nsjail is born in them,
 * and puts back what the daemon's Python changed (signals, umask, directory). Doing this here
 * rather than in a preexec_fn lets the daemon spawn with vfork.
 *
 * A step that fails ends it with a status of its own and one line on the log descriptor.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	BAD_USAGE = 120,
	PARENT_GONE = 121,
	CGROUP_REFUSED = 122,
	EXEC_REFUSED = 123,
	NETWORK_REFUSED = 124,
};

static int log_fd = STDERR_FILENO;

static void fail(int status, const char *step)
{
	dprintf(log_fd, "launch: %s: %s\n", step, strerror(errno));
	_exit(status);
}

static int number(const char *text)
{
	char *end;
	errno = 0;
	long value = strtol(text, &end, 10);
	if (errno != 0 || *text == '\0' || *end != '\0' || value < -1000 || value > 0x7fffffff) {
		errno = EINVAL;
		fail(BAD_USAGE, text);
	}
	return (int)value;
}

/* The signal goes when the *thread* that spawned us ends: the daemon spawns from its main thread. */
static void die_with(pid_t parent)
{
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) == -1)
		fail(PARENT_GONE, "PR_SET_PDEATHSIG");
	if (getppid() != parent) {
		errno = ESRCH;
		fail(PARENT_GONE, "the daemon is gone");
	}
}

/* nsjail then makes no network namespace of its own. */
static void enter_network(int namespace_fd)
{
	if (setns(namespace_fd, CLONE_NEWNET) == -1)
		fail(NETWORK_REFUSED, "setns");
	close(namespace_fd);
}

static void enter_cgroup(int procs_fd)
{
	/* "0" stands for the writer itself. */
	if (write(procs_fd, "0", 1) != 1)
		fail(CGROUP_REFUSED, "cgroup.procs");
	close(procs_fd);
}

/*
 * Above the daemon's, so that the guest goes first when the whole VM runs short. A writer with
 * CAP_SYS_RESOURCE also sets the least value the guest may ever go back to. Best effort: some
 * containers mount /proc read-only.
 */
static void offer_to_oom_killer(int score)
{
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	if (fd == -1)
		return;
	dprintf(fd, "%d", score);
	close(fd);
}

/* Python ignores SIGPIPE and SIGXFSZ, and ignored signals stay ignored across exec. */
static void reset_signals(void)
{
	/* A zeroed kernel sigaction is SIG_DFL. The C library would not let us at 32 and 33. */
	static const char by_default[64];
	sigset_t none;
	for (int signum = 1; signum <= 64; signum++)
		syscall(SYS_rt_sigaction, signum, by_default, NULL, (size_t)8);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

int main(int argc, char **argv)
{
	int at = 1;

	for (; at + 1 < argc && strcmp(argv[at], "--") != 0; at += 2) {
		int value = number(argv[at + 1]);
		if (strcmp(argv[at], "--parent") == 0)
			die_with(value);
		else if (strcmp(argv[at], "--log-fd") == 0)
			log_fd = value;
		else if (strcmp(argv[at], "--oom-score-adj") == 0)
			offer_to_oom_killer(value);
		else if (strcmp(argv[at], "--cgroup-fd") == 0)
			enter_cgroup(value);
		else if (strcmp(argv[at], "--net-fd") == 0)
			enter_network(value);
		else {
			errno = EINVAL;
			fail(BAD_USAGE, argv[at]);
		}
	}
	if (at + 1 >= argc) {
		errno = EINVAL;
		fail(BAD_USAGE, "no program");
	}
	umask(022);
	if (chdir("/") == -1)
		fail(EXEC_REFUSED, "chdir");
	reset_signals();
	execv(argv[at + 1], argv + at + 1);
	fail(EXEC_REFUSED, "exec");
}
