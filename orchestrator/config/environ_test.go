package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
)

func TestEnvironReproducesSettings(t *testing.T) {
	t.Parallel()
	want := Default()
	want.DataDir = t.TempDir()
	want.Redis.URL = "redis://:secret@127.0.0.1:7000/3"
	want.Workers.Processes = 3
	want.Queue.MaxPerResolver = map[string]int{"crossref": 3, "unpaywall": 2}
	want.Proxies.Sources = []Source{{URL: "http://127.0.0.1:1/a.txt", Headers: map[string]string{"X-A": "${B}"}, Every: "1h"}, {URL: "list.txt"}}
	want.Proxies.MinUsable = 0
	want.Proxies.RefreshEvery = 0
	want.Sites.Schedule = map[string]string{"shop": "*/5 * * * *", "news": "@every 2h"}
	want.Sites.Parallel = false
	want.Jobs.KeepFor = map[string]time.Duration{"completed": 0, "failed": 90 * 24 * time.Hour}
	want.Wait.Poll = 250 * time.Millisecond
	want.API.Keys = []string{"hush-hush-1", "hush-hush-2"}
	want.Agents.Static = []Agent{{Role: "creator", URL: "http://127.0.0.1:7", Capacity: 3}, {Name: "x", Roles: []string{"a", "b"}, URL: "https://b.example/<c>"}}
	want.Queue.HostIntervalSeconds = 0.25
	want.Jobs.Keep, want.Jobs.KeepFor = 0, map[string]time.Duration{"failed": 90 * time.Minute, "completed": 0}

	// The environment of the child starts with the environment of its parent.
	file := write(t, "sites: {out: elsewhere}\n")
	inherited := []string{"MUSTER_CONFIG=" + file, "MUSTER_REDIS__URL_FILE=/run/secrets/redis", "MUSTER_WORKERS__PROCESSES=9", "MUSTER_LOG__LEVEL=debug"}
	shared := filepath.Join(t.TempDir(), "workers.yaml")
	testutil.Ok(t, want.WriteReloaded(shared))
	for _, file := range []string{"", shared} {
		got := testutil.Must(Load(Sources{Environ: append(inherited, want.Environ(file)...)}))(t)
		if !reflect.DeepEqual(got.Config, want) {
			t.Errorf("with the file %q: got  %+v\nwant %+v", file, got.Config, want)
		}
	}
	b := testutil.Must(os.ReadFile(shared))(t)
	if strings.Contains(string(b), "hush") {
		t.Errorf("the file contains a secret: %s", b)
	}
	if info, err := os.Stat(shared); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got mode %v, %v; want 0600", info.Mode(), err)
	}
}
