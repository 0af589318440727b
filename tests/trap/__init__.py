"""A trap at the kernel's door: every system call with which a daemon changes its files.

A seccomp filter with a listener (seccomp_unotify(2)) stops the daemon at each such call until the
test has decided: let it run, make it fail with an errno, or kill the daemon before it happens.
Nothing of the daemon is changed, and no call of it can slip past.
"""
