package store

import (
	"strings"
	"testing"
	"time"

	"muster/tasks/tasktype"
)

// FuzzLease checks that stored batches, damaged or not, are read with bounded memory, and that encoded batches are
// read unchanged.
func FuzzLease(f *testing.F) {
	for _, s := range []string{"1700000000000 n:default w1/3-7@2,w2/a:1.4", "1! h:q w/0", "1 n:q w/-9223372036854775808-5", "x n:q /,//,w", "1 n:q w/0-1048576", "  ", " 00{ /4"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		if strings.Count(value, ",") > 20 {
			return // each element is bounded
		}
		b, ok := parseLease(3, value)
		if !ok {
			return
		}
		var held []Held
		for _, el := range b.Nodes {
			if len(el.Nodes) == 0 || len(el.Nodes) > maxSpan {
				t.Fatalf("%q has an element of %d nodes", value, len(el.Nodes))
			}
			for _, n := range el.Nodes[:min(len(el.Nodes), 50)] {
				held = append(held, Held{Flow: el.Flow.Ref, Node: n, Lost: max(el.Lost, 0)})
			}
		}
		if len(held) == 0 || b.Queue == "" || strings.ContainsAny(b.Queue, " ") {
			return
		}
		for _, h := range held {
			if strings.ContainsAny(h.Flow+h.Node, ",/@- ") || h.Node == "" || !writable(h.Node) {
				return // not of this package
			}
		}
		again, ok := parseLease(3, LeaseText(time.UnixMilli(5), "n:"+b.Queue, held))
		var got []Held
		for _, el := range again.Nodes {
			for _, n := range el.Nodes {
				got = append(got, Held{Flow: el.Flow.Ref, Node: n, Lost: el.Lost})
			}
		}
		if !ok || len(got) != len(held) {
			t.Fatalf("%q: wrote %v, read %v", value, held, got)
		}
		for i := range got {
			if got[i] != held[i] {
				t.Fatalf("%q: wrote %v, read %v", value, held[i], got[i])
			}
		}
	})
}

// writable reports whether a node has a name as the engine gives it: numbers between dots and colons.
func writable(node string) bool {
	for part := range strings.FieldsFuncSeq(node, func(r rune) bool { return r == '.' || r == ':' }) {
		if len(part) > 9 || strings.Trim(part, "0123456789") != "" || part != "0" && part[0] == '0' {
			return false
		}
	}
	last := node[strings.LastIndexAny(node, ".:")+1:]
	return last != ""
}

// FuzzRecord wants a damaged record of a node to be read as far as possible.
func FuzzRecord(f *testing.F) {
	for _, s := range []string{"i{}", "S|1|5|9|w|\"x\"", "F|1||9|w|{}", "k|2", "D|1|0|5|7|l|{}", "T|1", "W|1|2|3|{}", "P|1|0|5|w", "Q|||||", "Z"} {
		f.Add([]byte(s), int64(1700000000000))
	}
	f.Fuzz(func(t *testing.T, raw []byte, created int64) {
		r := ParseRecord(raw, created)
		if len(raw) > 0 && r.State != raw[0] || len(r.Body)+len(r.Input) > len(raw) {
			t.Errorf("%q is read as %+v", raw, r)
		}
		if input := InputRecord(raw); string(ParseRecord(input, created).Input) != string(raw) {
			t.Errorf("the input %q is read as %q", raw, ParseRecord(input, created).Input)
		}
	})
}

// FuzzIndex wants a cursor that is let through to be the one that this package writes for its place.
func FuzzIndex(f *testing.F) {
	for _, s := range []string{"1700000000000.abc", "1.~", ".", "-5.x", "+5.x", "9223372036854775808.x", "id 5 6 name with blanks", "id 9223372036854775807 1 n", "id 5 6 a → b\tnightly\tk=v\tbad\t=x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if p, err := parsePosition(s); err == nil {
			if again, err := parsePosition(p.String()); err != nil || again != p {
				t.Errorf("%q: decoded %+v, and %+v, %v after encoding again", s, p, again, err)
			}
		}
		if e, ok := parseIndexed(s, tasktype.WorkflowSucceeded, 1); ok && !strings.HasSuffix(s, e.Tasks) && !strings.Contains(s, e.Tasks+"\t") {
			t.Errorf("%q is read as %+v", s, e)
		}
	})
}
