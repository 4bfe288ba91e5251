package graph

import (
	"testing"
	"time"
)

// A part of a signature is found where Compile puts it, whatever the options of the send.
func TestFindIsWhereCompilePutsIt(t *testing.T) {
	t.Parallel()
	of := func(shape Shape, kids ...*Sig) *Sig { return &Sig{Shape: shape, Task: "t", Opts: &Opts{}, Kids: kids} }
	one := call("a", "1")
	group := of(Group, one, of(Chain, of(Join, one, call("b", "1"))), of(Rescue, call("c", "1")))
	group.Opts = &Opts{AtMost: 2}
	each := of(Map, of(OnError, call("list", "1")))
	wrong := call("d", "1") // unless the send has another queue
	wrong.Opts = &Opts{Queue: "no queue"}
	s := of(Group, of(OnSuccess, of(OnSuccess, of(Chord, group))), of(Settle, group), of(Settle, each),
		of(After, of(Join, each, one), of(OnError, of(OnError, of(Group, call("e", "1"))))), wrong)

	retries, priority, timeout := 3, 1, time.Second
	for _, opts := range []*Opts{{Queue: "q"}, {Queue: "q", Priority: &priority, Every: Every{MaxRetry: &retries, Timeout: &timeout}, FailFast: true, AtMost: 1}} {
		c := newCompiler()
		compiled := s.ForSend(opts)
		if _, err := c.node(compiled); err != nil {
			t.Fatal(err)
		}
		parts := 0
		var check func(s, sent *Sig)
		root := s
		check = func(s, sent *Sig) {
			parts++
			got, ok := Find(root, s)
			if want := c.memo[sent]; !ok || got != want {
				t.Errorf("%s: got node %d, %v, want %d", s, got, ok, want)
			}
			for i := range s.Kids {
				check(s.Kids[i], sent.Kids[i])
			}
		}
		check(s, compiled)
		if parts < 20 {
			t.Errorf("got %d parts, want more", parts)
		}
	}
	if i, ok := Find(s, call("a", "1")); ok {
		t.Errorf("another signature was found as node %d", i)
	}
	if i, ok := Find(s, nil); ok {
		t.Errorf("no signature was found as node %d", i)
	}
}
