package main

import (
	"runtime/debug"
	"testing"
)

// The version comes from the linker, or else from the build info of go install.
func TestVersionOfABuild(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		linked, module, want string
	}{
		{"v1.2.3", "v9.9.9", "v1.2.3"},
		{"", "v1.2.4", "v1.2.4"},
		{"", "(devel)", "dev"},
		{"", "", "dev"},
	} {
		if got := versionOf(c.linked, debug.Module{Version: c.module}); got != c.want {
			t.Errorf("linked %q, module %q: got %s, want %s", c.linked, c.module, got, c.want)
		}
	}
}
