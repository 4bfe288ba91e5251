package sink

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/testutil"
	"muster/sites/definition"
)

func open(t *testing.T, path string) *JSONL {
	t.Helper()
	s := testutil.Must(OpenJSONL(path))(t)
	return s
}

func TestRecordsAreWrittenOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a", "r.jsonl")
	put := func(s *JSONL, key string, want bool) {
		t.Helper()
		got, err := s.Put(key, []byte(`{"_key":"`+key+`"}`))
		if err != nil || got != want {
			t.Errorf("put %s: got %v, %v, want %v", key, got, err, want)
		}
	}
	s := open(t, path)
	put(s, "a", true)
	put(s, "b", true)
	put(s, "a", false)
	testutil.Ok(t, errors.Join(s.Sync(), s.Close()))
	s = open(t, path)
	put(s, "b", false)
	put(s, "c", true)
	if s.Count() != 3 {
		t.Errorf("counts %d, want 3", s.Count())
	}
	testutil.Ok(t, errors.Join(s.Sync(), s.Close()))
	data, err := os.ReadFile(path)
	if want := "{\"_key\":\"a\"}\n{\"_key\":\"b\"}\n{\"_key\":\"c\"}\n"; err != nil || string(data) != want {
		t.Errorf("got %q, %v, want %q", data, err, want)
	}
}

// After a crash in the last line, records are appended after the last complete one.
func TestIncompleteLineIsCutOff(t *testing.T) {
	t.Parallel()
	const whole = "{\"_key\":\"a\"}\n"
	const last = "{\"_key\":\"b\",\"text\":\"é\"}\n"
	for cut := 0; cut <= len(last); cut++ {
		path := filepath.Join(t.TempDir(), "r.jsonl")
		testutil.Ok(t, os.WriteFile(path, []byte(whole+last[:cut]), 0o600))
		s := open(t, path)
		testutil.Must(s.Put("b", []byte(strings.TrimSuffix(last, "\n"))))(t)
		testutil.Ok(t, errors.Join(s.Sync(), s.Close()))
		if got, _ := os.ReadFile(path); string(got) != whole+last {
			t.Errorf("cut after %d: got %q", cut, got)
		}
	}
	path := filepath.Join(t.TempDir(), "r.jsonl")
	testutil.Ok(t, os.WriteFile(path, []byte(whole+"\x00\x00\x00\n"), 0o600))
	if s := open(t, path); s.Count() != 1 {
		t.Errorf("a last line of zeros: got %d records, want it cut off", s.Count())
	}
}

func TestOtherFilesAreNotChanged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "notes.txt")
	const notes = "some notes\nmore\n"
	testutil.Ok(t, os.WriteFile(path, []byte(notes), 0o600))
	if _, err := OpenJSONL(path); err == nil || !strings.Contains(err.Error(), "is not a JSONL file") {
		t.Errorf("got %v, want a refusal", err)
	}
	if got, _ := os.ReadFile(path); string(got) != notes {
		t.Errorf("got %q, want the file unchanged", got)
	}
	if _, err := OpenJSONL(filepath.Join(path, "below")); err == nil {
		t.Error("a folder that cannot be created: got no error, want one")
	}
	if _, err := OpenJSONL(dir); err == nil {
		t.Error("a folder in place of the file: got no error, want one")
	}
}

func TestFullDiskIsAnError(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("no /dev/full here")
	}
	f, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	s := open(t, filepath.Join(t.TempDir(), "r.jsonl"))
	_ = s.f.Close()
	s.f = f
	s.w.Reset(f)
	if _, err := s.Put("a", []byte("{}")); err != nil {
		t.Fatalf("a buffered write fails: %v", err)
	}
	if err := s.Sync(); err == nil {
		t.Error("a full disk: got no error, want one")
	}
	if _, err := s.Put("b", []byte("{}")); err == nil {
		t.Error("Put after a failed write: got no error, want one")
	}
	_ = s.Close()
}

// A file that is removed or replaced during writing is restored completely.
func TestRemovedFileIsRestored(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(path string) error{
		"file":   os.Remove,
		"folder": func(path string) error { return os.RemoveAll(filepath.Dir(path)) },
		"other": func(path string) error {
			return errors.Join(os.Remove(path), os.WriteFile(path, []byte("{}\n"), 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "a", "r.jsonl")
			s := open(t, path)
			put := func(key string) {
				t.Helper()
				testutil.Must(s.Put(key, fmt.Appendf(nil, `{"_key":%q}`, key)))(t)
			}
			put("a")
			testutil.Ok(t, errors.Join(s.Sync(), harm(path)))
			put("b")
			if err := s.Sync(); err == nil || !strings.Contains(err.Error(), "has been restored") {
				t.Errorf("got %v, want an error that it was restored", err)
			}
			testutil.Ok(t, s.Close())
			s = open(t, path)
			defer s.Close()
			put("c")
			if err := s.Sync(); err != nil || s.Count() != 3 {
				t.Errorf("got %d records, %v; want 3", s.Count(), err)
			}
		})
	}
}

func TestWriteCSV(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in, out := filepath.Join(dir, "r.jsonl"), filepath.Join(dir, "r.csv")
	const lines = `{"_key":"1","name":"a \"b\", c","n":12345678901234567890,"ok":true,"tags":["x","y"],"price":{"amount":1.5,"currency":"EUR"},"seller":{"name":"=A","fee":{"amount":2,"currency":"BGN"},"more":1},"any":{"x":[1]},"more":"left out"}
{"_key":"2","name":"=HYPERLINK(1)","n":-1.5,"tags":[{"a":1}]}
{"_key":"3","name":"-5","tags":["=1","ü\nz"],"price":{"amount":9},"seller":"text"}
`
	def, err := definition.Parse("s.yaml", []byte(`site: s
base_url: http://s.example
start: [/]
detail: {format: json}
records:
  r:
    fields:
      name: {json: name}
      n: {json: n, type: number}
      ok: {json: ok, type: bool}
      tags: {json: tags, type: list}
      price: {json: price, type: price}
      seller: {json: seller, fields: {name: {json: name}, fee: {json: fee, type: price}}}
      any: {json: any, type: object}
`))
	testutil.Ok(t, err)
	testutil.Ok(t, os.WriteFile(in, []byte(lines), 0o600))
	testutil.Ok(t, WriteCSV(in, out, append([]Column{{"_key"}}, Columns(def.Records[0].Fields)...)))
	const want = "_key,name,n,ok,tags,price.amount,price.currency,seller.name,seller.fee.amount,seller.fee.currency,any\r\n" +
		"1,\"a \"\"b\"\", c\",12345678901234567890,true,x; y,1.5,EUR,=A,2,BGN,\"{\"\"x\"\":[1]}\"\r\n" +
		"2,=HYPERLINK(1),-1.5,,\"[{\"\"a\"\":1}]\",,,,,,\r\n" +
		"3,-5,,,\"=1; ü\r\nz\",9,,,,,\r\n"
	got, err := os.ReadFile(out)
	if err != nil || string(got) != want {
		t.Errorf("got\n%q, %v, want\n%q", got, err, want)
	}
	testutil.Ok(t, os.WriteFile(in, []byte("nonsense\n"), 0o600))
	if err := WriteCSV(in, out, []Column{{"a"}}); err == nil {
		t.Error("a file that is not JSONL: got no error, want one")
	}
	if again, _ := os.ReadFile(out); string(again) != want {
		t.Error("after an error: got a changed file, want it unchanged")
	}
	left, err := filepath.Glob(filepath.Join(dir, ".csv-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("got the files %v, %v, want no temporary ones", left, err)
	}
}
