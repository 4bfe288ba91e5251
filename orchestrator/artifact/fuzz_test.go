package artifact

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"muster/tasks/workqueue"
)

// FuzzParse checks that a line is parsed to an item with an ID and bounded keys, or rejected with an error of bounded length.
func FuzzParse(f *testing.F) {
	for _, s := range []string{`{"id":"p1","url":"http://a.example/1.pdf","resolver":"unpaywall"}`, `{"artifact_id":" x ","urls":["",1]}`, `{"id":1}`, `{"id":"a","priority":1.5}`, `{"id":"a","plan":{"url":"//h"}}`, `null`, `[]`, `{oops`, `{"id":"a","url":"http://[::1"}`, "{\"id\":\"a\",\"url\":\"" + strings.Repeat("ä", 300) + "\"}"} {
		f.Add([]byte(s))
	}
	q := workqueue.New(nil, "q", workqueue.Config{})
	f.Fuzz(func(t *testing.T, line []byte) {
		it, err := parseLine(line)
		if err != nil {
			if len(err.Error()) > 500 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		if it.ID == "" || it.Kind == "" || len(it.ResourceKeys) > 2 {
			t.Fatalf("%q is read as %+v", line, it)
		}
		for _, k := range it.ResourceKeys {
			if strings.HasPrefix(k, HostKey) && len(k) > len(HostKey)+maxHost {
				t.Errorf("%q has the key %q", line, k)
			}
		}
		_ = q.Check(it)
		_ = Doubt(it)
	})
}

// FuzzLines checks that all lines of a list are read, whatever their length.
func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nbb\n\nccc"), 2)
	f.Add(bytes.Repeat([]byte("x"), 70), 3)
	f.Add([]byte{0x1f, 0x8b, 8}, 10)
	f.Fuzz(func(t *testing.T, text []byte, most int) {
		most = most&0x3f + 1
		want := bytes.SplitAfter(text, []byte("\n"))
		if len(want[len(want)-1]) == 0 {
			want = want[:len(want)-1]
		}
		in := bufio.NewReaderSize(bytes.NewReader(text), 16)
		for _, w := range want {
			line, err := readLine(in, most)
			if long := len(w) > most; long != errors.Is(err, errLong) || !long && (err != nil || !bytes.Equal(line, w)) {
				t.Fatalf("%q: got %q, %v, want %q of at most %d bytes", text, line, err, w, most)
			}
		}
		if line, err := readLine(in, most); !errors.Is(err, io.EOF) {
			t.Errorf("%q: got %q, %v after the last line", text, line, err)
		}
	})
}
