package sink

import (
	"os"
	"path/filepath"
	"testing"
)

func TestWriteCSV(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in, out := filepath.Join(dir, "r.jsonl"), filepath.Join(dir, "r.csv")
	const lines = `{"_key":"1","name":"a \"b\", c","n":12345678901234567890,"ok":true,"tags":["x","y"],"price":{"amount":1.5,"currency":"EUR"},"more":"left out"}
{"_key":"2","name":"=HYPERLINK(1)","n":-1.5,"tags":[{"a":1}]}
{"_key":"3","name":"-5","tags":["=1","ü\nz"]}
`
	if err := os.WriteFile(in, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := WriteCSV(in, out, []string{"_key", "name", "n", "ok", "tags", "price"}, mine); err != nil {
		t.Fatal(err)
	}
	const want = "_key,name,n,ok,tags,price\r\n" +
		"1,\"a \"\"b\"\", c\",12345678901234567890,true,x; y,\"{\"\"amount\"\":1.5,\"\"currency\"\":\"\"EUR\"\"}\"\r\n" +
		"2,'=HYPERLINK(1),-1.5,,\"[{\"\"a\"\":1}]\",\r\n" +
		"3,-5,,,\"'=1; ü\r\nz\",\r\n"
	got, err := os.ReadFile(out)
	if err != nil || string(got) != want {
		t.Errorf("got\n%q, %v, want\n%q", got, err, want)
	}
	if err := os.WriteFile(in, []byte("nonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := WriteCSV(in, out, []string{"a"}, mine); err == nil {
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
