package tasks_test

import (
	"bytes"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/redistest"
)

func TestParseURL(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		url, addrs, user, password, master, sentinel string
		db                                           int
		tls, cluster                                 bool
	}{
		{url: "redis://h", addrs: "h:6379"},
		{url: "redis://u:p%40w@h:1/3", addrs: "h:1", user: "u", password: "p@w", db: 3},
		{url: "rediss://:p@h:1", addrs: "h:1", password: "p", tls: true},
		{url: "unix:///run/redis.sock?db=2", addrs: "/run/redis.sock", db: 2},
		{url: "redis-cluster://h1", addrs: "h1:6379", cluster: true},
		{url: "redis-cluster://u:p@h1:1,h2:2,[::1]:3,::2/", addrs: "h1:1 h2:2 [::1]:3 [::2]:6379", user: "u", password: "p", cluster: true},
		{url: "rediss-cluster://h1,h2?pool_size=7", addrs: "h1:6379 h2:6379", cluster: true, tls: true},
		{url: "redis-sentinel://h1,h2:5/mymaster", addrs: "h1:26379 h2:5", master: "mymaster"},
		{url: "redis-sentinel://u:p@h1/mymaster?db=4&sentinel_password=s", addrs: "h1:26379", user: "u", password: "p", master: "mymaster", sentinel: "s", db: 4},
		{url: "redis-sentinel://h1,h2?master=mymaster", addrs: "h1:26379 h2:26379", master: "mymaster"},
		{url: "rediss-sentinel://h1/m", addrs: "h1:26379", master: "m", tls: true},
	} {
		o, err := tasks.ParseURL(c.url)
		if err != nil {
			t.Errorf("%s: got %v, want no error", c.url, err)
			continue
		}
		if got := strings.Join(o.Addrs, " "); got != c.addrs || o.Username != c.user || o.Password != c.password ||
			o.MasterName != c.master || o.SentinelPassword != c.sentinel || o.DB != c.db ||
			(o.TLSConfig != nil) != c.tls || o.IsClusterMode != c.cluster {
			t.Errorf("%s: got %s %+v, want %+v", c.url, got, o, c)
		}
	}
}

func TestParseURLRefuses(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"", "h:6379", "http://h", "redis-star://h", "redis-cluster://", "redis-cluster://h:0", "redis-cluster://h/2",
		"redis-sentinel://h1,h2", "redis-cluster://" + strings.Repeat("h,", 101),
		"redis://u:s%secret@h", "redis://u:secret@h:port", "redis-cluster://u:secret@h:port", "redis://u:12/secret@h",
		"redis-sentinel://u:s%secret@h/m", "redis://h/0?secretly=1",
	} {
		_, err := tasks.ParseURL(url)
		if err == nil {
			t.Errorf("%s: got no error, want one", url)
		} else if strings.Contains(err.Error(), "secret@") {
			t.Errorf("%s: got %v, want an error without the password", url, err)
		}
	}
}

// While a master of a cluster is down, its client must poll for the new master: it gets no notification.
func TestClusterClientFindsNewMaster(t *testing.T) {
	t.Parallel()
	client, err := tasks.Connect(t.Context(), redistest.ClusterURL(t))
	testutil.Ok(t, err)
	defer client.Close()
	if got := client.Redis().(*redis.ClusterClient).Options().ClusterStateReloadInterval; got > 5*time.Second {
		t.Errorf("it asks every %s, want every 5 s or more often", got)
	}
}

// The error about an untrusted certificate names the remedy.
func TestConnectErrorNamesRemedyForUntrustedCertificate(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	_, err := tasks.Connect(t.Context(), "rediss://"+server.Listener.Addr().String()+"/0?max_retries=-1")
	if err == nil || !strings.Contains(err.Error(), "SSL_CERT_FILE") || strings.Contains(err.Error(), "running") {
		t.Errorf("got %v, want one that names SSL_CERT_FILE", err)
	}
}

// A failed connection is one error of the caller; the pool of go-redis logs each dial to stderr by default.
func TestConnectErrorNamesMissingDatabase(t *testing.T) {
	t.Parallel()
	_, err := tasks.Connect(t.Context(), "redis://"+redistest.Server(t).Addr+"/99")
	if err == nil || !strings.Contains(err.Error(), "it has no database 99; use a lower number") {
		t.Errorf("got %v, want an error that names the database", err)
	}
}

func TestConnectLogsNothing(t *testing.T) {
	t.Parallel()
	if os.Getenv("MUSTER_TEST_CONNECT") != "" {
		if _, err := tasks.Connect(t.Context(), "redis://127.0.0.1:1/0"); err == nil {
			t.Fatal("connected to a closed port")
		}
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestConnectLogsNothing$")
	cmd.Env = append(os.Environ(), "MUSTER_TEST_CONNECT=1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil || strings.Contains(stderr.String(), "connection pool") {
		t.Fatalf("err %v, stderr:\n%s", err, &stderr)
	}
}
