/* Ends a process and all its children at the K-th system call that changes the watched file system.
 *
 * A library (rigs/crash/tracer.py): `killat_arm` is called in the child that is going to be traced and puts a seccomp
 * filter over it, so that only the calls of interest stop; `killat_trace` is called in its parent and counts them, in
 * all of its children, grandchildren and whatever they execute. x86-64 Linux.
 *
 * mode  b  kill before call K       a  kill after it       t  let it write half of its bytes, then kill
 *       o  kill before it whoever makes it alone, a relay or a git of one: those that started it, or that it started, go on
 *       e  call K fails with `error`                       E  call K and every later one that can fail so do
 *       x  run `command` before call K, which goes on then: whatever can happen to others at that moment, and to the
 *          process that is traced (KILLAT_PID)
 *
 * With `on`, only calls are counted that are shown with this text; so a step has a name that no number of calls before it
 * changes. What a process sends to others is shown then too, by how it begins: a request, a statement of SQL.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* What a call acts on: w descriptor and bytes to write, v the same as a vector, o/p/q a path without, after or after
 * two directory descriptors, f another descriptor. `space`: it can fail with ENOSPC. */
static const struct call { short nr; char acts; char space; const char *name; } CALLS[] = {
    {SYS_write, 'w', 1, "write"}, {SYS_pwrite64, 'w', 1, "pwrite"}, {SYS_writev, 'v', 1, "writev"},
    {SYS_pwritev, 'v', 1, "pwritev"}, {SYS_sendfile, 'f', 1, "sendfile"}, {SYS_copy_file_range, 'c', 1, "copy_range"},
    {SYS_open, 'o', 1, "open"}, {SYS_creat, 'o', 1, "open"}, {SYS_openat, 'p', 1, "open"}, {SYS_openat2, 'p', 1, "open"},
    {SYS_rename, 'o', 1, "rename"}, {SYS_renameat, 'p', 1, "rename"}, {SYS_renameat2, 'p', 1, "rename"},
    {SYS_link, 'o', 1, "link"}, {SYS_linkat, 'q', 1, "link"}, {SYS_symlink, 's', 1, "symlink"},
    {SYS_symlinkat, 'q', 1, "symlink"}, {SYS_unlink, 'o', 0, "unlink"}, {SYS_unlinkat, 'p', 0, "unlink"},
    {SYS_rmdir, 'o', 0, "rmdir"}, {SYS_mkdir, 'o', 1, "mkdir"}, {SYS_mkdirat, 'p', 1, "mkdir"},
    {SYS_truncate, 'o', 1, "truncate"}, {SYS_ftruncate, 'f', 1, "truncate"}, {SYS_fallocate, 'f', 1, "fallocate"},
    {SYS_chmod, 'o', 0, "chmod"}, {SYS_fchmod, 'f', 0, "chmod"}, {SYS_fchmodat, 'p', 0, "chmod"},
    {SYS_fsync, 'f', 1, "fsync"}, {SYS_fdatasync, 'f', 1, "fsync"}, {SYS_sendto, 'n', 0, "send"},
};
#define COUNT ((int)(sizeof CALLS / sizeof *CALLS))
#define CREATES (O_CREAT | O_TRUNC | (O_TMPFILE & ~O_DIRECTORY))
#define MAX_TASKS 4096

struct outcome { long count; int status; int reached; int orphans; char where[200]; };

int killat_arm(void) {
    struct sock_filter code[8 + 5 * COUNT];
    int n = 0;
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < COUNT; i++) { /* of the opens only those that make or empty a file */
        int flags = CALLS[i].nr == SYS_open ? 1 : CALLS[i].nr == SYS_openat ? 2 : 0;
        code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, CALLS[i].nr, 0, flags ? 4 : 1);
        if (flags) {
            code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                                     offsetof(struct seccomp_data, args) + 8 * flags);
            code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CREATES, 1, 0);
            code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
        }
        code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE);
    }
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {.len = n, .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return errno;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) ? errno : 0;
}

static pid_t tasks[MAX_TASKS];
static int alive;
static void add(pid_t pid) {
    for (int i = 0; i < alive; i++) if (tasks[i] == pid) return;
    if (alive < MAX_TASKS) tasks[alive++] = pid;
}
static void drop(pid_t pid) {
    for (int i = 0; i < alive; i++) if (tasks[i] == pid) { tasks[i] = tasks[--alive]; return; }
}
static int kill_all(pid_t main_pid) { /* a task may still be making another one: until nobody is left */
    int status = -1, seen;
    do {
        for (int i = 0; i < alive; i++) kill(tasks[i], SIGKILL);
        pid_t pid = waitpid(-1, &seen, __WALL);
        if (pid < 0) return status;
        if (WIFSTOPPED(seen)) add(pid), kill(pid, SIGKILL), ptrace(PTRACE_CONT, pid, 0, SIGKILL);
        else drop(pid), status = pid == main_pid ? seen : status;
    } while (1);
}

