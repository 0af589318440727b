/*
 * init: PID 1 of a jail. It starts the command, reaps, and tells the daemon what became of it.
 *
 *   init REPORT_FD [terminal:COLUMNS:ROWS] [NAME:SOFT:HARD]... -- COMMAND [ARG]...
 *
 * It runs with the session's UID behind the seccomp filter, and everything it starts is hostile:
 * nothing in the jail may write to the report socket or look into this process. NAME is a resource
 * of setrlimit(2), its limits are for the command only. With `terminal` the command leads a session
 * on a new terminal of the jail's own devpts, and the daemon is handed the master.
 *
 * Reports are datagrams of `struct report` in host byte order; jail/report.py reads them.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef __NR_pidfd_open
#define __NR_pidfd_open 434
#endif
#ifndef __NR_close_range
#define __NR_close_range 436
#endif

enum kind { UP = 1, STARTED = 2, EXEC_FAILED = 3, EXITED = 4, INIT_FAILED = 5, TERMINAL = 6 };

struct report {
	char magic[4];
	uint32_t kind;
	int64_t value; /* errno, or the raw wait status */
	uint64_t at_ns; /* CLOCK_MONOTONIC, the daemon's clock too */
	uint64_t user_ns;
	uint64_t system_ns;
	uint64_t max_rss_bytes;
};
_Static_assert(sizeof(struct report) == 48, "jail/report.py reads 48 bytes");

/* What the child writes into a pipe that a successful exec closes. */
struct failure {
	int32_t kind;
	int32_t error;
};

enum { STATUS_INIT_FAILED = 125, STATUS_EXEC_FAILED = 127 };

static int report_fd = -1;

static uint64_t timeval_ns(struct timeval time)
{
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_usec * 1000u;
}

static uint64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Sends one report; `passed_fd` travels with it unless it is -1. */
static void report_at(uint64_t at_ns, enum kind kind, int64_t value, int passed_fd)
{
	struct report message = { .magic = "SRI1", .kind = kind, .value = value, .at_ns = at_ns };
	struct rusage usage;
	struct iovec body = { .iov_base = &message, .iov_len = sizeof message };
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct msghdr header = { .msg_iov = &body, .msg_iovlen = 1 };

	getrusage(RUSAGE_CHILDREN, &usage);
	message.user_ns = timeval_ns(usage.ru_utime);
	message.system_ns = timeval_ns(usage.ru_stime);
	message.max_rss_bytes = (uint64_t)usage.ru_maxrss * 1024u;
	if (passed_fd != -1) {
		memset(&control, 0, sizeof control);
		header.msg_control = control.bytes;
		header.msg_controllen = sizeof control.bytes;
		struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
		rights->cmsg_level = SOL_SOCKET;
		rights->cmsg_type = SCM_RIGHTS;
		rights->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(rights), &passed_fd, sizeof(int));
	}
	while (sendmsg(report_fd, &header, MSG_NOSIGNAL) == -1 && errno == EINTR)
		;
}

static void report(enum kind kind, int64_t value)
{
	report_at(now_ns(), kind, value, -1);
}

static void give_up(int error)
{
	report(INIT_FAILED, error);
	_exit(STATUS_INIT_FAILED);
}

/* "fsize:SOFT:HARD". We hold no capability: a hard limit can only be lowered, so it is clamped. */
static int set_limit(const char *text)
{
	static const struct {
		const char *name;
		int resource;
	} known[] = {
		{ "as", RLIMIT_AS },       { "core", RLIMIT_CORE },     { "cpu", RLIMIT_CPU },
		{ "fsize", RLIMIT_FSIZE }, { "nofile", RLIMIT_NOFILE }, { "nproc", RLIMIT_NPROC },
	};
	const char *soft = strchr(text, ':');
	char *hard, *end;

	for (size_t i = 0; soft != NULL && i < sizeof known / sizeof *known; i++) {
		struct rlimit limit, now;
		size_t length = (size_t)(soft - text);
		if (strlen(known[i].name) != length || memcmp(known[i].name, text, length) != 0)
			continue;
		limit.rlim_cur = strtoull(soft + 1, &hard, 10);
		if (*hard != ':' || getrlimit(known[i].resource, &now) == -1)
			break;
		limit.rlim_max = strtoull(hard + 1, &end, 10);
		if (*end != '\0')
			break;
		if (limit.rlim_max > now.rlim_max)
			limit.rlim_max = now.rlim_max;
		if (limit.rlim_cur > limit.rlim_max)
			limit.rlim_cur = limit.rlim_max;
		return setrlimit(known[i].resource, &limit);
	}
	errno = EINVAL;
	return -1;
}

static void write_failure(int fd, enum kind kind)
{
	struct failure failure = { .kind = kind, .error = errno };
	while (write(fd, &failure, sizeof failure) == -1 && errno == EINTR)
		;
	_exit(STATUS_EXEC_FAILED);
}

/* The command goes before nsjail and init when its cgroup runs out of memory. */
static void offer_to_oom_killer(void)
{
	/* /proc/self belongs to root while we are not dumpable. */
	prctl(PR_SET_DUMPABLE, 1);
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	if (fd == -1)
		return;
	while (write(fd, "1000", 4) == -1 && errno == EINTR)
		;
	close(fd);
}

