//go:build linux

// Package faultdisk makes calls of the system to the disk fail, for tests.
//
// A seccomp filter stops a thread, or a process and its children, at each call that changes files, and this process
// decides whether the call is made or fails. The code under test is as it is: it needs no seam.
package faultdisk

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Fault says which calls fail.
type Fault struct {
	Dir  string        // calls on files below it count
	N    int           // the number of the call that fails, from 1; 0: none
	Err  syscall.Errno // of the call
	Half bool          // a write stores half of its bytes, and the next call fails
	Stay bool          // all later calls fail, too, but for those that remove files
}

// Call is a call on a file.
type Call struct {
	Name, Path string
}

func (c Call) String() string { return c.Name + " " + c.Path }

// Disk watches calls.
type Disk struct {
	fault    Fault
	listener int

	mu    sync.Mutex // guards calls
	calls []Call
}

// Calls returns the calls so far.
func (d *Disk) Calls() []Call {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]Call(nil), d.calls...)
}

// Failed returns the call that failed first, if there was one.
func (d *Disk) Failed() (Call, bool) {
	calls := d.Calls()
	if d.fault.N == 0 || len(calls) < d.fault.N {
		return Call{}, false
	}
	return calls[d.fault.N-1], true
}

// Run calls fn on a thread of its own, whose calls are watched; those of goroutines that it starts are not. It returns
// the calls when fn has returned. Without support by the system the test is skipped.
func Run(t testing.TB, f Fault, fn func()) *Disk {
	t.Helper()
	return watch(t, f, true, fn)
}

// Start starts a command whose calls are watched, and those of the processes that it starts. Without support by the
// system the test is skipped.
func Start(t testing.TB, f Fault, cmd *exec.Cmd) *Disk {
	t.Helper()
	var err error
	d := watch(t, f, false, func() { err = cmd.Start() })
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// watch runs fn on a filtered thread. If wait is set, nothing is watched when it returns.
func watch(t testing.TB, f Fault, wait bool, fn func()) *Disk {
	t.Helper()
	dir, err := filepath.EvalSymlinks(f.Dir)
	if err != nil {
		t.Fatal(err)
	}
	f.Dir = dir
	d := &Disk{fault: f}
	installed, returned, served := make(chan error), make(chan struct{}), make(chan struct{})
	go onThread(func() {
		defer close(returned)
		var err error
		d.listener, err = install()
		installed <- err
		if err == nil {
			fn()
		}
	})
	if err := <-installed; err != nil {
		<-returned
		t.Skipf("NOT COVERED: calls to the disk cannot be watched here: %v", err)
	}
	go func() {
		defer close(served)
		d.serve()
		_ = unix.Close(d.listener)
	}()
	<-returned
	if wait {
		<-served
	} else {
		t.Cleanup(func() { <-served }) // the caller ends the process
	}
	return d
}

// onThread calls fn on a thread that ends afterwards: its goroutine never unlocks it.
func onThread(fn func()) {
	runtime.LockOSThread()
	if unix.Gettid() != os.Getpid() {
		fn()
		return
	}
	other := make(chan struct{}) // this is the first thread, which never ends
	go func() {
		defer close(other)
		onThread(fn)
	}()
	<-other
	runtime.UnlockOSThread()
}

// Constants of the kernel that package unix does not have.
const (
	newListener  = 1 << 3 // SECCOMP_FILTER_FLAG_NEW_LISTENER
	callContinue = 1      // SECCOMP_USER_NOTIF_FLAG_CONTINUE
	ioctlRecv    = 0xc0502100
	ioctlSend    = 0xc0182101
	retNotify    = 0x7fc00000
	retAllow     = 0x7fff0000
	offsetNr     = 0  // in struct seccomp_data
	offsetArgs   = 16 // eight bytes each, the low ones first
)

// names are the calls that are watched.
var names = map[int32]string{
	unix.SYS_OPENAT: "open", unix.SYS_WRITE: "write", unix.SYS_PWRITE64: "write", unix.SYS_FSYNC: "sync", unix.SYS_FDATASYNC: "sync",
	unix.SYS_RENAMEAT: "rename", unix.SYS_RENAMEAT2: "rename", unix.SYS_MKDIRAT: "mkdir", unix.SYS_UNLINKAT: "remove",
	unix.SYS_LINKAT: "link", unix.SYS_FTRUNCATE: "truncate", unix.SYS_FCHMOD: "chmod", unix.SYS_CLOSE: "close",
}

// install filters the calling thread, and the processes that it starts.
func install() (listener int, err error) {
	stmt := func(code uint16, k uint32) unix.SockFilter { return unix.SockFilter{Code: code, K: k} }
	load := func(offset uint32) unix.SockFilter {
		return stmt(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, offset)
	}
	ret := func(what uint32) unix.SockFilter { return stmt(unix.BPF_RET|unix.BPF_K, what) }
	skipUnless := func(op uint16, k uint32, n uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | op | unix.BPF_K, Jf: n, K: k}
	}
	var filter []unix.SockFilter
	events, err := eventFDs()
	if err != nil {
		return 0, err
	}
	for _, fd := range events {
		// The runtime wakes itself by these when it cannot wait for this package to run.
		filter = append(filter, load(offsetNr), skipUnless(unix.BPF_JEQ, unix.SYS_WRITE, 3),
			load(offsetArgs), skipUnless(unix.BPF_JEQ, uint32(fd), 1), ret(retAllow))
	}
	filter = append(filter, load(offsetNr), skipUnless(unix.BPF_JEQ, unix.SYS_OPENAT, 4),
		load(offsetArgs+2*8), skipUnless(unix.BPF_JSET, unix.O_WRONLY|unix.O_RDWR|unix.O_CREAT, 1), ret(retNotify), ret(retAllow))
	filter = append(filter, load(offsetNr))
	for nr := range names {
		filter = append(filter, skipUnless(unix.BPF_JEQ, uint32(nr), 1), ret(retNotify))
	}
	filter = append(filter, ret(retAllow))
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return 0, fmt.Errorf("no new privileges: %w", err)
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	fd, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, newListener, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return 0, fmt.Errorf("seccomp: %w", errno)
	}
	return int(fd), nil
}

