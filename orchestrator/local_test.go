package orchestrator

import (
	"os"
	"testing"

	"muster/internal/testutil"
	"muster/orchestrator/config"
)

func TestLocalAPIOfAnotherRedisIsNotUsed(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	cfg.DataDir = t.TempDir()
	if c, err := LocalAPI(t.Context(), cfg); c != nil || err != nil {
		t.Errorf("without a file: got %v, %v, want no client", c, err)
	}
	w := serveSystem(t)
	remove := testutil.Must(publishAPI(cfg, w.url, "key"))(t)
	if info, err := os.Stat(localAPIFile(cfg)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v, want mode 0600", info.Mode(), err)
	}
	if c, err := LocalAPI(t.Context(), cfg); c == nil || err != nil {
		t.Errorf("got %v, %v, want a client", c, err)
	}
	other := cfg
	other.Redis.URL = "redis://127.0.0.1:1/3"
	if c, err := LocalAPI(t.Context(), other); c != nil || err != nil {
		t.Errorf("with another Redis: got %v, %v, want no client", c, err)
	}
	removeOfSecond := testutil.Must(publishAPI(cfg, "http://127.0.0.1:1", "key"))(t)
	if c, err := LocalAPI(t.Context(), cfg); c != nil || err != nil {
		t.Errorf("nothing listens: got %v, %v, want no client", c, err)
	}
	remove()
	if _, err := os.Stat(localAPIFile(cfg)); err != nil {
		t.Errorf("the file of another orchestrator was removed: %v", err)
	}
	removeOfSecond()
	if _, err := os.Stat(localAPIFile(cfg)); err == nil {
		t.Error("the file remains after the orchestrator has stopped")
	}
}
