//go:build e2e && unix

package e2e

import (
	"os"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/orchestrator/demo"
)

// TestDemoOnABareMachine runs muster demo without Redis and without a configuration.
func TestDemoOnABareMachine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bare := []string{"PATH=" + t.TempDir(), "HOME=" + t.TempDir(), "TMPDIR=" + os.TempDir()}
	start := time.Now()
	r := muster(t, bare, "demo", "--json", "--dir", dir)
	r.wait(t, 0)
	if took := time.Since(start); took > 40*time.Second { // less than 15 s on a quiet machine
		t.Errorf("the demo took %s, want less than 40 s", took.Round(time.Second))
	}

	s := r.summary(t)
	if s.Redis != "embedded" {
		t.Errorf("the demo ran on Redis %q, want embedded", s.Redis)
	}
	if s.Proxies.Candidates < 40 {
		t.Errorf("%d candidates, want at least 40", s.Proxies.Candidates)
	}
	// All worlds have the same sites: this one only provides the truth.
	truth := testutil.Must(demo.Start(t.Context(), demo.Config{Dir: t.TempDir()}))(t)
	defer truth.Close()
	wantAll(t, truth, s)
}
