// Package trust decides which settings, definitions and data directories are used: not those that another user of the
// machine has made or can change. A setting can name a program to run or a file to read.
package trust

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// ErrUntrusted means that another user owns a file or directory, or can write to it.
var ErrUntrusted = errors.New("untrusted owner or permissions")

// Check returns ErrUntrusted unless the file or directory at path, described by info, belongs to the user of this process
// or to root, and is not writable by every user. Its group may write. Devices, such as /dev/null, are not checked for
// permissions, and files without an owner, such as embedded ones, not at all.
func Check(path string, info fs.FileInfo) error {
	uid, known := owner(info)
	switch {
	case !known:
		return nil
	case uid != 0 && uid != os.Geteuid():
		return untrusted(path, fmt.Sprintf("it belongs to user %d; run this as that user, change the owner (chown), or use another path", uid))
	case info.Mode().Perm()&0o002 != 0 && info.Mode()&fs.ModeDevice == 0:
		return untrusted(path, "every user can write to it; run chmod o-w, or use another path")
	}
	return nil
}

func untrusted(path, why string) error {
	return &fs.PathError{Op: "open", Path: path, Err: fmt.Errorf("%w: %s", ErrUntrusted, why)}
}

// Dir is Check for the directory at path.
func Dir(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return Check(path, info)
}

// Open opens a file for reading if Check accepts it. The file that was opened is checked, not its path.
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