static void kill_session(pid_t session) { /* each relay leads one, and so does each git */
    for (int i = 0; i < alive; i++) if (getsid(tasks[i]) == session) kill(tasks[i], SIGKILL);
}

static int read_word(pid_t pid, unsigned long at, void *into, size_t size) {
    struct iovec here = {into, size}, there = {(void *)at, size};
    return process_vm_readv(pid, &here, 1, &there, 1, 0) > 0;
}
/* The device that a call acts on; 0 for a pipe, a socket, or nothing that exists. */
static dev_t find_device(pid_t pid, const struct user_regs_struct *r, const struct call *c, char *shown) {
    char path[4096] = "", place[4200];
    struct stat found;
    unsigned long args[] = {r->rdi, r->rsi, r->rdx, r->r10};
    if (c->acts == 'n') {
        ssize_t n = read_word(pid, args[1], shown, args[2] < 149 ? args[2] : 149) ? (ssize_t)(args[2] < 149 ? args[2] : 149) : 0;
        for (ssize_t i = 0; i < n; i++) if (shown[i] < ' ') shown[i] = ' ';
        shown[n] = 0;
        return 0;
    }
    if (strchr("wvf", c->acts) || c->acts == 'c') {
        snprintf(place, sizeof place, "/proc/%d/fd/%d", pid, (int)args[c->acts == 'c' ? 2 : 0]);
        ssize_t n = readlink(place, shown, 150);
        shown[n > 0 ? n : 0] = 0;
        if (stat(place, &found) || !(S_ISREG(found.st_mode) || S_ISDIR(found.st_mode))) return 0;
        return found.st_dev;
    }
    /* s: symlink(target, path); symlinkat(target, dir, path) and linkat(dir, path, dir, path): the new name */
    int at = c->nr == SYS_symlinkat ? 1 : c->nr == SYS_linkat ? 2 : 0;
    unsigned long name = c->acts == 'o' ? args[0] : c->acts == 's' ? args[1] : args[at + 1];
    for (size_t i = 0; i < sizeof path - 1;) { /* page by page: a string may end just before one that is not mapped */
        size_t piece = 4096 - ((name + i) & 4095), left = sizeof path - 1 - i;
        if (!read_word(pid, name + i, path + i, piece < left ? piece : left)) return 0;
        if (memchr(path + i, 0, piece < left ? piece : left)) break;
        i += piece;
    }
    snprintf(shown, 150, "%.140s", path);
    if (path[0] == '/') snprintf(place, sizeof place, "/proc/%d/root%s", pid, path);
    else if (strchr("os", c->acts) || (int)args[at] == AT_FDCWD) snprintf(place, sizeof place, "/proc/%d/cwd/%s", pid, path);
    else snprintf(place, sizeof place, "/proc/%d/fd/%d/%s", pid, (int)args[at], path);
    if (!lstat(place, &found) && !S_ISREG(found.st_mode) && !S_ISDIR(found.st_mode) && !S_ISLNK(found.st_mode)) return 0;
    char *slash = strrchr(place, '/');
    slash[1] = 0;
    return stat(place, &found) ? 0 : found.st_dev;
}
/* Halve what a write writes; false when there is nothing to halve. */
static int halve(pid_t pid, struct user_regs_struct *r, const struct call *c) {
    struct iovec first;
    if (c->acts == 'v') {
        if (!read_word(pid, r->rsi, &first, sizeof first) || first.iov_len < 2) return 0;
        r->orig_rax = c->nr == SYS_writev ? SYS_write : SYS_pwrite64;
        r->rsi = (unsigned long)first.iov_base, r->rdx = first.iov_len;
    }
    unsigned long long *size = c->acts == 'f' && c->nr == SYS_sendfile ? &r->r10 : c->acts == 'c' ? &r->r8 : &r->rdx;
    if (!strchr("wvc", c->acts) && c->nr != SYS_sendfile) return 0;
    if (*size < 2) return 0;
    *size /= 2;
    return 1;
}

/* Trace the child `pid`, which waits for a byte from `go`, to its end or to call `k` on `device`; `log` may be NULL.
 * With `no_sync` every fsync says that it worked and does nothing. `on` and `command` may be NULL. */
