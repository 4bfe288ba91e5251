package orchestrator

import (
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"

	"muster/orchestrator/config"
)

// memoryLimit returns the soft memory limit of this process in bytes: workers.memory_limit, GOMEMLIMIT, or four fifths of the
// limit of the container, in this order; 0 means no limit.
func memoryLimit(cfg config.Config) int64 {
	if mb := cfg.Workers.MemoryLimit; mb > 0 {
		return int64(mb) << 20
	}
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
		return limit
	}
	return containerMemory("/") / 5 * 4
}

// containerMemory returns the memory limit of the control group (version 1 or 2) below root; 0 means no limit.
func containerMemory(root string) int64 {
	group := ""
	if data, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup")); err == nil {
		for line := range strings.Lines(string(data)) {
			if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
				group = path
			}
		}
	}
	least := int64(math.MaxInt64)
	look := func(path string) {
		data, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			return
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64); err == nil && n > 0 { // "max" means no limit
			least = min(least, n)
		}
	}
	look("sys/fs/cgroup/memory/memory.limit_in_bytes")
	for ; ; group = filepath.Dir(group) { // a parent group may have a lower limit
		look(filepath.Join("sys/fs/cgroup", group, "memory.max"))
		if group == "/" || group == "." || group == "" {
			break
		}
	}
	if least >= 1<<60 { // version 1 without a limit
		return 0
	}
	return least
}

// setMemoryLimit sets the soft limit of the garbage collector to 90% of limit, unless GOMEMLIMIT is set.
func setMemoryLimit(limit int64) {
	if limit > 0 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit / 10 * 9)
	}
}
