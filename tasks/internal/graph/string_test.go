package graph

import (
	"encoding/json"
	"strings"
	"testing"
)

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
