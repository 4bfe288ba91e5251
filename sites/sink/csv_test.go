package sink

import (
	"os"
	"path/filepath"
	"testing"

	"muster/internal/testutil"
	"muster/sites/definition"
)

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