static void close_from(unsigned int first, int except)
{
	if (syscall(__NR_close_range, first, (unsigned int)except - 1, 0) == 0 &&
	    syscall(__NR_close_range, (unsigned int)except + 1, ~0u, 0) == 0)
		return;
	for (int fd = (int)first; fd < 1024; fd++)
		if (fd != except)
			close(fd);
}

static int is_terminal(const char *option)
{
	return strncmp(option, "terminal:", 9) == 0;
}

/*
 * Opens a terminal, hands its master to the daemon and returns the other end. The master is the
 * daemon's alone: when that is closed, the command's session is hung up.
 */
static int open_terminal(const char *option)
{
	struct winsize size = { 0 };
	int unlocked = 0;
	char *end;

	size.ws_col = (unsigned short)strtoul(option + 9, &end, 10);
	size.ws_row = (unsigned short)strtoul(end + (*end == ':'), NULL, 10);
	int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (master == -1 || ioctl(master, TIOCSPTLCK, &unlocked) == -1 ||
	    ioctl(master, TIOCSWINSZ, &size) == -1)
		give_up(errno);
	/* By descriptor: no name in /dev/pts has to be found. */
	int slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (slave == -1)
		give_up(errno);
	report_at(now_ns(), TERMINAL, 0, master);
	close(master);
	return slave;
}

static void sit_at(int slave, int failure_fd)
{
	if (ioctl(slave, TIOCSCTTY, 0) == -1 || dup2(slave, STDIN_FILENO) == -1 ||
	    dup2(slave, STDOUT_FILENO) == -1 || dup2(slave, STDERR_FILENO) == -1)
		write_failure(failure_fd, INIT_FAILED);
	close(slave);
}

static void become_command(char **limits, char **command, int failure_fd, int slave)
{
	sigset_t none;

	close(report_fd);
	/* Moved away from 3 so that the two ranges around it are never empty. */
	failure_fd = fcntl(failure_fd, F_DUPFD_CLOEXEC, 10);
	if (failure_fd == -1)
		_exit(STATUS_INIT_FAILED);
	/* A session of its own: `kill 0` reaches the command's group, not us. */
	if (setsid() == -1)
		write_failure(failure_fd, INIT_FAILED);
	if (slave != -1)
		sit_at(slave, failure_fd);
	close_from(3, failure_fd);
	offer_to_oom_killer();
	for (; strcmp(*limits, "--") != 0; limits++)
		if (!is_terminal(*limits) && set_limit(*limits) == -1)
			write_failure(failure_fd, INIT_FAILED);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execvp(command[0], command);
	write_failure(failure_fd, EXEC_FAILED);
}

/* Waits for the exec to succeed or fail, and reports which. A short command may be over by now:
 * its time counts from the fork. */
static void report_start(int failure_fd, uint64_t forked_at_ns)
{
	struct failure failure;
	ssize_t got;

	do
		got = read(failure_fd, &failure, sizeof failure);
	while (got == -1 && errno == EINTR);
	close(failure_fd);
	if (got == 0) {
		report_at(forked_at_ns, STARTED, 0, -1);
		return;
	}
	if (got != sizeof failure)
		give_up(EPROTO);
	report(failure.kind == EXEC_FAILED ? EXEC_FAILED : INIT_FAILED, failure.error);
	_exit(failure.kind == EXEC_FAILED ? STATUS_EXEC_FAILED : STATUS_INIT_FAILED);
}

/* Reaps orphans until the command itself has ended, and returns its raw wait status. */
static int reap_until(pid_t command)
{
	for (;;) {
		int status;
		pid_t ended = waitpid(-1, &status, 0);
		if (ended == command)
			return status;
		if (ended == -1 && errno != EINTR)
			give_up(errno);
	}
}

int main(int argc, char **argv)
{
	int separator = 2, failure_pipe[2], handle;

	while (separator < argc && strcmp(argv[separator], "--") != 0)
		separator++;
	if (separator + 1 >= argc)
		return STATUS_INIT_FAILED;
	report_fd = atoi(argv[1]);
	fcntl(report_fd, F_SETFD, FD_CLOEXEC);

	/* The programs to come share our UID: not dumpable means no ptrace, no /proc/1/fd, no
	 * pidfd_getfd, and no way to the report socket. */
	if (prctl(PR_SET_DUMPABLE, 0) == -1)
		give_up(errno);
	prctl(PR_SET_NAME, "init");

	/* The namespace ends with us. A pidfd names us for good, where a number could be reused. */
	handle = (int)syscall(__NR_pidfd_open, getpid(), 0);
	report_at(now_ns(), UP, 0, handle);
	if (handle != -1)
		close(handle);

	int slave = is_terminal(argv[2]) ? open_terminal(argv[2]) : -1;
	if (pipe2(failure_pipe, O_CLOEXEC) == -1)
		give_up(errno);
	uint64_t forked_at_ns = now_ns();
	pid_t command = fork();
	if (command == -1)
		give_up(errno);
	if (command == 0)
		become_command(argv + 2, argv + separator + 1, failure_pipe[1], slave);
	close(failure_pipe[1]);
	if (slave != -1)
		close(slave);
	report_start(failure_pipe[0], forked_at_ns);

	int status = reap_until(command);
	report(EXITED, status);
	/* The kernel ends whatever is left in the namespace. */
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}
