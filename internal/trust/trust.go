// Package trust checks that settings, definitions and data directories cannot be modified by other users of the machine. A setting
// can name a program to execute or a file to read.
package trust

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// ErrUntrusted means that another user owns a file or directory, or can write to it.
var ErrUntrusted = errors.New("untrusted owner or permissions")

// Check returns ErrUntrusted unless the file or directory at path, described by info, belongs to the user of this process or to root,
// and is not world-writable. It may be group-writable. Permissions of devices, such as /dev/null, are not checked. Files without an
// owner, such as embedded files, are always trusted.
func Check(path string, info fs.FileInfo) error {
	uid, known := owner(info)
	switch {
	case !known:
		return nil
	case uid != 0 && uid != os.Geteuid():
		return untrusted(path, fmt.Sprintf("it belongs to user %d; run this command as that user, change the owner (chown), or use another path", uid))
	case info.Mode().Perm()&0o002 != 0 && info.Mode()&fs.ModeDevice == 0:
		return untrusted(path, "it is world-writable; run chmod o-w, or use another path")
	}
	return nil
}

func untrusted(path, why string) error {
	return &fs.PathError{Op: "open", Path: path, Err: fmt.Errorf("%w: %s", ErrUntrusted, why)}
}

// Dir is like Check for the directory at path.
func Dir(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return Check(path, info)
}

// Open opens a file for reading if Check accepts it. It checks the opened file instead of the path.
func Open(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = Check(path, info)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// ReadFile reads up to limit bytes of a regular file that Check accepts.
func ReadFile(fsys fs.FS, name string, limit int64) ([]byte, error) {
	info, err := fs.Stat(fsys, name) // before it is opened: a FIFO would block
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err = f.Stat(); err == nil {
		err = Check(name, info)
	}
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, limit))
}
