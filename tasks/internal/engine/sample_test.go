package engine

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"
)

func TestExample(t *testing.T) {
	t.Parallel()
	type base struct {
		ID string `json:"id"`
	}
	type order struct {
		base
		Amount  float64
		Rush    bool      `json:"rush,omitempty"`
		At      time.Time `json:"at"`
		Lines   []base    `json:"lines"`
		Parent  *order    `json:"parent"`
		Tags    map[string]int
		private int
		Skip    string `json:"-"`
		Raw     json.RawMessage
		Bytes   []byte
		Any     any
	}
	_ = order{}.private
	got := string(example(reflect.TypeFor[base](), 0)) + string(example(reflect.TypeFor[[]*int](), 0)) + string(example(reflect.TypeFor[any](), 0)) + string(example(reflect.TypeFor[chan int](), 0))
	if want := `{"id":""}[0]nullnull`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	var o map[string]json.RawMessage
	if err := json.Unmarshal(example(reflect.TypeFor[order](), 0), &o); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"id": `""`, "Amount": "0", "rush": "false", "at": `"0001-01-01T00:00:00Z"`, "lines": `[{"id":""}]`, "Tags": "{}", "Raw": "null", "Bytes": "null", "Any": "null"} {
		if string(o[name]) != want {
			t.Errorf("%s: got %s, want %s", name, o[name], want)
		}
	}
	if len(o) != 10 || json.Unmarshal(example(reflect.TypeFor[order](), 0), new(order)) != nil {
		t.Errorf("got %s, want ten fields that decode", o)
	}
}
