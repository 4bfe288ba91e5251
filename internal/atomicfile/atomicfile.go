// Package atomicfile replaces files atomically.
package atomicfile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// Write replaces the file at path with the content that fill writes, and the given
// permissions. A reader sees the old content or the new one, never a mixture,
// also after a crash: the content is synced to disk before it is renamed to path.
// When Write returns nil, it is the new one even after a power cut.
// If fill or a step up to the renaming fails, the old file stays and the temporary file is removed.
// A process that is killed leaves its temporary file; see Abandon.
func Write(path string, perm os.FileMode, fill func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*"+tmpExt)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
			err = fmt.Errorf("write %s: %w", path, err)
		}
	}()

	if err := f.Chmod(perm); err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 64<<10)
	if err := fill(w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// SyncDir syncs a folder, so that the names of the files in it are on the disk, where the system can do that.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if runtime.GOOS == "windows" || errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EINVAL) {
		err = nil // folders cannot be synced here
	}
	return errors.Join(err, d.Close())
}

// tmpExt is the suffix of temporary files, whose names begin with a dot.
const tmpExt = ".tmp"

// Abandon removes the temporary files of Writes in dir, of this process and of
// others, whether they are running or were killed. A Write that began before
// then fails and does not replace its file. A process that takes over a folder
// calls it, because the process before it may be suspended in a Write.
func Abandon(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for temporary files: %w", err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") || !strings.HasSuffix(e.Name(), tmpExt) {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove a temporary file: %w", err)
		}
	}
	return nil
}

// WriteBytes is Write for content in memory.
func WriteBytes(path string, perm os.FileMode, content []byte) error {
	return Write(path, perm, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
}
