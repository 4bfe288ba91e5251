package graph

import (
	"testing"

	"muster/internal/testutil"
)

// stored returns the stored forms of graphs of every kind of node.
func stored(t testing.TB) [][]byte {
	of := func(shape Shape, kids ...*Sig) *Sig { return &Sig{Shape: shape, Task: "t", Opts: &Opts{}, Kids: kids} }
	group := of(Group, call("a", "1"), of(Chain, call("b", "1")), call("c", "1"))
	group.Opts = &Opts{AtMost: 2, FailFast: true}
	each := of(Map, call("list", "1"))
	sigs := []*Sig{
		call("a", "1"), of(Chain, call("a", "1")), of(Chord, group), of(Settle, group), of(Settle, each), of(Settle, call("a", "1")),
		of(Join, call("a", "1"), call("b", "1")), of(Rescue, call("a", "1")), of(OnError, each), of(OnError, group), of(OnSuccess, call("a", "1")),
		of(After, call("a", "1"), group), of(Try, each), of(Join, each, group, of(Try, call("a", "1"))), of(Chord, of(Join, each, of(Group, group, each))),
	}
	var out [][]byte
	for _, s := range sigs {
		g, err := Compile(s)
		if err != nil {
			t.Fatalf("compile %s: %v", s, err)
		}
		raw, err := g.Encode()
		testutil.Ok(t, err)
		out = append(out, raw)
	}
	return out
}

// use calls the methods that read a graph.
func use(g *Graph) {
	g.Count()
	g.Roots()
	g.Result()
	for i := range g.Nodes {
		g.cannotSucceed(i)
		g.Doomers(i)
		g.Succs(i)
		g.Members(i)
		g.Preds(i)
		g.Need(i)
		g.Passive(i)
	}
}

// A stored graph with any one number or byte changed is refused, or can be used.
func TestDecodeRefusesOrYieldsAGraphThatCanBeUsed(t *testing.T) {
	t.Parallel()
	for _, raw := range stored(t) {
		if g, err := Decode(raw); err != nil {
			t.Errorf("decode %s: got %v, want no error", raw, err)
		} else {
			use(g)
		}
		for i := range raw {
			for _, c := range []byte("-0179,]}k\"") {
				damaged := append([]byte(nil), raw...)
				damaged[i] = c
				if g, err := Decode(damaged); err == nil {
					use(g)
				}
			}
			if g, err := Decode(raw[:i]); err == nil {
				use(g)
			}
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, raw := range stored(f) {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if g, err := Decode(raw); err == nil && len(g.Nodes) < 1000 {
			use(g)
		}
	})
}
