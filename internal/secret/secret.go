// Package secret replaces references with secrets, so that settings files need not contain them.
//
//	${NAME}        the environment variable NAME
//	${file:PATH}   the content of the file PATH without trailing line ends
package secret

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// MaxFile is the maximum size of a secret file in bytes.
const MaxFile = 1 << 20

// Refers reports whether text contains a reference.
func Refers(text string) bool { return strings.Contains(text, "${") }

// Files returns the paths of the files to which text refers.
func Files(text string) []string {
	var files []string
	_ = each(text, func(string) {}, func(name string) error {
		if path, ok := strings.CutPrefix(name, "file:"); ok {
			files = append(files, path)
		}
		return nil
	})
	return files
}

// Expand replaces the references in text. It does not expand references in secrets. getenv returns an environment variable; an empty
// one counts as missing. The error lists all unresolved references and contains no secret.
func Expand(text string, getenv func(name string) (string, bool)) (string, error) {
	var out strings.Builder
	err := each(text, func(plain string) { out.WriteString(plain) }, func(name string) error {
		value, err := resolve(name, getenv)
		out.WriteString(value)
		return err
	})
	if err != nil {
		return "", err
	}
	return out.String(), nil
}

// each calls plain and reference for the parts of text in order, and joins the errors.
func each(text string, plain func(string), reference func(name string) error) error {
	var errs []error
	for {
		before, rest, found := strings.Cut(text, "${")
		plain(before)
		if !found {
			return errors.Join(errs...)
		}
		name, after, closed := strings.Cut(rest, "}")
		if !closed {
			return errors.Join(append(errs, errors.New("${ without }"))...)
		}
		errs = append(errs, reference(name))
		text = after
	}
}

func resolve(name string, getenv func(string) (string, bool)) (string, error) {
	if path, ok := strings.CutPrefix(name, "file:"); ok {
		return Read(path)
	}
	if name == "" {
		return "", errors.New("${} has no name; use ${NAME} or ${file:PATH}")
	}
	value, ok := getenv(name)
	if !ok || value == "" {
		return "", fmt.Errorf("environment variable %s is not set", name)
	}
	return value, nil
}

// Read returns the secret in a file without trailing line ends. An empty file is an error. The error contains the path but not the
// content.
func Read(path string) (string, error) {
	// Check before opening, because opening a FIFO would block.
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return "", fmt.Errorf("secret file %s: %w", path, why(err, "not a regular file"))
	}
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("secret file %s: %w", path, why(err, ""))
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	text := strings.TrimRight(string(b), "\r\n")
	switch {
	case err != nil:
		return "", fmt.Errorf("secret file %s: %w", path, why(err, ""))
	case len(b) > MaxFile:
		return "", fmt.Errorf("secret file %s: larger than %d bytes", path, MaxFile)
	case text == "":
		return "", fmt.Errorf("secret file %s: empty file", path)
	}
	return text, nil
}

// why returns err without its path, which the message already contains.
func why(err error, otherwise string) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	if err == nil {
		return errors.New(otherwise)
	}
	return err
}

// mounted lists the directories where containers mount secrets, which are readable by all users of the container.
var mounted = []string{"/run/secrets/", "/var/run/secrets/"}

// Exposed reports whether all users of the machine can read a file. Secrets mounted into a container are not exposed.
func Exposed(path string) bool {
	for _, dir := range mounted {
		if strings.HasPrefix(path, dir) {
			return false
		}
	}
	info, err := os.Stat(path)
	return err == nil && info.Mode().Perm()&0o004 != 0
}
