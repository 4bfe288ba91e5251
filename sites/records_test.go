package sites

import (
	"testing"

	"muster/tasks/redistest"
)

func TestSinksAreChecked(t *testing.T) {
	t.Parallel()
	s := newService(t, redistest.New(t))
	if _, _, err := s.Scrape(t.Context(), "books.toscrape.com", ScrapeOptions{Sinks: []string{"mysql://x"}}); err == nil {
		t.Error("Scrape with an invalid sink: got no error, want one")
	}
	if _, err := NewService(nil, Config{Client: s.cfg.Client, Sinks: []string{"mysql://x"}}); err == nil {
		t.Error("NewService with an invalid sink: got no error, want one")
	}
}
