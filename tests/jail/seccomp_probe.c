/* Makes one system call after another inside a jail and says what each came to.
 *
 *   seccomp_probe refused   "<name> <errno>" a line; errno 0 when the call was let through
 *   seccomp_probe killed    "<name> <raw wait status>" a line. Each call is made in a process of
 *                           its own by a second thread, while the first waits to exit with 0: the
 *                           status tells a killed process from a killed thread.
 *
 * It refuses to run where no filter is in force. And should a filter let a call through that it
 * ought to stop, the call still fails: descriptors are -1, paths do not exist, pointers are BAD.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct attempt {
    const char *name;
    long nr;
    long args[6];
};

#define CALL(name, ...) {#name, SYS_##name, {__VA_ARGS__}}
#define AS(name, nr, ...) {name, SYS_##nr, {__VA_ARGS__}}
#define P(pointer) ((long)(pointer))
#define BAD 1L

static char scratch[4096];

static const struct attempt killed[] = {
    CALL(ptrace, 0), CALL(process_vm_readv, 1), CALL(process_vm_writev, 1),
#ifdef SYS_kexec_load
    CALL(kexec_load, 0),
#endif
    CALL(kexec_file_load, -1), CALL(init_module, BAD), CALL(finit_module, -1),
    CALL(delete_module, BAD), CALL(bpf, 0), CALL(perf_event_open, 0), CALL(userfaultfd, 0),
    CALL(lookup_dcookie, 0), CALL(nfsservctl, 0), CALL(keyctl, 0), CALL(add_key, 0),
    CALL(request_key, 0), CALL(mount, BAD, BAD), CALL(umount2, BAD), CALL(pivot_root, BAD),
    CALL(chroot, BAD), CALL(open_tree, -1), CALL(move_mount, -1), CALL(fsopen, 0),
    CALL(fsconfig, -1), CALL(fsmount, -1), CALL(fspick, -1), CALL(mount_setattr, -1),
    CALL(open_by_handle_at, -1), CALL(fanotify_init, 0), CALL(fanotify_mark, -1), CALL(setns, -1),
    CALL(reboot, 0), CALL(swapon, BAD), CALL(swapoff, BAD), CALL(settimeofday, BAD),
    CALL(clock_settime, 0, BAD), CALL(acct, BAD), CALL(quotactl, 0), CALL(quotactl_fd, -1),
#ifdef __x86_64__
    CALL(iopl, 3), CALL(ioperm, 0, 1, 1), CALL(modify_ldt, 0),
#endif
};

static const struct attempt refused[] = {
    AS("clone3", clone3, P(scratch), 64),
    AS("openat2", openat2, AT_FDCWD, P("/none"), P(scratch), 24),
    AS("io_uring_setup", io_uring_setup, 1, P(scratch)),
    AS("io_uring_enter", io_uring_enter, -1),
    AS("io_uring_register", io_uring_register, -1),
    {"a call of a later kernel", 1 << 20, {0}},
    {"the legacy asynchronous I/O", SYS_io_setup, {1, 0}},
    AS("clone user", clone, CLONE_NEWUSER | 17), AS("clone mount", clone, CLONE_NEWNS | 17),
    AS("clone net", clone, CLONE_NEWNET | 17), AS("clone pid", clone, CLONE_NEWPID | 17),
    AS("clone ipc", clone, CLONE_NEWIPC | 17), AS("clone uts", clone, CLONE_NEWUTS | 17),
    AS("clone cgroup", clone, CLONE_NEWCGROUP | 17),
    AS("clone with high bits", clone, (1L << 40) | CLONE_NEWUSER | 17),
    AS("unshare user", unshare, CLONE_NEWUSER), AS("unshare mount", unshare, CLONE_NEWNS),
    AS("unshare net", unshare, CLONE_NEWNET), AS("unshare time", unshare, 0x80),
    AS("unshare files", unshare, CLONE_FILES),
    AS("limit of pid 1", prlimit64, 1, 0, BAD, 0),
    AS("own limit", prlimit64, 0, 0, 0, P(scratch)),
    AS("ptrace attach", ptrace, 16, -1), AS("pidfd_getfd", pidfd_getfd, -1),
    AS("kcmp", kcmp, 1, 1),
    AS("sethostname", sethostname, BAD, 1), AS("setdomainname", setdomainname, BAD, 1),
    AS("syslog", syslog, 10), AS("adjtimex", adjtimex, BAD),
    AS("clock_adjtime", clock_adjtime, 0, BAD), AS("vhangup", vhangup, 0),
    AS("TIOCSTI", ioctl, -1, TIOCSTI, BAD),
    AS("TIOCSTI with high bits", ioctl, -1, (1L << 32) | TIOCSTI, BAD),
    AS("TIOCLINUX", ioctl, -1, TIOCLINUX, BAD), AS("TIOCSETD", ioctl, -1, TIOCSETD, BAD),
    AS("FS_IOC_SETFLAGS", ioctl, -1, 0x40086602, BAD),
    AS("FS_IOC_FSSETXATTR", ioctl, -1, 0x401c5820, BAD),
    AS("TCGETS", ioctl, -1, TCGETS, BAD),
    AS("PR_SET_MM", prctl, PR_SET_MM), AS("PR_SCHED_CORE", prctl, 62),
    AS("PR_SET_SYSCALL_USER_DISPATCH", prctl, 59), AS("PR_SET_NAME", prctl, PR_SET_NAME, P("x")),
    AS("seccomp listener", seccomp, 1, 8, BAD),
    AS("mknodat char", mknodat, AT_FDCWD, P("/none/x"), S_IFCHR | 0600, 0x103),
    AS("mknodat block", mknodat, AT_FDCWD, P("/none/x"), S_IFBLK | 0600, 0x103),
    AS("mknodat fifo", mknodat, AT_FDCWD, P("/none/x"), S_IFIFO | 0600),
    AS("mknodat set-uid", mknodat, AT_FDCWD, P("/none/x"), S_IFREG | 04700),
    AS("fchmod set-uid", fchmod, -1, 04755), AS("fchmod set-gid", fchmod, -1, 02755),
    AS("fchmod", fchmod, -1, 0755), AS("fchmodat set-uid", fchmodat, AT_FDCWD, P("/none"), 04755),
    AS("fchmodat sticky", fchmodat, AT_FDCWD, P("/none"), 01777),
    AS("openat set-uid", openat, AT_FDCWD, P("/none/x"), O_CREAT | O_WRONLY, 04755),
    AS("openat nameless set-uid", openat, AT_FDCWD, P("/none"), O_TMPFILE | O_WRONLY, 04755),
    AS("openat stray mode", openat, AT_FDCWD, P("/none"), O_RDONLY, 04755),
    AS("MADV_MERGEABLE", madvise, 0, 4096, 12), AS("personality", personality, 0x0400000),
    AS("personality query", personality, 0xffffffff),
    AS("socket vsock", socket, 40, SOCK_STREAM), AS("socket alg", socket, 38, 5),
    AS("socket packet", socket, 17, SOCK_RAW), AS("socket bluetooth", socket, 31, 3),
    AS("socket with high bits", socket, (1L << 32) | 40, SOCK_STREAM),
    AS("socket unix", socket, 1, SOCK_STREAM), AS("socket inet", socket, 2, SOCK_STREAM | 02000000),
    AS("socket inet6 udp", socket, 10, SOCK_DGRAM, 17),
    AS("socket inet raw", socket, 2, SOCK_RAW, 1), AS("socket inet6 raw", socket, 10, SOCK_RAW, 58),
    AS("socket inet packet", socket, 2, 10, 0x300), AS("socket ping", socket, 2, SOCK_DGRAM, 1),
    AS("socket sctp", socket, 2, 5, 132), AS("socket sctp stream", socket, 2, SOCK_STREAM, 132),
    AS("socket mptcp", socket, 2, SOCK_STREAM, 262), AS("socket route", socket, 16, SOCK_RAW, 0),
    AS("socket netfilter", socket, 16, SOCK_RAW, 12), AS("socket uevent", socket, 16, SOCK_RAW, 15),
    AS("socketpair unix", socketpair, 1, SOCK_STREAM, 0, P(scratch)),
    AS("socketpair tipc", socketpair, 30, SOCK_STREAM, 0, P(scratch)),
    AS("setsockopt TCP_ULP", setsockopt, -1, 6, 31, P("tls"), 3),
    AS("setsockopt TCP_NODELAY", setsockopt, -1, 6, 1, P(scratch), 4),
#ifdef __x86_64__
    AS("mknod char", mknod, P("/none/x"), S_IFCHR | 0600, 0x103),
    AS("mknod fifo", mknod, P("/none/x"), S_IFIFO | 0600),
    AS("chmod set-gid", chmod, P("/none"), 02755), AS("chmod", chmod, P("/none"), 0755),
    AS("creat set-uid", creat, P("/none/x"), 04755),
    AS("open set-uid", open, P("/none/x"), O_CREAT | O_WRONLY, 04755),
    AS("open", open, P("/none/x"), O_CREAT | O_WRONLY, 0755),
    /* x32: the same entry, bit 30 set; where the kernel has that ABI this would be getpid. */
    {"x32 getpid", 0x40000000 | SYS_getpid, {0}}, {"x32 ptrace", 0x40000000 | 521, {0}},