// eventFDs are the open files of this process that wake its runtime.
func eventFDs() (fds []int, err error) {
	const dir = "/proc/self/fd"
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if to, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil && strings.HasSuffix(to, "[eventfd]") {
			fd, err := strconv.Atoi(e.Name())
			if err != nil {
				return nil, err
			}
			fds = append(fds, fd)
		}
	}
	return fds, err
}

// request is struct seccomp_notif, answer is struct seccomp_notif_resp.
type request struct {
	id   uint64
	pid  uint32 // the thread
	_    uint32
	nr   int32
	_    uint32
	_    uint64
	args [6]uint64
}

type answer struct {
	id    uint64
	val   int64
	errno int32
	flags uint32
}

// serve decides about calls until no process or thread is filtered any more.
func (d *Disk) serve() {
	for {
		poll := []unix.PollFd{{Fd: int32(d.listener), Events: unix.POLLIN}}
		if _, err := unix.Poll(poll, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		if poll[0].Revents&unix.POLLIN == 0 {
			if poll[0].Revents != 0 {
				return
			}
			continue
		}
		var req request
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(d.listener), ioctlRecv, uintptr(unsafe.Pointer(&req))); errno != 0 {
			continue // the process was killed meanwhile
		}
		reply := d.decide(&req)
		_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(d.listener), ioctlSend, uintptr(unsafe.Pointer(&reply))) // as above
	}
}

// decide says what becomes of a call.
func (d *Disk) decide(req *request) answer {
	pass := answer{id: req.id, flags: callContinue}
	path, ok := req.path()
	if !ok || path != d.fault.Dir && !strings.HasPrefix(path, d.fault.Dir+string(filepath.Separator)) {
		return pass
	}
	call := Call{names[req.nr], path}
	d.mu.Lock()
	d.calls = append(d.calls, call)
	after := len(d.calls) - d.fault.N // the call that fails
	halved := after == 1 && d.fault.Half && d.calls[len(d.calls)-2].Name == "write"
	d.mu.Unlock()
	fail := answer{id: req.id, errno: -int32(d.fault.Err)}
	switch {
	case d.fault.N == 0 || after < 0:
		return pass
	case after == 0 && d.fault.Half && call.Name == "write":
		if n, err := req.writeHalf(); err == nil {
			return answer{id: req.id, val: int64(n)}
		}
		return fail
	case after == 0, halved, d.fault.Stay && call.Name != "remove" && call.Name != "close":
		if call.Name == "close" {
			return pass // a file is closed whatever close returns, which only the kernel can do
		}
		return fail
	}
	return pass
}

