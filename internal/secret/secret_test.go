package secret_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"muster/internal/secret"
	"muster/internal/testutil"
)

func write(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	testutil.Ok(t, os.WriteFile(path, []byte(text), mode))
	return path
}

func env(name string) (string, bool) {
	value, ok := map[string]string{"USER": "u", "PASS": "p${USER}", "EMPTY": ""}[name]
	return value, ok
}

func TestExpand(t *testing.T) {
	t.Parallel()
	file := write(t, "top secret\r\n\n", 0o600)
	for text, want := range map[string]string{
		"":                            "",
		"no reference, $5 and }":      "no reference, $5 and }",
		"${USER}":                     "u",
		"a ${USER}:${PASS} b":         "a u:p${USER} b", // a secret is not expanded again
		"x-${file:" + file + "}-y":    "x-top secret-y",
		"${file:" + file + "}":        "top secret",
		"${USER}${file:" + file + "}": "utop secret",
	} {
		got, err := secret.Expand(text, env)
		if err != nil || got != want {
			t.Errorf("%q: got %q, %v; want %q", text, got, err, want)
		}
	}
	if got := secret.Files("${USER} ${file:/a} ${file:b"); !slices.Equal(got, []string{"/a"}) {
		t.Errorf("got the files %q, want /a", got)
	}
}

// One error lists all missing references and contains no secret.
func TestErrorListsAllMissingReferences(t *testing.T) {
	t.Parallel()
	empty, folder := write(t, "\n", 0o600), t.TempDir()
	for text, want := range map[string][]string{
		"${USER} ${ONE} ${TWO}":  {"variable ONE is not set", "variable TWO is not set"},
		"${EMPTY}":               {"variable EMPTY is not set"},
		"${}":                    {"use ${NAME}"},
		"${ONE} ${x":             {"variable ONE", "${ without }"},
		"${file:/none/x} ${ONE}": {"secret file /none/x: no such file", "variable ONE"},
		"${file:" + empty + "}":  {"empty file"},
		"${file:" + folder + "}": {"not a regular file"},
	} {
		got, err := secret.Expand(text, env)
		if err == nil || got != "" {
			t.Errorf("%q: got %q, %v; want an error", text, got, err)
			continue
		}
		for _, part := range want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q: got %q, want %q in it", text, err, part)
			}
		}
	}
	if _, err := secret.Read(write(t, strings.Repeat("x", secret.MaxFile+1), 0o600)); err == nil || strings.Contains(err.Error(), "xxx") {
		t.Errorf("a huge file: got %v, want an error without its content", err)
	}
}

func TestExposed(t *testing.T) {
	t.Parallel()
	for mode, want := range map[os.FileMode]bool{0o600: false, 0o640: false, 0o644: true} {
		path := write(t, "x", 0o600)
		testutil.Ok(t, os.Chmod(path, mode))
		if got := secret.Exposed(path); got != want {
			t.Errorf("mode %o: got %v, want %v", mode, got, want)
		}
	}
	if secret.Exposed("/none") {
		t.Error("a missing file is exposed")
	}
}
