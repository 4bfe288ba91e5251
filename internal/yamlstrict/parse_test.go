package yamlstrict

import (
	"strings"
	"testing"
)

func TestParseRejectsLargeAndDeepFiles(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"brackets":      {strings.Repeat("[", 200_000), "1:65: lists and maps are nested more than 64 deep"},
		"braces":        {strings.Repeat("{a: ", 50_000), "1:257: lists and maps are nested more than 64 deep"},
		"dashes":        {strings.Repeat("- ", 100_000), "1:129: lists and maps are nested more than 64 deep"},
		"lines":         {strings.Repeat("[\n", 100_000), "65:1: lists and maps are nested more than 64 deep"},
		"size":          {strings.Repeat("a", MaxSize+1), "1:1: the file has more than 1048576 bytes"},
		"syntax":        {"a: [1\nb: 2", "2:1: ',' or ']' must be specified"},
		"as deep as ok": {strings.Repeat("[", 64) + strings.Repeat("]", 64), ""},
		"long list":     {strings.Repeat("- [1, 2]\n", 1000), ""},
		"long line":     {"a: [" + strings.Repeat("[1], ", 1000) + "]", ""},
	} {
		_, p := parse([]byte(c.text))
		if c.want == "" {
			if p != nil {
				t.Errorf("%s: got %v, want no problem", name, p)
			}
			continue
		}
		if p == nil || !strings.HasPrefix(p.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", name, p, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"[", "{a: ", "- ", "? ", "&a *a", "!!x ", "a:\n ", "|\n", "\"", "---\n", "<<: *a\n"} {
		f.Add([]byte(strings.Repeat(s, 50)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var v outer
		new(Decoder).Decode(data, &v) // must not panic
	})
}
