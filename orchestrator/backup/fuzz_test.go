package backup

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"
)

// FuzzLines wants every line of an export that is not empty to be read as it is, and a line that is let through to be one
// JSON object and nothing else.
func FuzzLines(f *testing.F) {
	f.Add([]byte("{\"kind\":\"header\",\"format\":1}\n\n{}\n"))
	f.Add([]byte(`{"kind":"header"}}`))
	f.Add([]byte(`{"kind":"header"} {}`))
	f.Add([]byte(" \t\r\n{\"unknown\":1}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		l := &lines{r: bufio.NewReaderSize(bytes.NewReader(text), 16)}
		for _, want := range bytes.Split(text, []byte("\n")) {
			if want = bytes.TrimSpace(want); len(want) == 0 {
				continue
			}
			line, err := l.next()
			if err != nil || !bytes.Equal(line, want) {
				t.Fatalf("%q: got %q, %v, want %q", text, line, err, want)
			}
			var h header
			if decode(line, &h) == nil {
				if !json.Valid(line) {
					t.Errorf("%q is let through", line)
				}
				_ = h.check()
			}
		}
		if line, err := l.next(); !errors.Is(err, io.EOF) {
			t.Errorf("%q: got %q, %v behind the last line", text, line, err)
		}
	})
}
