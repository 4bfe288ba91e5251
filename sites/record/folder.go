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

// nameFile is the file with the name of the folder that it is in.
const nameFile = ".muster-home"

// FolderName returns the name of a folder for records, and creates both the folder
// and its name when they do not exist. Processes that read the same name share
// the folder.
func FolderName(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make the folder for records: %w", err)
	}
	path := filepath.Join(dir, nameFile)
	if name := readName(dir); name != "" {
		return name, nil
	}
	tmp, err := os.CreateTemp(dir, nameFile+"-*")
	if err != nil {
		return "", fmt.Errorf("name the folder for records: %w", err)
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.WriteString(rand.Text() + "\n")
	if err = errors.Join(err, tmp.Close()); err != nil {
		return "", fmt.Errorf("name the folder for records: %w", err)
	}
	// Of several processes that do this at once, one creates the file, complete.
	if err := os.Link(tmp.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("name the folder for records: %w", err)
	}
	if name := readName(dir); name != "" {
		return name, nil
	}
	return "", fmt.Errorf("%s does not have the name of the folder; remove it", path)
}

// aName is what a folder can be called.
var aName = regexp.MustCompile(`^[!-~]{1,100}$`)

// readName returns the name of a folder, or "" when it has none here.
func readName(dir string) string {
	data, err := os.ReadFile(filepath.Join(dir, nameFile))
	name := strings.TrimSpace(string(data))
	if err != nil || !aName.MatchString(name) {
		return ""
	}
	return name
}
