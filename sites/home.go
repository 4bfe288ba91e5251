package sites

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// homeFile names the folder that it lies in, for processes on machines that
// may or may not share it.
const homeFile = ".muster-home"

// homeOf returns the name of a folder for records, and makes both when they
// are not there.
func homeOf(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the folder for records: %w", err)
	}
	path := filepath.Join(dir, homeFile)
	if name := readHome(dir); name != "" {
		return name, nil
	}
	tmp, err := os.CreateTemp(dir, homeFile+"-*")
	if err != nil {
		return "", fmt.Errorf("name the folder for records: %w", err)
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.WriteString(rand.Text() + "\n")
	if err = errors.Join(err, tmp.Close()); err != nil {
		return "", fmt.Errorf("name the folder for records: %w", err)
	}
	// Of many who do this at once, one wins, with a whole file.
	if err := os.Link(tmp.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("name the folder for records: %w", err)
	}
	if name := readHome(dir); name != "" {
		return name, nil
	}
	return "", fmt.Errorf("%s is empty; remove it", path)
}

// readHome returns the name of a folder, or "" when it has none here.
func readHome(dir string) string {
	data, err := os.ReadFile(filepath.Join(dir, homeFile))
	if err != nil || len(data) > 100 {
		return ""
	}
	return strings.TrimSpace(string(data))
}
