package config

import (
	"reflect"
	"testing"
	"time"
)

func TestEnvironMakesTheSameSettings(t *testing.T) {
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
	want.Jobs.KeepFor = map[string]time.Duration{"scrape": 0, "pipeline/failed": 90 * 24 * time.Hour}
	want.Wait.Poll = 250 * time.Millisecond

	// The child's environment begins with its parent's.
	file := write(t, "sites: {out: elsewhere}\n")
	inherited := []string{"MUSTER_CONFIG=" + file, "MUSTER_REDIS__URL_FILE=/run/secrets/redis", "MUSTER_WORKERS__PROCESSES=9"}
	got, err := Load(Sources{Environ: append(inherited, want.Environ()...)})
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got.Config, want) {
		t.Errorf("got  %+v\nwant %+v", got.Config, want)
	}
}
