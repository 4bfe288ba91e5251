//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// sample contains the measurements of the system at one time.
type sample struct {
	At      time.Time          `json:"at"`
	Quarter int                `json:"quarter"` // from 0
	Drained bool               `json:"drained"` // taken after a drain
	Fault   string             `json:"fault,omitempty"`
	Values  map[string]float64 `json:"values"`
	CPU     float64            `json:"cpu"` // cores used by all processes except commands since the last sample
}

// sampler measures the processes of a system, its Redis and its directories.
type sampler struct {
	s     *system
	began time.Time
	last  time.Time
	ticks map[int]float64 // CPU time by PID
}

func newSampler(s *system) *sampler {
	return &sampler{s: s, began: time.Now(), last: time.Now(), ticks: map[int]float64{}}
}

// take takes a sample. It omits values that cannot be measured, because a process is down.
func (m *sampler) take(ctx context.Context, quarter int, drained bool) sample {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out := sample{At: time.Now().UTC(), Quarter: quarter, Drained: drained, Values: map[string]float64{}}
	put := func(name string, v float64, err error) {
		if err == nil {
			out.Values[name] = v
		}
	}
	now := map[int]float64{}
	used := 0.0
	for name, pid := range m.s.pids() {
		if pid == 0 {
			continue
		}
		v, err := residentMemory(pid)
		put("rss "+name, v, err)
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		put("fds "+name, float64(len(entries)), err)
		if addr := m.s.metrics[name]; addr != "" {
			v, err = m.goroutines(ctx, addr)
			put("goroutines "+name, v, err)
		}
		if t, err := processorTime(pid); err == nil {
			now[pid] = t
			used += t - m.ticks[pid] // total CPU time of a new process
		}
	}
	others := []int{os.Getpid()} // sites, proxies and load run in this process
	for _, a := range m.s.agents {
		others = append(others, a.PID())
	}
	for _, pid := range others {
		if t, err := processorTime(pid); err == nil {
			now[pid] = t
			used += t - m.ticks[pid]
		}
	}
	out.CPU = used / time.Since(m.last).Seconds()
	m.last, m.ticks = time.Now(), now
	m.redis(ctx, put)
	m.folder(put)
	return out
}

// residentMemory returns the resident memory of a process in bytes.
func residentMemory(pid int) (float64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(raw))
	if len(fields) < 2 {
		return 0, fmt.Errorf("statm of %d: %q", pid, raw)
	}
	pages, err := strconv.ParseFloat(fields[1], 64)
	return pages * float64(os.Getpagesize()), err
}

// processorTime returns the CPU time of a process in seconds.
func processorTime(pid int) (float64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("stat of %d: %q", pid, raw)
	}
	user, err := strconv.ParseFloat(fields[11], 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseFloat(fields[12], 64)
	return (user + system) / 100, err // clock ticks per second on Linux
}

// goroutines reads the number of goroutines from the metrics of a process.
func (m *sampler) goroutines(ctx context.Context, addr string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := m.s.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	return metric(resp.Body, "go_goroutines")
}

// metric returns the value of a metric without labels.
func metric(r io.Reader, name string) (float64, error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	if err := lines.Err(); err != nil {
		return 0, err
	}
	return 0, fmt.Errorf("no metric %s", name)
}

// redis measures the memory and the keys of Redis. Keys with an expiry are counted separately, because data with a retention of an
// hour or a day grows for that long.
func (m *sampler) redis(ctx context.Context, put func(string, float64, error)) {
	rdb := m.s.client.Redis()
	used, err := usedMemory(ctx, rdb)
	if err != nil {
		return
	}
	var found []key
	for scan := rdb.Scan(ctx, 0, "*", 1000).Iterator(); ; {
		if !scan.Next(ctx) {
			if scan.Err() != nil {
				return
			}
			break
		}
		found = append(found, key{name: scan.Val()})
	}
	if err := readKeys(ctx, rdb, found); err != nil {
		return
	}
	values := map[string]float64{"redis memory": used}
	for _, k := range found {
		prefix := keyPrefix(k.name)
		if k.expires == 0 {
			values["keys"]++
			values["keys "+prefix]++
			continue
		}
		values["expiring keys "+prefix]++
		values["redis memory"] -= k.bytes
		values["redis memory of expiring keys"] += k.bytes
		values["expiry of "+prefix] = max(values["expiry of "+prefix], k.expires.Seconds())
	}
	for name, v := range values {
		put(name, v, nil)
	}
}

// key is a key in Redis. expires is 0 for a key without an expiry.
type key struct {
	name    string
	expires time.Duration
	bytes   float64
}

// readKeys reads the expiry of keys, and the size of keys with an expiry.
func readKeys(ctx context.Context, rdb redis.UniversalClient, found []key) error {
	for chunk := range slices.Chunk(found, 500) {
		ttls := make([]*redis.DurationCmd, len(chunk))
		sizes := make([]*redis.IntCmd, len(chunk))
		_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, k := range chunk {
				ttls[i], sizes[i] = p.PTTL(ctx, k.name), p.MemoryUsage(ctx, k.name)
			}
			return nil
		})
		if err != nil && !errors.Is(err, redis.Nil) { // redis.Nil: a key has expired
			return err
		}
		for i := range chunk {
			if ttl := ttls[i].Val(); ttl > 0 {
				chunk[i].expires, chunk[i].bytes = ttl, float64(sizes[i].Val())
			}
		}
	}
	return nil
}

func usedMemory(ctx context.Context, rdb redis.UniversalClient) (float64, error) {
	text, err := rdb.Info(ctx, "memory").Result()
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "used_memory:"); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, errors.New("no used_memory in INFO")
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

// folder measures the data directory and the directory of Redis, which do not contain the logs of this program.
func (m *sampler) folder(put func(string, float64, error)) {
	for name, dir := range map[string]string{"data": m.s.data, "redis": filepath.Join(m.s.dir, "redis")} {
		files, size := map[string]float64{}, map[string]float64{}
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return nil // removed in the meantime, or counted by its content
			}
			info, err := d.Info()
			if err != nil {
				return nil
			}
			part := name
			if rel, err := filepath.Rel(dir, path); err == nil && strings.ContainsRune(rel, filepath.Separator) {
				first, _, _ := strings.Cut(rel, string(filepath.Separator))
				part = name + "/" + first
			}
			files[part]++
			size[part] += float64(info.Size())
			return nil
		})
		for part := range files {
			put("files "+part, files[part], err)
			put("bytes "+part, size[part], err)
		}
	}
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
		s.CPU, total("rss")/1e6, total("goroutines"), total("fds"), s.Values["redis memory"]/1e6, s.Values["keys"], total("files"), total("bytes")/1e6)
	for _, k := range books {
		fmt.Fprintf(&b, " %s %d/%d", k.Kind, k.Ended, k.Sent)
		if k.Wrong > 0 {
			fmt.Fprintf(&b, " (%d WRONG)", k.Wrong)
		}
	}
	if s.Fault != "" {
		b.WriteString(" | " + s.Fault)
	}
	return b.String()
}
