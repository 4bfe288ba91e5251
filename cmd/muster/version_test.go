package main

import (
	"runtime/debug"
	"testing"
)

// The version comes from the linker, or else from the build info of go install.
func TestVersionOfABuild(t *testing.T) {
	t.Parallel()
	vcs := []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.time", Value: "2027-01-31T15:04:05Z"}, {Key: "vcs.modified", Value: "true"}}
	for _, c := range []struct {
		linked, module, want string
	}{
		{"v1.2.3", "v9.9.9", "v1.2.3"},
		{"", "v1.2.4", "v1.2.4"},
		{"", "(devel)", "dev"},
		{"", "", "dev"},
	} {
		b := build{Version: c.linked}
		b.from(&debug.BuildInfo{Main: debug.Module{Version: c.module}, Settings: vcs})
		if want := (build{Version: c.want, Revision: "abc", Time: "2027-01-31T15:04:05Z", Modified: true}); b != want {
			t.Errorf("linked %q, module %q: got %+v, want %+v", c.linked, c.module, b, want)
		}
	}
}
