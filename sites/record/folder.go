package record

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// nameFile is the file with the name of its directory.
const nameFile = ".muster-home"

// FolderName returns the name of a records directory. It creates the directory and its name if they do not exist. Processes that
// read the same name share the directory.
func FolderName(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("create records directory: %w", err)
	}
	path := filepath.Join(dir, nameFile)
	if name := readName(dir); name != "" {
		return name, nil
	}
	tmp, err := os.CreateTemp(dir, nameFile+"-*")
	if err != nil {
		return "", fmt.Errorf("name records directory: %w", err)
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.WriteString(rand.Text() + "\n")
	if err = errors.Join(err, tmp.Close()); err != nil {
		return "", fmt.Errorf("name records directory: %w", err)
	}
	// Only one of several concurrent processes creates the file, and it is complete.
	if err := os.Link(tmp.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("name records directory: %w", err)
	}
	if name := readName(dir); name != "" {
		return name, nil
	}
	return "", fmt.Errorf("%s is not a valid directory name; remove the file", path)
}

// aName matches names of directories.
var aName = regexp.MustCompile(`^[!-~]{1,100}$`)

// readName returns the name of a directory, or "" if it has none on this machine.
func readName(dir string) string {
	data, err := os.ReadFile(filepath.Join(dir, nameFile))
	name := strings.TrimSpace(string(data))
	if err != nil || !aName.MatchString(name) {
		return ""
	}
	return name
}
