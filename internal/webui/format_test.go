package webui

import "testing"

func TestPlainTextHidesNothing(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"äöü\n\tשלום": "äöü\n\tשלום", "a\u202eb\u2066c": `a\u202eb\u2066c`, "\x1b[31m\x00": `\u001b[31m\u0000`, "\xff": `\ufffd`, "": "",
	} {
		if got := Plain(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
