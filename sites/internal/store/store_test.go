package store

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/sites/report"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func TestValueThatCannotBeDecodedNamesItsKey(t *testing.T) {
	t.Parallel()
	rdb, ctx := redistest.New(t), t.Context()
	testutil.Ok(t, rdb.Set(ctx, SummaryKey("job"), `{"site":`, 0).Err())
	if _, _, err := ReadJSON[report.Summary](ctx, rdb, SummaryKey("job")); err == nil || !strings.Contains(err.Error(), SummaryKey("job")) {
		t.Errorf("summary: got %v, want an error with the key %s", err, SummaryKey("job"))
	}
	testutil.Ok(t, rdb.HSet(ctx, HealthKey("shop"), "job", "{").Err())
	if _, err := HealthOf(ctx, rdb, "shop"); err == nil || !strings.Contains(err.Error(), HealthKey("shop")) {
		t.Errorf("health: got %v, want an error with the key %s", err, HealthKey("shop"))
	}
}

func TestHealthIsReturnedNewestFirst(t *testing.T) {
	t.Parallel()
	rdb, ctx := redistest.New(t), t.Context()
	now := time.Now()
	for i, job := range []string{"old", "new"} {
		h := report.Health{Site: "shop", JobID: job, At: now.Add(time.Duration(i) * time.Minute)}
		testutil.Ok(t, SaveHealth(ctx, rdb, h, nil))
	}
	if got, err := HealthOf(ctx, rdb, "shop"); err != nil || len(got) != 2 || got[0].JobID != "new" {
		t.Errorf("got %+v, %v, want the jobs new and old", got, err)
	}
	if got, err := LastHealth(ctx, rdb); err != nil || len(got) != 1 || got[0].JobID != "new" {
		t.Errorf("last: got %+v, %v, want the job new", got, err)
	}
}

// FuzzRequest checks that the directory of an accepted request is below the records directory.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"site":"shop","out_dir":"/x"}`), "scrape_shop_1")
	f.Add([]byte(`{"site":"../../etc"}`), "a")
	f.Add([]byte(`{"site":"a","resume":"../x"}`), "a")
	f.Add([]byte(`{"site":""}`), "..")
	f.Fuzz(func(t *testing.T, raw []byte, id string) {
		var r Request
		if json.Unmarshal(raw, &r) != nil || r.CheckNames(id) != nil {
			return
		}
		r.OutDir = "/records"
		if dir := r.Dir(id); !strings.HasPrefix(dir, filepath.Clean(r.OutDir)+"/") || strings.Contains(dir, "..") && !strings.Contains(r.Site, "..") {
			t.Errorf("%q of %q is written to %s", raw, id, dir)
		}
	})
}