#endif
};

static long make(const struct attempt *a)
{
    return syscall(a->nr, a->args[0], a->args[1], a->args[2], a->args[3], a->args[4], a->args[5]);
}

static void *make_in_thread(void *attempt)
{
    make(attempt);
    return NULL;
}

#ifdef __x86_64__
/* getpid of the 32-bit table (20), through the 32-bit gate. */
static void *make_int80(void *unused)
{
    long result = 20;
    __asm__ volatile("int $0x80" : "+a"(result) : : "memory");
    return unused;
}
#endif

static void in_own_process(const char *name, void *(*run)(void *), void *argument, int threaded)
{
    int status;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        pthread_t thread;
        if (!threaded) {
            run(argument);
        } else {
            pthread_create(&thread, NULL, run, argument);
            sleep(2);
        }
        _exit(0);
    }
    waitpid(pid, &status, 0);
    printf("%s %d\n", name, status);
}

int main(int argc, char **argv)
{
    if (argc != 2 || getuid() == 0 || prctl(PR_GET_SECCOMP) != 2 /* SECCOMP_MODE_FILTER */) {
        fputs("seccomp_probe: only in a jail\n", stderr);
        return 2;
    }
    if (strcmp(argv[1], "killed") == 0) {
        for (size_t i = 0; i < sizeof(killed) / sizeof(*killed); i++)
            in_own_process(killed[i].name, make_in_thread, (void *)&killed[i], 1);
#ifdef __x86_64__
        in_own_process("int80", make_int80, NULL, 0);
#endif
        return 0;
    }
    for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
        errno = 0;
        long result = make(&refused[i]);
        printf("%s %d\n", refused[i].name, result == -1 ? errno : 0);
    }
    return 0;
}
