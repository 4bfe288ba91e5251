package api

import (
	"bytes"
	"encoding/json"
	"mime/multipart"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzCursor checks that every accepted cursor was encoded by makeCursor from plain text.
func FuzzCursor(f *testing.F) {
	for _, s := range []string{"", makeCursor("jobs", "1700000000000-5"), makeCursor("items", "x"), "am9iczo", "==", "am9iczoA"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, cursor string) {
		next, err := readCursor("jobs", cursor)
		if err != nil {
			return
		}
		if plainText(next) != "" || cursor != "" && !strings.HasPrefix(makeCursor("jobs", "x"+next), makeCursor("jobs", "")) {
			t.Errorf("%q is read as %q", cursor, next)
		}
		if again, err := readCursor("jobs", makeCursor("jobs", next)); err != nil || again != next {
			t.Errorf("%q: decoded %q, and decoded %q, %v after encoding again", cursor, next, again, err)
		}
	})
}

// FuzzForm wants a form to make the JSON that the same fields would be, with plain texts alone, or a refusal.
func FuzzForm(f *testing.F) {
	f.Add("b", []byte("--b\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\ndo it\r\n--b\r\nContent-Disposition: form-data; name=\"context\"\r\n\r\n{\"a\":1}\r\n--b--\r\n"))
	f.Add("b", []byte("--b\r\nContent-Disposition: form-data; name=\"labels\"\r\n\r\n\xff\r\n--b--"))
	f.Add("b", []byte("--b\r\nContent-Disposition: form-data; name=\"priority\"\r\n\r\n1e999\r\n--b--"))
	f.Add("b", []byte("--b\r\n\r\n"))
	f.Fuzz(func(t *testing.T, boundary string, body []byte) {
		parts := multipart.NewReader(bytes.NewReader(body), boundary)
		values, left := map[string][]string{}, int64(1000)
		for {
			part, err := parts.NextPart()
			if err != nil {
				break
			}
			if left, err = readField(part, values, left); err != nil {
				return
			}
			if left < 0 {
				t.Fatalf("%q: %d bytes are left", body, left)
			}
		}
		fields, err := fieldsAsJSON(values)
		if err != nil {
			return
		}
		if !json.Valid(fields) || !utf8.Valid(fields) {
			t.Errorf("%q makes %q", body, fields)
		}
	})
}

// FuzzFileName checks that the name of an upload is a plain file name in any directory.
func FuzzFileName(f *testing.F) {
	for _, s := range []string{"a.pdf", "../../etc/passwd", `C:\x\y.txt`, "..", "\x00", strings.Repeat("ä", 300), "a\u202e.txt", "/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		got := fileName(name)
		if got == "" || got == "." || got == ".." || strings.ContainsAny(got, "/\\\x00\r\n") || !utf8.ValidString(got) || utf8.RuneCountInString(got) > 200 {
			t.Errorf("%q becomes %q", name, got)
		}
	})
}