int killat_trace(pid_t pid, int go, long k, char mode, int error, unsigned long device, int no_sync, const char *log,
                 double limit_s, const char *on, const char *command, struct outcome *out) {
    FILE *file = log ? fopen(log, "w") : NULL;
    struct timespec start, now;
    pid_t doomed = 0; /* to be killed with everybody else when its call has been made */
    int status, main_done = 0;
    sigset_t children;
    sigemptyset(&children), sigaddset(&children, SIGCHLD), sigprocmask(SIG_BLOCK, &children, NULL);
    memset(out, 0, sizeof *out);
    alive = 0;
    long wanted = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE |
                  PTRACE_O_TRACESECCOMP | PTRACE_O_EXITKILL;
    if (ptrace(PTRACE_SEIZE, pid, 0, wanted)) return errno;
    add(pid);
    char main_pid[20];
    snprintf(main_pid, sizeof main_pid, "%d", pid), setenv("KILLAT_PID", main_pid, 1);
    if (write(go, "", 1) != 1) return errno;
    clock_gettime(CLOCK_MONOTONIC, &start);
    while (alive) {
        pid_t who = waitpid(-1, &status, __WALL | WNOHANG);
        if (who == 0) {
            clock_gettime(CLOCK_MONOTONIC, &now);
            double passed = now.tv_sec - start.tv_sec + (now.tv_nsec - start.tv_nsec) / 1e9;
            if (passed > limit_s) { out->orphans = main_done ? alive : -1; kill_all(pid); break; }
            sigtimedwait(&children, NULL, &(struct timespec){0, 20000000});
            continue;
        }
        if (who < 0) break;
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            drop(who);
            if (who == pid) { /* its children get a moment to follow it */
                out->status = status, main_done = 1;
                clock_gettime(CLOCK_MONOTONIC, &start);
                limit_s = strchr("ox", mode) ? 30 : 3; /* they hand over */
            }
            continue;
        }
        add(who);
        int event = status >> 16, signal = WSTOPSIG(status);
        if (event == PTRACE_EVENT_STOP && signal != SIGTRAP) { /* stopped by a signal, as a whole */
            ptrace(PTRACE_LISTEN, who, 0, 0);
            continue;
        }
        if (signal == (SIGTRAP | 0x80)) { /* the end of a call */
            if (who == doomed) { out->status = kill_all(pid); break; }
            ptrace(PTRACE_CONT, who, 0, 0);
            continue;
        }
        if (event != PTRACE_EVENT_SECCOMP) {
            ptrace(PTRACE_CONT, who, 0, event ? 0 : signal);
            continue;
        }
        struct user_regs_struct regs;
        if (ptrace(PTRACE_GETREGS, who, 0, &regs)) continue; /* killed meanwhile */
        const struct call *call = NULL;
        for (int i = 0; i < COUNT; i++) if (CALLS[i].nr == (long)regs.orig_rax) call = &CALLS[i];
        char shown[200] = "";
        int is_watched = !doomed && call && (find_device(who, &regs, call, shown) == device || (on && call->acts == 'n'));
        if (is_watched && on) {
            char line[220];
            snprintf(line, sizeof line, "%s %s", call->name, shown);
            is_watched = strstr(line, on) != NULL;
        }
        if (!is_watched) {
            ptrace(PTRACE_CONT, who, 0, 0);
            continue;
        }
        if (no_sync && !strcmp(call->name, "fsync")) regs.orig_rax = -1, regs.rax = 0, ptrace(PTRACE_SETREGS, who, 0, &regs);
        out->count++;
        if (file) fprintf(file, "%ld\t%s\t%lld\t%d\t%s\n", out->count, call->name,
                          strchr("wv", call->acts) ? (long long)regs.rdx : 0, who, shown), fflush(file);
        int now_due = mode == 'E' ? out->count >= k && k > 0 : out->count == k;
        if (now_due && (mode == 'e' || mode == 'E') && error == ENOSPC && !call->space) now_due = 0;
        if (!now_due) {
            ptrace(PTRACE_CONT, who, 0, 0);
            continue;
        }
        if (!out->reached) snprintf(out->where, sizeof out->where, "%s %.150s", call->name, shown);
        out->reached = 1;
        if (mode == 'e' || mode == 'E') {
            regs.orig_rax = -1, regs.rax = -error;
            ptrace(PTRACE_SETREGS, who, 0, &regs);
            ptrace(PTRACE_CONT, who, 0, 0);
        } else if (mode == 'x') {
            if (command && system(command)) out->reached = 3; /* the command failed */
            ptrace(PTRACE_CONT, who, 0, 0);
        } else if (mode == 'o') {
            kill_session(getsid(who));
        } else if (mode == 'b' || (mode == 't' && !halve(who, &regs, call))) {
            out->reached = mode == 'b' ? 1 : 2; /* nothing to tear: killed before it */
            out->status = kill_all(pid);
            break;
        } else {
            if (mode == 't') ptrace(PTRACE_SETREGS, who, 0, &regs);
            doomed = who;
            ptrace(PTRACE_SYSCALL, who, 0, 0);
        }
    }
    if (file) fclose(file);
    return 0;
}
