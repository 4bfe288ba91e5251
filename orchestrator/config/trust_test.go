package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/testutil"
	"muster/internal/trust"
)

// A settings file can name a program to execute and files whose content is sent to a server, so it must be trusted.
func TestSettingsOfAnotherUserAreRejected(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	testutil.Ok(t, os.WriteFile(secret, []byte("s3same\n"), 0o600))
	text := "redis: {mode: external, server: /tmp/evil.sh, url: 'redis://:${file:" + secret + "}@127.0.0.1:1/0'}"
	refused := func(t *testing.T, file string) {
		t.Helper()
		l, err := Load(Sources{File: file})
		if !errors.Is(err, trust.ErrUntrusted) || strings.Contains(err.Error(), "s3same") {
			t.Errorf("got %+v, %v; want ErrUntrusted", l, err)
		}
	}
	t.Run("owner", func(t *testing.T) {
		t.Parallel()
		file := write(t, text)
		testutil.GiveToNobody(t, file)
		refused(t, file)
	})
	t.Run("permissions", func(t *testing.T) {
		t.Parallel()
		file := write(t, text)
		testutil.Ok(t, os.Chmod(file, 0o666))
		refused(t, file)
	})
}
