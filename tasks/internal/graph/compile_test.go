package graph

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

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
			needed := walk(g.Preds, first)
			for _, part := range parts(a.Kids[1]) {
				if k := c.memo[part]; !needed[k] && !walk(g.Preds, k)[first] {
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

// stored returns the stored forms of graphs of every kind of node.
func stored(t testing.TB) [][]byte {
	of := func(shape Shape, kids ...*Sig) *Sig { return &Sig{Shape: shape, Task: "t", Opts: &Opts{}, Kids: kids} }
	group := of(Group, call("a", "1"), of(Chain, call("b", "1")), call("c", "1"))
	group.Opts = &Opts{AtMost: 2, FailFast: true}
	each := of(Map, call("list", "1"))
	sigs := []*Sig{
		call("a", "1"), of(Chain, call("a", "1")), of(Chord, group), of(Settle, group), of(Settle, each), of(Settle, call("a", "1")),
		of(Join, call("a", "1"), call("b", "1")), of(Rescue, call("a", "1")), of(OnError, each), of(OnError, group), of(OnSuccess, call("a", "1")),
		of(After, call("a", "1"), group), of(Try, each), of(Join, of(Join, each, group), of(Try, call("a", "1"))), of(Chord, of(Join, each, of(Group, group, each))),
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

func call(task, input string) *Sig {
	return &Sig{Shape: Call, Task: task, Input: json.RawMessage(input)}
}

func TestStringIsOneShortLine(t *testing.T) {
	t.Parallel()
	group := func(n int) *Sig {
		g := &Sig{Shape: Group}
		for range n {
			g.Kids = append(g.Kids, call("add", "1"))
		}
		return g
	}
	deep := call("add", "1")
	for range 10_000 {
		deep = &Sig{Shape: Chain, Task: "inc", Kids: []*Sig{deep}}
	}
	for want, s := range map[string]*Sig{
		"(zero signature)":  nil,
		"add([1,2]) → mul":  {Shape: Chain, Task: "mul", Kids: []*Sig{call("add", "[1,2]")}},
		"[add(1)] → sum":    {Shape: Chord, Task: "sum", Kids: []*Sig{group(1)}},
		"[]":                group(0),
		"list(3) → each up": {Shape: Map, Task: "up", Kids: []*Sig{call("list", "3")}},
		"[add(1), add(1), add(1), add(1), add(1)]":     group(5),
		"[add(1), add(1), add(1), add(1), … 996 more]": group(1000),
		"settle([add(1)])":                             {Shape: Settle, Kids: []*Sig{group(1)}},
		"try(a(1))":                                    {Shape: Try, Kids: []*Sig{call("a", "1")}},
		"(a(1), b(2))":                                 {Shape: Join, Kids: []*Sig{call("a", "1"), call("b", "2")}},
		"a(1); then b(2)":                              {Shape: After, Kids: []*Sig{call("a", "1"), call("b", "2")}},
		"a(1), or b":                                   {Shape: Rescue, Task: "b", Kids: []*Sig{call("a", "1")}},
		"a(1), on error b":                             {Shape: OnError, Task: "b", Kids: []*Sig{call("a", "1")}},
		"a(1), on success b":                           {Shape: OnSuccess, Task: "b", Kids: []*Sig{call("a", "1")}},
		`a("` + strings.Repeat("é", 19) + `…)`:         call("a", `"`+strings.Repeat("é", 500)+`"`),
		"add(1)" + strings.Repeat(" → inc", 61) + " → i…": deep,
	} {
		if got := s.String(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// FuzzID wants an id that is let through to be written as one that is read as the same.
func FuzzID(f *testing.F) {
	for _, s := range []string{"0", "3.2", "1:2.3", "1.0:2:3.4", "-1", "+1", "01", ".", ":", "9223372036854775808", "1.-2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParseID(s)
		if err != nil {
			return
		}
		if again, err := ParseID(id.String()); err != nil || again != id {
			t.Errorf("%q: read %+v, and %+v, %v of %q", s, id, again, err, id.String())
		}
	})
}
