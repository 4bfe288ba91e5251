package crawl

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/sites/fetch"
	"muster/sites/internal/sitetest"
	"muster/sites/internal/store"
	"muster/tasks"
)

// asExtractor is the environment variable with which TestMain runs the test binary as an extractor.
const asExtractor = "MUSTER_TEST_EXTRACTOR"

// runExtractor is the command of an extractor: it reads a page and prints the JSON of its item, or fails.
func runExtractor(how string) {
	var in struct{ Site, Kind, URL, Body string }
	if err := json.NewDecoder(os.Stdin).Decode(&in); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	out, code := answer(how, in.Body)
	fmt.Print(out)
	if code != http.StatusOK {
		fmt.Fprint(os.Stderr, "Traceback: no such lamp")
		os.Exit(1)
	}
	if how == "hang" {
		select {}
	}
}

// answer is the response of an extractor to the page of an item.
func answer(how, body string) (string, int) {
	_, name, _ := strings.Cut(body, "<h1 class=name>")
	name, _, _ = strings.Cut(name, "</h1>")
	switch how {
	case "no JSON":
		return "<html>", http.StatusOK
	case "long":
		return `"` + strings.Repeat("x", 10<<20) + `"`, http.StatusOK
	case "fail":
		return "", http.StatusInternalServerError
	case "hang":
		return "", http.StatusOK
	}
	return fmt.Sprintf(`{"items": [{"name": %q, "size": "12"}, {"name": "", "size": "1"}]}`, name), http.StatusOK
}

const extractorYAML = `site: lamps
base_url: %s
start: [/]
listing: {next: a.next, links: .item a}
detail: {must_have: h1.name}
records: {lamp: {each_json: 'items[*]', key: [name], fields: {name: {json: name, required: true}, size: {json: size, type: integer}}}}
politeness: {delay: 0, robots: false, max_per_domain: 4}
retries: {attempts: 1, base: 1ms, cap: 5ms}
extractor: {%s}
`

// An extractor in another process gets each page, and its JSON has the records of the page. One that fails fails its pages.
func TestExtractors(t *testing.T) {
	t.Parallel()
	shop := sitetest.NewShop(t, 2, 3)
	for how, want := range map[string]string{
		"": "", "no JSON": `invalid JSON: "<html>"`, "long": "more than 8 MiB", "fail": "no such lamp", "hang": "no JSON within extractor.timeout (1s)",
	} {
		service := testutil.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var in struct{ Body string }
			if json.NewDecoder(r.Body).Decode(&in) != nil || r.Header.Get("Authorization") != "Bearer key" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			out, code := answer(how, in.Body)
			if how == "hang" {
				<-r.Context().Done()
				return
			}
			w.WriteHeader(code)
			if fmt.Fprint(w, out); code != http.StatusOK {
				fmt.Fprint(w, "no such lamp")
			}
		}))
		for by, keys := range map[string]string{"url": "key: key, url: '" + service.URL + "'", "command": "command: lamps"} {
			t.Run(strings.TrimSpace(by+" "+how), func(t *testing.T) {
				t.Parallel()
				keys := keys + ", timeout: 1m"
				if how == "hang" {
					keys = strings.Replace(keys, "1m", "1s", 1)
				}
				command := "/usr/bin/env " + asExtractor + "=" + strings.ReplaceAll(how, " ", "_") + " " + testutil.Must(os.Executable())(t)
				sum := scrapeOn(t, 1, fmt.Sprintf(extractorYAML, shop.URL, keys), func(cfg *Config) { cfg.Fetch.Extractors = map[string]string{"lamps": command} })
				if want == "" {
					if names := sitetest.ReadKeys(t, sum.Files[0], "name"); sum.Records != 6 || !names["Item 5"] || sum.Invalid != 6 || sum.Errors != 0 {
						t.Errorf("got %+v, want 6 records and 6 invalid ones", sum)
					}
					return
				}
				if sum.ByClass[fetch.Extractor] != 6 || len(sum.Samples) == 0 || !strings.Contains(sum.Samples[0].Error, want) || sum.Samples[0].Attempts != 1 {
					t.Errorf("got %+v, want 6 pages that failed after a retry with %q", sum.Counts, want)
				}
			})
		}
	}
}

// A definition cannot run a command that the settings do not name.
func TestDefinitionsRunOnlyCommandsOfTheSettings(t *testing.T) {
	t.Parallel()
	ran := filepath.Join(t.TempDir(), "ran")
	def := sitetest.Parse(t, []byte(fmt.Sprintf(extractorYAML, "http://127.0.0.1:1", "command: touch "+ran)))
	client := tasks.NewClient(redistest.New(t))
	t.Cleanup(func() { _ = client.Close() })
	s, err := New(Config{Client: client, OutDir: t.TempDir(), Logger: noLog, Fetch: fetch.Config{Extractors: map[string]string{"lamps": "true"}}})
	testutil.Ok(t, err)
	work(t, client, s)
	run := testutil.Must(store.Scrape(requestOf(t, def, s.cfg.OutDir, ScrapeOptions{})).Send(t.Context(), client))(t)
	if _, err := run.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), fetch.ErrNoExtractor.Error()) {
		t.Errorf("got %v, want that the settings have no such command", err)
	}
	if _, err := os.Stat(ran); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the command ran: %v", err)
	}
}
