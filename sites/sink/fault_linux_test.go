package sink

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/testutil/faultdisk"
)

// writeRecords writes records and does with their file what a job does.
func writeRecords(path string) error {
	s, err := OpenJSONL(path, mine)
	if err != nil {
		return err
	}
	for _, key := range []string{"a", "b", "c"} {
		if _, err := s.Put(key, fmt.Appendf(nil, `{"_key":%q,"text":%q}`, key, strings.Repeat(key, 100))); err != nil {
			return errors.Join(err, s.Close())
		}
	}
	if err := errors.Join(s.Sync(), s.Close()); err != nil {
		return err
	}
	if err := Reclaim(path, mine); err != nil {
		return err
	}
	return WriteCSV(path, strings.TrimSuffix(path, ".jsonl")+".csv", []Column{{"_key"}}, mine)
}

// Whichever call to the disk fails, records that were synced stay, and when all is done again each is there once.
func TestEachFailingCallOfTheFiles(t *testing.T) {
	t.Parallel()
	faultdisk.Each(t, func(dir string) error {
		return writeRecords(filepath.Join(dir, "records.jsonl"))
	}, func(dir string, failed faultdisk.Call, _ error) {
		path := filepath.Join(dir, "records.jsonl")
		if err := writeRecords(path); err != nil {
			t.Errorf("%s failed: got %v when the disk is well again", failed, err)
		}
		text, err := os.ReadFile(path)
		var keys []string
		for line := range strings.Lines(string(text)) {
			_, rest, _ := strings.Cut(line, `{"_key":"`)
			key, _, _ := strings.Cut(rest, `"`)
			keys = append(keys, key)
			if want := fmt.Sprintf("{\"_key\":%q,\"text\":%q}\n", key, strings.Repeat(key, 100)); line != want {
				t.Errorf("%s failed: got the line %q, want %q", failed, line, want)
			}
		}
		if got := strings.Join(keys, ""); err != nil || got != "abc" {
			t.Errorf("%s failed: got the records %q, %v, want abc", failed, got, err)
		}
		if csv, err := os.ReadFile(filepath.Join(dir, "records.csv")); err != nil || string(csv) != "_key\r\na\r\nb\r\nc\r\n" {
			t.Errorf("%s failed: got the table %q, %v, want a, b and c", failed, csv, err)
		}
		left, _ := filepath.Glob(filepath.Join(dir, ".*"))
		if len(left) > 0 && failed.Name != "remove" {
			t.Errorf("%s failed: got %v left behind, want none", failed, left)
		}
	})
}
