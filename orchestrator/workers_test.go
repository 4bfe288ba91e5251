package orchestrator

import "testing"

func TestWorkerProcessesListenOnDistinctPorts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		first, want string
		n           int
	}{
		{"127.0.0.1:9101", "127.0.0.1:9101", 0},
		{"127.0.0.1:9101", "127.0.0.1:9103", 2},
		{"[::1]:9101", "[::1]:9102", 1},
		{":65535", ":65535", 0},
		{"127.0.0.1:0", "127.0.0.1:0", 3},
		{":65535", "", 1},
		{"127.0.0.1:none", "", 0},
	} {
		got, err := nthAddress(c.first, c.n)
		if got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("address %d after %s: got %q, %v, want %q", c.n, c.first, got, err, c.want)
		}
	}
}
