package ledger

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/sites/internal/lines"
)

// site is a site with records that change from job to job.
type site struct {
	t    *testing.T
	path string
	gone []string
	runs int
}

func newSite(t *testing.T) *site {
	return &site{t: t, path: filepath.Join(t.TempDir(), "ledger", "item.ledger")}
}

func (s *site) update(run string, complete bool, records ...string) {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "item.jsonl")
	testutil.Ok(s.t, os.WriteFile(file, []byte(strings.Join(append(records, ""), "\n")), 0o600))
	s.runs++
	s.gone = nil
	if err := Update(s.path, Job{Run: run, At: time.Unix(int64(s.runs)*1000, 0), Records: file, Complete: complete},
		func(e Entry) error { s.gone = append(s.gone, e.Key); return nil }); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) compare(key, record string) string {
	s.t.Helper()
	b := s.open()
	defer b.Close()
	change, diff, err := b.Compare(key, []byte(record))
	testutil.Ok(s.t, err)
	text := string(change)
	for name, d := range diff {
		text += fmt.Sprintf(" %s %s→%s", name, d[0], d[1])
	}
	return text
}

func (s *site) open() *Book {
	s.t.Helper()
	b, err := Open(s.path)
	testutil.Ok(s.t, err)
	return b
}

func (s *site) show(key string) Entry {
	s.t.Helper()
	found, err := Search(s.path, key, 10)
	if err != nil || len(found) != 1 {
		s.t.Fatalf("%s: got %v, %v, want one", key, found, err)
	}
	return found[0]
}

func rec(key string, price int) string {
	return fmt.Sprintf(`{"_type":"item","_key":%q,"_url":"http://x/%d","name":"a","price":%d}`, key, price, price)
}

func TestLedgerReportsNewAndChangedRecords(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	if got := s.compare("a", rec("a", 1)); got != "new" {
		t.Errorf("got %s", got)
	}
	s.update("j1", true, rec("a", 1), rec("b", 1), rec("c", 1), rec("a", 9))
	for record, want := range map[string]string{
		`{"_url":"other","price":1,"name":"a"}`: "unchanged",
		`{"name":"a","price":2}`:                "changed price 1→2",
		`{"name":"a"}`:                          "changed price 1→null",
		`{"name":"a","price":1,"more":null}`:    "unchanged",
		`{"name":"a","price":1,"more":[1]}`:     "changed more null→[1]",
	} {
		if got := s.compare("a", record); got != want {
			t.Errorf("%s: got %s, want %s", record, got, want)
		}
	}
	s.update("j2", false, rec("a", 2)) // it did not have everything: nothing is gone
	if len(s.gone) > 0 || s.compare("b", rec("b", 1)) != "unchanged" {
		t.Errorf("after an incomplete job: got gone %v, want none", s.gone)
	}
	s.update("j3", true, rec("a", 3), rec("d", 1))
	if fmt.Sprint(s.gone) != "[b c]" {
		t.Errorf("got gone %v, want b and c", s.gone)
	}
	s.update("j3", true, rec("a", 3), rec("d", 1)) // after a crash
	if fmt.Sprint(s.gone) != "[b c]" {
		t.Errorf("the second time got gone %v", s.gone)
	}
	s.update("j4", true, rec("a", 3), rec("d", 1))
	if len(s.gone) > 0 {
		t.Errorf("gone again: %v", s.gone)
	}
	if got := s.compare("b", rec("b", 1)); got != "new" {
		t.Errorf("one that is back: got %s, want new", got)
	}
	e := s.show("a")
	if e.First != 1000 || e.Last != 5000 || len(e.History) != 2 || string(e.History[1].Fields["price"][1]) != "3" || e.History[0].At != 2000 {
		t.Errorf("got %+v", e)
	}
	if found, err := Search(s.path, "http://x/3", 10); err != nil || len(found) != 1 || found[0].Key != "a" {
		t.Errorf("by URL: got %v, %v, want the record a", found, err)
	}
	for i := range maxMissed + 2 {
		s.update(fmt.Sprint("k", i), true, rec("a", 3))
	}
	b := s.open()
	defer b.Close()
	if len(b.index) != 1 {
		t.Errorf("%d records are known, want those forgotten that are gone for long", len(b.index))
	}
}

func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for i := range 15 {
		s.update(fmt.Sprint("j", i), true, rec("a", i))
	}
	e := s.show("a")
	if len(e.History) != maxHistory || string(e.History[9].Fields["price"][1]) != "14" || string(e.History[0].Fields["price"][0]) != "4" {
		t.Errorf("got %d steps: %+v", len(e.History), e.History)
	}
}

func TestBrokenBookIsAnError(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"x\n", `{"ledger":2,"run":"j"}` + "\n", `{"ledger":1,"run":"j"}` + "\n{\n"} {
		path := filepath.Join(t.TempDir(), "x")
		testutil.Ok(t, os.WriteFile(path, []byte(text), 0o600))
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "move the file away") {
			t.Errorf("%q: got %v", text, err)
		}
	}
}

func TestOnlyWatchedFieldsAreCompared(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.update("j1", true, rec("a", 1))
	b := testutil.Must(Open(s.path, "name"))(t)
	defer b.Close()
	if change, _, err := b.Compare("a", []byte(`{"name":"a","price":9}`)); err != nil || change != Unchanged {
		t.Errorf("a field that is not watched: got %s, %v", change, err)
	}
	if change, diff, err := b.Compare("a", []byte(`{"name":"b","price":9}`)); err != nil || change != Changed || len(diff) != 1 {
		t.Errorf("got %s %v, %v", change, diff, err)
	}
}

// FuzzOpen checks that a damaged ledger is rejected or readable.
func FuzzOpen(f *testing.F) {
	f.Add([]byte("{\"ledger\":1,\"run\":\"a\"}\n{\"key\":\"k\",\"record\":{\"a\":1}}\n"), []byte("{\"_key\":\"k\",\"a\":2}\n"))
	f.Add([]byte("{\"ledger\":1}\n{\"key\":\"k\",\"record\":null,\"missed\":-5}"), []byte("{\"_key\":\"j\"}"))
	f.Add([]byte("{\"ledger\":9}\n"), []byte("\n\n"))
	f.Add([]byte("\n"), []byte("{"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, raw, records []byte) {
		book, found := filepath.Join(dir, "x.ledger"), filepath.Join(dir, "x.jsonl")
		for path, text := range map[string][]byte{book: raw, found: records} {
			testutil.Ok(t, os.WriteFile(path, text, 0o600))
		}
		b, err := Open(book)
		if err != nil {
			return
		}
		_, _ = b.entry(b.index[lines.KeyID("k")])
		_, _, _ = b.Compare("k", records)
		testutil.Ok(t, b.Close())
		if Update(book, Job{Run: "r", Records: found, Complete: true}, func(Entry) error { return nil }) != nil {
			return
		}
		again, err := Open(book)
		if err != nil {
			t.Fatalf("%q with %q becomes a ledger that cannot be read: %v", raw, records, err)
		}
		_ = again.Close()
	})
}
