package extract

import "testing"

func TestHeaderNext(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]string{
		`</p?page=2>; rel="next", </p?page=9>; rel="last"`:             "/p?page=2",
		`</a,b?c=1,2>; rel=next`:                                       "/a,b?c=1,2",
		`</p>; title="a, <b>; rel=next"; rel=prev, </q>; rel="x NEXT"`: "/q",
		`</p>; title="a, <b>; rel=next"`:                               "",
		`</p>; rel=prev; rel=next`:                                     "",
		`</p>; rel=nexts, <>; rel=next, </q> ; rel = next`:             "/q",
		`</other>; rel=next; anchor="#top", </q>; rel=next`:            "/q",
		`broken, </q>;rel='next'`:                                      "/q",
		`</p>; rel="next`:                                              "/p",
		`<unclosed; rel=next`:                                          "",
	} {
		if got := headerNext([]string{header}); got != want {
			t.Errorf("%s: got %q, want %q", header, got, want)
		}
	}
}
