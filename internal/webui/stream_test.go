package webui

import "testing"

// Text in a page cannot start a line of the event stream.
func TestEventHasOneDataLinePerLine(t *testing.T) {
	t.Parallel()
	got := string(event("main", []byte("a\r\rdata: b\revent: main\r\n\nc")))
	if want := "event: main\ndata: a\ndata: \ndata: data: b\ndata: event: main\ndata: \ndata: c\n\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
