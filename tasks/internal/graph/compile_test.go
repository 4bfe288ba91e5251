package graph

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"muster/internal/testutil"
)

func combine(shape Shape, kids ...*Sig) *Sig {
	return &Sig{Shape: shape, Task: "t", Opts: NoOpts, Kids: kids}
}

// calls returns a group of n calls.
func calls(n int) *Sig {
	g := combine(Group)
	for range n {
		g.Kids = append(g.Kids, call("t", "1"))
	}
	return g
}

// chain returns a chain of n tasks.
func chain(n int) *Sig {
	s := call("t", "1")
	for range n - 1 {
		s = combine(Chain, s)
	}
	return s
}

func limited(atMost int, kids ...*Sig) *Sig {
	g := combine(Group, kids...)
	g.Opts = &Opts{AtMost: atMost}
	return g
}

// growing are signatures of a multiple of n nodes.
var growing = map[string]func(n int) *Sig{
	"after a growing part": func(n int) *Sig {
		s := calls(5)
		for range n {
			s = combine(After, s, calls(5))
		}
		return s
	},
	"a growing part after": func(n int) *Sig {
		s := calls(5)
		for range n {
			s = combine(After, calls(5), s)
		}
		return s
	},
	"long members of a limited group": func(n int) *Sig { return limited(2, chain(n), chain(n), chain(n), chain(n)) },
	"limited group after a group": func(n int) *Sig {
		g := limited(2)
		for range n {
			g.Kids = append(g.Kids, chain(2))
		}
		return combine(After, calls(n), g)
	},
	"nested limited groups": func(n int) *Sig {
		s := chain(2)
		for range n {
			s = combine(Chord, limited(1, s, call("t", "1")))
		}
		return s
	},
	"nested limited groups with a shared part": func(n int) *Sig {
		shared := call("t", "1")
		s := combine(Chain, shared)
		for range n {
			s = combine(Chord, limited(1, combine(Chain, combine(Join, s, shared)), call("t", "1")))
		}
		return combine(Join, shared, s)
	},
	"tasks with different options": func(n int) *Sig {
		g := calls(n)
		for i, k := range g.Kids {
			k.Opts = &Opts{Priority: &i}
		}
		return g
	},
}

// The work of Compile, counted in allocations, is proportional to the size of the signature.
func TestCompileIsLinear(t *testing.T) { // not parallel: it counts the allocations of the process
	work := func(s *Sig) float64 {
		return testing.AllocsPerRun(1, func() {
			if _, err := Compile(s); err != nil {
				t.Fatal(err)
			}
		})
	}
	for name, of := range growing {
		small, large := work(of(200)), work(of(800))
		if large > 5*small {
			t.Errorf("%s: %.0f allocations for n nodes, and %.0f for 4n", name, small, large)
		}
	}
}

// random returns a signature of random parts, some of which are used more than once, and the uses of After in it.
func random(rng *rand.Rand, n int) (*Sig, []*Sig) {
	parts, afters := []*Sig{call("t", "1")}, []*Sig(nil)
	for range n {
		pick := func() *Sig {
			if k := len(parts) - 1 - rng.IntN(4); k >= 0 {
				return parts[k]
			}
			return call("t", "1")
		}
		var s *Sig
		switch rng.IntN(10) {
		case 0, 1:
			s = combine(After, pick(), pick())
			afters = append(afters, s)
		case 2, 3:
			s = limited(rng.IntN(3), pick(), pick(), pick())
		case 4:
			s = combine(Settle, limited(1, pick(), pick()))
		case 5:
			s = combine(Rescue, pick())
		case 6:
			s = combine(OnSuccess, pick())
		case 7:
			s = combine(Join, pick(), pick())
		case 8:
			s = call("t", "1")
		default:
			s = combine(Chain, pick())
		}
		parts = append(parts, s)
	}
	return parts[len(parts)-1], afters
}

// parts returns s and the parts that its value needs, except the first parts of After.
func parts(s *Sig) []*Sig {
	out := []*Sig{s}
	if s.Shape == Settle { // it needs the members of the list, not the list
		s = s.Kids[0]
	}
	for i, k := range s.Kids {
		if s.Shape != After || i == 1 {
			out = append(out, parts(k)...)
		}
	}
	return out
}

// Everything in the second part of an After depends on its first part, unless the first part needs it. Limits create
// no cycles: a Permit never depends on the nodes that it delays.
func TestAfterHoldsBackItsSecondPart(t *testing.T) {
	t.Parallel()
	compiled, cyclic := 0, 0
	for seed := range uint64(1000) {
		s, afters := random(rand.New(rand.NewPCG(seed, 0)), 12)
		c := newCompiler()
		g, err := c.compile(s)
		if errors.Is(err, ErrInvalid) {
			cyclic++
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		compiled++
		for _, a := range afters {
			first, ok := c.memo[a.Kids[0]]
			if _, used := c.memo[a]; !ok || !used {
				continue
			}
			needed := g.closure(first)
			for _, part := range parts(a.Kids[1]) {
				if k := c.memo[part]; !needed[k] && !g.closure(k)[first] {
					t.Fatalf("seed %d: node %d of %s does not depend on node %d", seed, k, a, first)
				}
			}
		}
	}
	if compiled < 500 {
		t.Errorf("%d signatures were compiled, and %d are invalid", compiled, cyclic)
	}
}

// The name of a workflow is read for each batch: it must not depend on the size of a group.
func TestEndsCopiesNoNodes(t *testing.T) {
	g, err := Compile(combine(Chord, combine(Group, calls(1000))))
	testutil.Ok(t, err)
	if n := testing.AllocsPerRun(10, func() { g.Ends() }); n > 0 {
		t.Errorf("got %v allocations, want none", n)
	}
}

// An After of parts that share nothing adds edges to the first nodes of the second part only.
func TestAfterAddsOneEdgeForEachFirstNode(t *testing.T) {
	t.Parallel()
	x := call("t", "1")
	for want, s := range map[string]*Sig{
		"[] [] [] [2] [2] [] []": combine(After, calls(2), combine(Chain, calls(2))),
		"[] [0] [1] [2]":         combine(After, combine(After, x, call("t", "1")), combine(After, call("t", "1"), call("t", "1"))),
		"[] [0] []":              combine(Join, combine(After, x, call("t", "1")), x),
	} {
		g, err := Compile(s)
		testutil.Ok(t, err)
		var got []string
		for _, n := range g.Nodes {
			got = append(got, fmt.Sprint(n.After))
		}
		if got := strings.Join(got, " "); got != want {
			t.Errorf("%s: got %s, want %s", s, got, want)
		}
	}
}
