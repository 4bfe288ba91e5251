//go:build e2e && unix

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
)

// TestCopyOfRedisIsRestored follows "Back up and restore" of docs/how-to/operating.md: the copy contains a completed job with its
// items, and an open job continues.
func TestCopyOfRedisIsRestored(t *testing.T) {
	t.Parallel()
	interpreter(t, "python3")
	interpreter(t, "redis-cli")
	from, to := newFleet(t, nil), newFleet(t, nil)
	dir := filepath.Join(to.dir, "data", "redis")
	testutil.Ok(t, os.MkdirAll(dir, 0o700))

	main := from.start(t)
	creator, validator := from.agent(t, "python3", "creator.py"), from.agent(t, "python3", "validator.py")
	var done, open agentJob
	from.do(t, http.MethodPost, "/jobs", map[string]any{"prompt": sentences("done", 9)}, &done)
	testutil.Eventually(t, "the end of the job", func() bool { return from.get("/jobs/"+done.ID, &done) == nil && done.Status == "completed" })
	done.Waiting = "" // from an earlier response
	items := from.items(t, done.ID)
	for _, a := range []*run{creator, validator} {
		a.end(syscall.SIGKILL)
	}
	from.do(t, http.MethodPost, "/jobs", map[string]any{"prompt": sentences("open", 9)}, &open)

	var info struct{ URL string }
	text, err := os.ReadFile(filepath.Join(from.dir, "data", "redis.json"))
	if err != nil || json.Unmarshal(text, &info) != nil {
		t.Fatalf("redis.json: %s, %v", text, err)
	}
	opts := testutil.Must(redis.ParseURL(info.URL))(t)
	password := testutil.Must(os.ReadFile(filepath.Join(from.dir, "data", "redis", "password")))(t)
	redisCLI := func(address string, args ...string) string {
		t.Helper()
		host, port, _ := strings.Cut(address, ":")
		cmd := exec.Command("redis-cli", append([]string{"-h", host, "-p", port}, args...)...)
		cmd.Env = append(os.Environ(), "REDISCLI_AUTH="+strings.TrimSpace(string(password)))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("redis-cli %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	redisCLI(opts.Addr, "--rdb", filepath.Join(dir, "dump.rdb"))
	main.interrupt(t)
	main.wait(t, 130)

	address := fmt.Sprintf("127.0.0.1:%d", testutil.FreePort(t))
	_, port, _ := strings.Cut(address, ":")
	server := launch(t, os.Environ(), exec.Command(redisServer(t), "--dir", dir, "--appendonly", "no", "--save", "", "--bind", "127.0.0.1", "--port", port))
	server.until(t, "a Redis with the copy", func() bool {
		out, err := exec.Command("redis-cli", "-p", port, "ping").Output()
		return err == nil && strings.HasPrefix(string(out), "PONG")
	})
	redisCLI(address, "config", "set", "appendonly", "yes")
	server.until(t, "the append-only file", func() bool {
		info := redisCLI(address, "info", "persistence")
		return strings.Contains(info, "aof_rewrite_in_progress:0") && strings.Contains(info, "aof_rewrite_scheduled:0")
	})
	redisCLI(address, "shutdown")
	<-server.done

	to.start(t)
	var after agentJob
	if err := to.get("/jobs/"+done.ID, &after); err != nil || !reflect.DeepEqual(after, done) {
		t.Errorf("the completed job: got %+v, %v, want %+v", after, err, done)
	}
	if got := to.items(t, done.ID); !reflect.DeepEqual(got, items) {
		t.Errorf("its items: got %+v, want %+v", got, items)
	}
	to.agent(t, "python3", "creator.py")
	to.agent(t, "python3", "validator.py")
	testutil.Eventually(t, "the end of the open job", func() bool { return to.get("/jobs/"+open.ID, &open) == nil && open.Status == "completed" })
	if open.Items.Integrated != 6 || open.Items.Rejected != 3 {
		t.Errorf("the open job: got %+v, want 6 integrated and 3 rejected", open.Items)
	}
}