// path is the absolute path of the file of a call: for a rename or link, the new one.
func (r *request) path() (string, bool) {
	proc := fmt.Sprintf("/proc/%d", r.pid)
	at, name := 0, 1
	switch r.nr {
	case unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_LINKAT:
		at, name = 2, 3
	case unix.SYS_OPENAT, unix.SYS_MKDIRAT, unix.SYS_UNLINKAT:
	default:
		to, err := os.Readlink(fmt.Sprintf("%s/fd/%d", proc, int32(r.args[0])))
		return strings.TrimSuffix(to, " (deleted)"), err == nil
	}
	mem, err := os.Open(proc + "/mem")
	if err != nil {
		return "", false
	}
	defer mem.Close()
	text := make([]byte, unix.PathMax)
	n, _ := mem.ReadAt(text, int64(r.args[name])) // less, if the memory ends there
	path, _, ok := bytes.Cut(text[:n], []byte{0})
	if !ok {
		return "", false
	}
	if filepath.IsAbs(string(path)) {
		return filepath.Clean(string(path)), true
	}
	from := proc + "/cwd"
	if fd := int32(r.args[at]); fd != unix.AT_FDCWD {
		from = fmt.Sprintf("%s/fd/%d", proc, fd)
	}
	dir, err := os.Readlink(from)
	return filepath.Join(dir, string(path)), err == nil
}

// writeHalf makes a write of half the bytes, with the open file of the process.
func (r *request) writeHalf() (int, error) {
	proc := fmt.Sprintf("/proc/%d", r.pid)
	status, err := os.ReadFile(proc + "/status")
	if err != nil {
		return 0, err
	}
	_, after, _ := strings.Cut(string(status), "\nTgid:")
	line, _, _ := strings.Cut(after, "\n")
	tgid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		return 0, err
	}
	pidfd, err := unix.PidfdOpen(tgid, 0)
	if err != nil {
		return 0, err
	}
	defer func() { _ = unix.Close(pidfd) }()
	fd, err := unix.PidfdGetfd(pidfd, int(r.args[0]), 0)
	if err != nil {
		return 0, err
	}
	defer func() { _ = unix.Close(fd) }()
	mem, err := os.Open(proc + "/mem")
	if err != nil {
		return 0, err
	}
	defer mem.Close()
	half := make([]byte, r.args[2]/2)
	if _, err := mem.ReadAt(half, int64(r.args[1])); err != nil {
		return 0, err
	}
	if r.nr == unix.SYS_PWRITE64 {
		return unix.Pwrite(fd, half, int64(r.args[3]))
	}
	return unix.Write(fd, half)
}

// Each calls attempt again and again, each time in a new folder, with another of its calls failing: with no space left,
// with half of a write stored and no space for the rest, and with an error of the disk. It calls check after each, with what failed, and at last with
// the zero Call after an attempt in which none did. An error that attempt returns must name the folder.
func Each(t *testing.T, attempt func(dir string) error, check func(dir string, failed Call, err error)) {
	t.Helper()
	for name, f := range map[string]Fault{
		"no space":          {Err: syscall.ENOSPC},
		"space for a half":  {Err: syscall.ENOSPC, Half: true},
		"no space any more": {Err: syscall.ENOSPC, Stay: true},
		"input and output":  {Err: syscall.EIO},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for f.N = 1; ; f.N++ {
				f.Dir = t.TempDir()
				var err error
				d := Run(t, f, func() { err = attempt(f.Dir) })
				failed, ok := d.Failed()
				if err != nil && !strings.Contains(err.Error(), f.Dir) {
					t.Errorf("%s fails: got the error %q, want one that names a file", failed, err)
				}
				if !ok && err != nil {
					t.Fatalf("got %v after %v, want an attempt without a fault to succeed", err, d.Calls())
				}
				check(f.Dir, failed, err)
				if !ok {
					return
				}
			}
		})
	}
}
