//go:build e2e && unix

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"github.com/redis/go-redis/v9"
)

// sample contains the measurements of the system at one time.
type sample struct {
	At      time.Time          `json:"at"`
	Quarter int                `json:"quarter"` // from 0
	Drained bool               `json:"drained"` // taken after a drain
	Values  map[string]float64 `json:"values"`
}

// measure measures the processes, Redis and the directories. It omits values that cannot be measured, because a process is down.
func (s *soak) measure(quarter int, drained bool) sample {
	ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
	defer cancel()
	out := sample{At: time.Now().UTC(), Quarter: quarter, Drained: drained, Values: map[string]float64{}}
	put := func(name string, v float64, err error) {
		if err == nil {
			out.Values[name] = v
		}
	}
	now, used := map[int]float64{}, 0.0
	for _, name := range []string{"orchestrator", "queue run", "task worker", "redis", "worker-1", "worker-2", "creator-1", "creator-2", "validator-1", "validator-2", "soak"} {
		pid := s.pid(name)
		if name == "soak" { // sites, proxies and load run in this process
			pid = os.Getpid()
		}
		process, err := procfs.NewProc(pid)
		if err != nil {
			continue
		}
		stat, err := process.Stat()
		if err != nil {
			continue
		}
		now[pid] = stat.CPUTime()
		used += now[pid] - s.used[pid] // total CPU time of a new process
		if addr := s.metrics[name]; addr != "" || name == "redis" {
			put("rss "+name, float64(stat.ResidentMemory()), nil)
			fds, err := process.FileDescriptorsLen()
			put("fds "+name, float64(fds), err)
		}
		if addr := s.metrics[name]; addr != "" {
			v, err := goroutines(ctx, addr)
			put("goroutines "+name, v, err)
		}
	}
	put("cores", used/time.Since(s.last).Seconds(), nil)
	s.last, s.used = time.Now(), now
	if values, err := measureRedis(ctx, s.client.Redis()); err == nil {
		maps.Copy(out.Values, values)
	}
	maps.Copy(out.Values, measureFiles(os.DirFS(s.dir)))
	return out
}

// goroutines reads the number of goroutines from the metrics of a process.
func goroutines(ctx context.Context, addr string) (n float64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	_, value, _ := strings.Cut(string(text), "\ngo_goroutines ")
	_, err = fmt.Sscan(value, &n)
	return n, err
}

// measureRedis measures the memory and the keys of Redis. Keys with an expiry are counted separately, because data with a retention of an
// hour or a day grows for that long.
func measureRedis(ctx context.Context, rdb redis.UniversalClient) (map[string]float64, error) {
	used, err := strconv.ParseFloat(rdb.InfoMap(ctx, "memory").Item("Memory", "used_memory"), 64)
	if err != nil {
		return nil, err
	}
	values := map[string]float64{"redis memory": used}
	var keys []string
	scan := rdb.Scan(ctx, 0, "*", 1000).Iterator()
	for scan.Next(ctx) {
		keys = append(keys, scan.Val())
	}
	if scan.Err() != nil {
		return nil, scan.Err()
	}
	for chunk := range slices.Chunk(keys, 500) {
		expiries, sizes := make([]*redis.DurationCmd, len(chunk)), make([]*redis.IntCmd, len(chunk))
		_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, key := range chunk {
				expiries[i], sizes[i] = p.PTTL(ctx, key), p.MemoryUsage(ctx, key)
			}
			return nil
		})
		if err != nil && !errors.Is(err, redis.Nil) { // redis.Nil: a key has expired
			return nil, err
		}
		for i, key := range chunk {
			prefix, expires, bytes := keyPrefix(key), expiries[i].Val(), float64(sizes[i].Val())
			if expires <= 0 {
				values["keys"]++
				values["keys "+prefix]++
				continue
			}
			values["expiring keys "+prefix]++
			values["redis memory"] -= bytes
			values["redis memory of expiring keys"] += bytes
			values["expiry of "+prefix] = max(values["expiry of "+prefix], expires.Seconds())
		}
	}
	return values, nil
}

// id matches the parts of a key that identify an object.
var id = regexp.MustCompile(`^([0-9]+|.*[0-9].{4,}|.{5,}[0-9].*)$`)

// keyPrefix returns the common part of keys of a kind, in which IDs are replaced with *.
func keyPrefix(key string) string {
	parts := strings.SplitN(key, ":", 6)
	for i, p := range parts {
		bare := strings.Trim(p, "{}")
		if id.MatchString(bare) {
			parts[i] = "*"
		}
	}
	return strings.Join(parts, ":")
}

// measureFiles measures the data directory and the directory of Redis, which do not contain the logs of this program.
func measureFiles(dir fs.FS) map[string]float64 {
	values := map[string]float64{}
	for _, name := range []string{"data", "redis"} {
		_ = fs.WalkDir(dir, name, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return nil // removed in the meantime, or counted by its content
			}
			info, err := d.Info()
			if err != nil {
				return nil
			}
			parts := strings.Split(path, "/")
			part := strings.Join(parts[:min(2, len(parts)-1)], "/")
			values["files "+part]++
			values["bytes "+part] += float64(info.Size())
			return nil
		})
	}
	return values
}

// line formats a sample on one line.
func (s sample) line(books []book) string {
	total := func(kind string) float64 {
		t := 0.0
		for name, v := range s.Values {
			if strings.HasPrefix(name, kind+" ") {
				t += v
			}
		}
		return t
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s q%d", s.At.Format("15:04:05"), s.Quarter+1)
	if s.Drained {
		b.WriteString(" drained")
	}
	fmt.Fprintf(&b, " cpu %.2f rss %.0f MB goroutines %.0f fds %.0f redis %.1f MB keys %.0f files %.0f data %.1f MB",
		s.Values["cores"], total("rss")/1e6, total("goroutines"), total("fds"), s.Values["redis memory"]/1e6, s.Values["keys"], total("files"), total("bytes")/1e6)
	for _, k := range books {
		fmt.Fprintf(&b, " %s %d/%d", k.Kind, k.Ended, k.Sent)
		if k.Wrong > 0 {
			fmt.Fprintf(&b, " (%d WRONG)", k.Wrong)
		}
	}
	return b.String()
}
