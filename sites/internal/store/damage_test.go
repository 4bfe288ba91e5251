package store

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/sites/report"
	"muster/tasks/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// useJob uses keys of a job and its site, and returns the errors.
func useJob(ctx context.Context, rdb redis.UniversalClient, site, job string) (errs []error) {
	note := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	before, err := HealthOf(ctx, rdb, site)
	note(err)
	note(SaveHealth(ctx, rdb, report.Health{Site: site, JobID: job, At: time.Now()}, before))
	_, err = Grant(ctx, rdb, job, Page{ID: "1", Records: 1, Bytes: 10}, 100)
	note(err)
	_, err = Grant(ctx, rdb, job, Page{ID: fmt.Sprint(time.Now().UnixNano()), Records: 1, Bytes: 10}, 100)
	note(err)
	note(AddAnswer(ctx, rdb, job, "proxy", true))
	_, err = ProxyUsage(ctx, rdb, job)
	note(err)
	return errs
}

// Whatever of a job or the health of a site is damaged: values are passed over, and of a key of another type the error
// says that it must be deleted. Other jobs are not concerned.
func TestJobsSurviveDamagedKeys(t *testing.T) {
	t.Parallel()
	for _, key := range []string{HealthKey("shop"), SpentKey("job"), ProxyUsageKey("job")} {
		for _, d := range redistest.Damages {
			t.Run(key+"/"+d.Name, func(t *testing.T) {
				t.Parallel()
				rdb, ctx := redistest.New(t), t.Context()
				if errs := useJob(ctx, rdb, "shop", "job"); len(errs) > 0 {
					t.Fatal(errs)
				}
				d.Do(t, rdb, key)
				errs := useJob(ctx, rdb, "shop", "job")
				if d.Name != "of another type" && len(errs) > 0 {
					t.Errorf("got %v, want damaged values to be passed over", errs)
				}
				if d.Name == "of another type" && len(errs) == 0 {
					t.Error("got no error")
				}
				for _, err := range errs {
					if !strings.Contains(err.Error(), "delete the key "+key) {
						t.Errorf("got %v, want an error that says to delete %s", err, key)
					}
				}
				if errs := useJob(ctx, rdb, "news", "other"); len(errs) > 0 {
					t.Errorf("another job: %v", errs)
				}
				if err := rdb.Del(ctx, key).Err(); err != nil {
					t.Fatal(err)
				}
				if errs := useJob(ctx, rdb, "shop", "job"); len(errs) > 0 {
					t.Errorf("once it was deleted: %v", errs)
				}
			})
		}
	}
}

// The health of a site that cannot be read is left out of the list of all.
func TestDamagedHealthLeavesTheOthers(t *testing.T) {
	t.Parallel()
	rdb, ctx := redistest.New(t), t.Context()
	for _, site := range []string{"news", "shop"} {
		if err := SaveHealth(ctx, rdb, report.Health{Site: site, JobID: "job", At: time.Now()}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := rdb.HSet(ctx, HealthKey("news"), "job", "{").Err(); err != nil {
		t.Fatal(err)
	}
	if last, err := LastHealth(ctx, rdb); err != nil || len(last) != 1 || last[0].Site != "shop" {
		t.Errorf("got %+v, %v, want the health of the shop", last, err)
	}
}

// A value that cannot be read is an error that names its key.
func TestDamagedJSONIsNamed(t *testing.T) {
	t.Parallel()
	for _, key := range []string{RequestKey("job"), CollectedKey("job"), ProbePageKey("job"), CountedKey("job"), SummaryKey("job")} {
		for _, d := range redistest.Damages {
			rdb, ctx := redistest.New(t), t.Context()
			if err := rdb.Set(ctx, key, `{"site":"shop"}`, 0).Err(); err != nil {
				t.Fatal(err)
			}
			d.Do(t, rdb, key)
			if _, ok, err := ReadJSON[report.Summary](ctx, rdb, key); d.Name != "flipped" && (err == nil || ok || !strings.Contains(err.Error(), key)) {
				t.Errorf("%s %s: got %v, %v, want an error that names it", key, d.Name, ok, err)
			}
		}
	}
}
