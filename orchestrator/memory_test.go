package orchestrator

import (
	"os"
	"path/filepath"
	"testing"

	"muster/internal/testutil"
)

func TestContainerMemory(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"none":            {nil, 0},
		"version 2":       {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "1000000\n"}, 1000000},
		"version 2, none": {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, 0},
		"a group above":   {map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "5000\n"}, 5000},
		"version 1":       {map[string]string{"proc/self/cgroup": "4:memory:/x\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "7000\n"}, 7000},
		"version 1, none": {map[string]string{"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 0},
		"invalid number":  {map[string]string{"sys/fs/cgroup/memory.max": "-3\n"}, 0},
	} {
		root := t.TempDir()
		for path, text := range c.files {
			path = filepath.Join(root, path)
			testutil.Ok(t, os.MkdirAll(filepath.Dir(path), 0o755))
			testutil.Ok(t, os.WriteFile(path, []byte(text), 0o644))
		}
		if got := containerMemory(root); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
}
