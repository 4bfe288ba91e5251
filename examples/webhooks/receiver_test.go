// Package webhooks_test sends webhooks to the receiver of this directory.
package webhooks_test

import (
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/internal/webhook"
)

// The receiver accepts requests signed with its secret, prints each event once, and rejects others.
func TestReceiverChecksSignatures(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skipf("NOT COVERED: no python3 to run receiver.py (%v)", err)
	}
	secret, addr := webhook.NewSecret(), testutil.FreeAddr(t)
	var out testutil.Output
	cmd := exec.Command(python, "receiver.py")
	cmd.Env = append(os.Environ(), "WEBHOOK_SECRET="+secret, "WEBHOOK_LISTEN="+addr, "PYTHONDONTWRITEBYTECODE=1")
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })

	client := &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}
	t.Cleanup(client.CloseIdleConnections)
	send := func(id, body string, at time.Time, secrets ...string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+"/", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if err := webhook.Sign(req.Header, id, at, []byte(body), secrets...); err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			return 0
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	const body = `{"type":"job.completed","timestamp":"2026-01-02T03:04:05Z","data":{"event_id":"1-0","job_id":"j1"}}`
	testutil.Eventually(t, "the receiver to listen", func() bool { return send("1-0", body, time.Now(), secret) == http.StatusNoContent })
	for name, c := range map[string]struct {
		at      time.Time
		secrets []string
		want    int
	}{
		"again":               {time.Now(), []string{secret}, 204},
		"during a rotation":   {time.Now(), []string{webhook.NewSecret(), secret}, 204},
		"with another secret": {time.Now(), []string{webhook.NewSecret()}, 401},
		"not signed":          {time.Now(), nil, 401},
		"an hour old":         {time.Now().Add(-time.Hour), []string{secret}, 401},
	} {
		if got := send("1-0", body, c.at, c.secrets...); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
	if got := out.String(); got != "job.completed j1\n" {
		t.Errorf("got output %q, want the event once", got)
	}
}
