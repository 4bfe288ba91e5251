package redistest

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Measured runs work, which performs b.N operations, as the body of a benchmark. It reports the CPU time of Redis's
// main thread and of this process, the script calls, the commands, including those in scripts, and the memory growth
// of Redis, per operation.
func Measured(b *testing.B, rdb redis.UniversalClient, work func()) {
	b.Helper()
	before, own := info(b, rdb), processCPU()
	b.ResetTimer()
	work()
	b.StopTimer()
	own = processCPU() - own
	after := info(b, rdb)
	n := float64(b.N)
	cpu := func(m map[string]float64) float64 {
		return m["used_cpu_user_main_thread"] + m["used_cpu_sys_main_thread"]
	}
	b.ReportMetric((cpu(after)-cpu(before))*1e6/n, "redis-µs/op")
	scripts := func(m map[string]float64) float64 { return m["cmdstat_evalsha"] + m["cmdstat_eval"] }
	b.ReportMetric(own.Seconds()*1e6/n, "cpu-µs/op")
	b.ReportMetric((scripts(after)-scripts(before))/n, "redis-scripts/op")
	b.ReportMetric((after["total_commands_processed"]-before["total_commands_processed"])/n, "redis-commands/op")
	b.ReportMetric((after["used_memory"]-before["used_memory"])/n, "redis-bytes/op")
}

// Baseline runs the same b.N operations in another way and reports the relative duration as x-NAME.
func Baseline(b *testing.B, name string, work func()) {
	b.Helper()
	began := time.Now()
	work()
	b.ReportMetric(float64(time.Since(began))/float64(b.Elapsed()), "x-"+name)
}

func info(b *testing.B, rdb redis.UniversalClient) map[string]float64 {
	b.Helper()
	text, err := rdb.Info(context.Background(), "all").Result()
	if err != nil {
		b.Fatal(err)
	}
	fields := map[string]float64{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if calls, ok := strings.CutPrefix(value, "calls="); ok {
			value, _, _ = strings.Cut(calls, ",")
		}
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			fields[name] = n
		}
	}
	return fields
}
