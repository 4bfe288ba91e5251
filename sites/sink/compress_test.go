package sink

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCompress(t *testing.T) {
	t.Parallel()
	want := []byte(strings.Repeat(`{"_key":"a","name":"words"}`+"\n", 1000))
	for how, ext := range Compressions {
		path := filepath.Join(t.TempDir(), "item.jsonl")
		if err := os.WriteFile(path, want, 0o600); err != nil {
			t.Fatal(err)
		}
		small, err := Compress(path, how, mine)
		if err != nil || small != path+ext {
			t.Fatal(small, err)
		}
		data, err := os.ReadFile(small)
		if err != nil || len(data) > len(want)/10 {
			t.Errorf("%s: got %d bytes, %v", how, len(data), err)
		}
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s: got the plain file, want it removed", how)
		}
		for range 2 { // the second has nothing to do
			if err := Restore(path, mine); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: got %d bytes back, %v", how, len(got), err)
		}
	}
	if err := Restore(filepath.Join(t.TempDir(), "none"), mine); err != nil {
		t.Error(err)
	}
	if _, err := Compress("x", "rar", mine); err == nil {
		t.Error("an unknown compression: got no error, want one")
	}
}
