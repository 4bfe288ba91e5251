package yamlstrict

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

type place struct{ Line, Col int }

type inner struct {
	At   place
	Size int           `yaml:"size"`
	Wait time.Duration `yaml:"wait"`
}

type outer struct {
	Name  string            `yaml:"name"`
	On    bool              `yaml:"on"`
	Rate  float64           `yaml:"rate"`
	List  []inner           `yaml:"list"`
	Texts map[string]string `yaml:"texts"`
	Maybe *inner            `yaml:"maybe"`
}

func TestDecodeFillsStructs(t *testing.T) {
	t.Parallel()
	var got outer
	var d Decoder
	if ok := d.Decode([]byte("name: &n x\non: true\nrate: 1.5\nlist: {size: 1_000}\ntexts: {a: *n}\nmaybe:\n  wait: 2\n"), &got); !ok || len(d.Problems) > 0 {
		t.Fatalf("got %v, %v, want a mapping without problems", ok, d.Problems)
	}
	want := outer{"x", true, 1.5, []inner{{At: place{4, 7}, Size: 1000}}, map[string]string{"a": "x"}, &inner{At: place{7, 3}, Wait: 2 * time.Second}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got, want := d.Places["maybe.wait"], (Place{At: Pos{7, 9}, Short: true}); got != want {
		t.Errorf("got the place %v, want %v", got, want)
	}
}

// Decode returns all problems with their positions.
func TestDecodeReturnsAllProblems(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"nam: x\non: yes\nrate: much\nlist: [{size: 1.5, wait: soon}, 3]\ntexts: []\nmaybe:\n": `1:1 : unknown key "nam"; did you mean "name"?|2:5 on: want true or false, got "yes"|3:7 rate: want a number, got "much"|` +
			`4:15 list[0].size: want a whole number, got "1.5"|4:26 list[0].wait: want a duration such as 1.5s, 200ms or 2m, got "soon"|4:33 list[1]: want a mapping with the keys size, wait, got a number|` +
			`5:8 texts: want a mapping of names to texts, got a list|6:1 maybe: has no value; give one or take the key out`,
		"list: [*x]": `1:8 : no anchor before this alias; quote a text that begins with *|1:8 list[0]: want`,
		"":           `1:1 : the file is empty`,
		"a\n---\nb":  `3:1 : a second document in the file; write one per file`,
		"[]":         `1:1 : want a mapping with the keys name, on, rate, list, texts, maybe, got a list`,
	} {
		var v outer
		var d Decoder
		d.Decode([]byte(text), &v)
		var lines []string
		for _, p := range d.Problems.Sorted() {
			lines = append(lines, fmt.Sprintf("%d:%d %s: %s", p.At.Line, p.At.Col, p.Key, p.Text))
		}
		if got := strings.Join(lines, "|"); !strings.HasPrefix(got, want) {
			t.Errorf("%q:\ngot  %s\nwant %s", text, got, want)
		}
	}
}
