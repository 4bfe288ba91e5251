package source

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"muster/internal/testutil"
)

// A gateway yields a candidate for each country and session. Secrets may contain any characters and are not printed.
func TestGateway(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key")
	testutil.Ok(t, os.WriteFile(file, []byte("p@ss:w/${x}{country}\n"), 0o600))
	f := &Fetcher{Getenv: func(name string) (string, bool) {
		v, ok := map[string]string{"GATE_USER": "me@home", "country": "a variable"}[name]
		return v, ok
	}}
	for name, test := range map[string]struct {
		source Source
		want   []string // user password address variant country
	}{
		"in the password": {Source{Name: "paid", Gateway: "http://${GATE_USER}:${file:" + file + "}_country-{country}_session-{session}@gate.example.org:31112", Countries: []string{"BG", "Romania"}, Sessions: 2}, []string{
			"me@home p@ss:w/${x}{country}_country-BG_session-00000001 gate.example.org:31112 BG.1 BG",
			"me@home p@ss:w/${x}{country}_country-BG_session-00000002 gate.example.org:31112 BG.2 BG",
			"me@home p@ss:w/${x}{country}_country-Romania_session-00000001 gate.example.org:31112 Romania.1 ",
			"me@home p@ss:w/${x}{country}_country-Romania_session-00000002 gate.example.org:31112 Romania.2 ",
		}},
		"in the user name":       {Source{Name: "paid", Gateway: "socks5h://u-{session}:p@gate.example.org:7000", Sessions: 1}, []string{"u-00000001 p gate.example.org:7000 1 "}},
		"in the host":            {Source{Name: "paid", Gateway: "http://u:p@{country}.gate.example.org:7000", Countries: []string{"bg"}}, []string{"u p bg.gate.example.org:7000 bg BG"}},
		"no placeholders":        {Source{Name: "paid", Gateway: "http://u:p@gate.example.org:7000"}, []string{"u p gate.example.org:7000  "}},
		"without credentials":    {Source{Name: "paid", Gateway: "http://gate.example.org:7000"}, []string{"  gate.example.org:7000  "}},
		"variable named country": {Source{Name: "paid", Gateway: "http://u:${country}@gate.example.org:1"}, []string{"u a variable gate.example.org:1  "}},
	} {
		list, err := f.Fetch(t.Context(), test.source)
		if err != nil || list.Source != "paid" {
			t.Errorf("%s: got %v, %v", name, list, err)
			continue
		}
		var got, keys []string
		for _, c := range list.Candidates {
			got = append(got, strings.Join([]string{c.Username, c.Password, c.Address(), c.Variant, c.Country}, " "))
			if strings.Contains(c.Key()+c.String(), "p@ss") || !slices.Equal(c.Sources, []string{"paid"}) {
				t.Errorf("%s: got %s with key %s of %q", name, c, c.Key(), c.Sources)
			}
			keys = append(keys, c.Key())
		}
		if !slices.Equal(got, test.want) || len(slices.Compact(keys)) != len(got) {
			t.Errorf("%s: got %q\nwant %q, each with a unique key", name, got, test.want)
		}
		if b, err := json.Marshal(test.source); err != nil || strings.Contains(string(b), "gate") {
			t.Errorf("%s: got %s, %v: the JSON must not contain the gateway", name, b, err)
		}
	}
}

func TestInvalidGateways(t *testing.T) {
	t.Parallel()
	const address = "http://u:hunter2@gate.example.org:1"
	for want, s := range map[string]Source{
		"mutually exclusive":                        {Name: "x", URL: "http://a.b/", Gateway: address},
		"requires a name":                           {Gateway: address},
		"use http":                                  {Name: "x", Gateway: "u:hunter2@gate.example.org:1"},
		"with one of the schemes http, https":       {Name: "x", Gateway: "ftp://u:hunter2@gate.example.org:1"},
		"use http://USER":                           {Name: "x", Gateway: "http://u:hunter2@gate.example.org"},
		"use http://USER:PASSWORD":                  {Name: "x", Gateway: address + "/path"},
		"{country} and countries":                   {Name: "x", Gateway: "http://u-{country}:hunter2@gate.example.org:1"},
		"countries require each other":              {Name: "x", Gateway: address, Countries: []string{"bg"}},
		"sessions require each other":               {Name: "x", Gateway: address, Sessions: 2},
		"{session} and sessions":                    {Name: "x", Gateway: "http://u-{session}:hunter2@gate.example.org:1"},
		"more than 10000 sessions":                  {Name: "x", Gateway: "http://u-{session}-{country}:hunter2@gate.example.org:1", Sessions: 5001, Countries: []string{"bg", "ro"}},
		`country "${HOME}"`:                         {Name: "x", Gateway: "http://u-{country}:hunter2@gate.example.org:1", Countries: []string{"${HOME}"}},
		"environment variable UNSET_KEY is not set": {Name: "x", Gateway: "http://u:${UNSET_KEY}@gate.example.org:1"},
	} {
		list, err := (&Fetcher{Getenv: func(string) (string, bool) { return "", false }}).Fetch(t.Context(), s)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") || len(list.Candidates) > 0 {
			t.Errorf("got %v and %v, want %s", list, err, want)
		}
	}
}
