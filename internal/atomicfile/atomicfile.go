// Package atomicfile replaces files atomically.
package atomicfile

import (
	"bufio"
	"encoding/json"
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

// Write replaces the file at path with the content that fill writes and the given permissions. Readers see the old or the new
// content, even after a crash, because the content is synced to disk before the rename. When Write returns nil, the new content
// survives a power failure. If fill or a step before the rename fails, the old file is unchanged and the temporary file is removed.
// A killed process leaves its temporary file; see Abandon.
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

// ReadJSON returns the value in a JSON file. ok is false if there is no file.
func ReadJSON[T any](path string) (value T, ok bool, err error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return value, false, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &value)
	}
	return value, err == nil, err
}

// SyncDir syncs a directory, so that the names of its files are on disk, if the system supports it.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if runtime.GOOS == "windows" || errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EINVAL) {
		err = nil // not supported for directories
	}
	return errors.Join(err, d.Close())
}

// tmpExt is the suffix of temporary files, whose names begin with a dot.
const tmpExt = ".tmp"

// Abandon removes the temporary files of Write in dir, of this process and of others, running or killed. A Write that started before
// fails and does not replace its file. A process that takes over a directory calls it, because the previous process may be suspended
// in a Write.
func Abandon(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find temporary files: %w", err)
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

// WriteBytes is like Write for content in memory.
func WriteBytes(path string, perm os.FileMode, content []byte) error {
	return Write(path, perm, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
}
