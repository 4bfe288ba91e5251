package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"muster/proxies"
	"muster/proxies/probe"
	"muster/proxies/proxytest"
)

// A user name accepts only known options with valid values. Values may contain dashes.
func TestUserOptions(t *testing.T) {
	t.Parallel()
	const id = "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed"
	for user, want := range map[string]proxies.PickOptions{
		"":                                 {},
		"me":                               {},
		"me-session-" + id:                 {Sticky: "gateway:" + id},
		"me-session-" + id + "-country-bg": {Sticky: "gateway:" + id, Filter: proxies.Filter{Countries: []string{"BG"}}},
		"me-ttl-1h-protocol-socks5":        {StickyFor: time.Hour, Filter: proxies.Filter{Protocols: []string{"socks5"}}},
		"me-anonymity-elite":               {Filter: proxies.Filter{Anonymity: probe.Elite}},
	} {
		if got, err := withUser(proxies.PickOptions{}, user); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%q: got %+v, %v, want %+v", user, got, err, want)
		}
	}
	for user, want := range map[string]string{
		"web-crawler":            `unknown option "crawler"`,
		"me-sesion-a":            `unknown option "sesion"`,
		"me-":                    `unknown option ""`,
		"me-session":             "session has no value",
		"me-session-country-bg":  "session has no value",
		"me-session-a-session-b": "duplicate option session",
		"me-ttl-0s":              "invalid ttl",
		"me-ttl-25h":             "invalid ttl",
		"me-country-bgr":         "invalid country",
		"me-country-b1":          "invalid country",
		"me-anonymity-Elite":     `unknown anonymity "Elite"; use one of transparent, anonymous, elite`,
		"me-anonymity-eliet":     "unknown anonymity",
		"me-protocol-htp":        "unknown protocol",
		"me-country-":            "country has no value",
		"me-strategy-fastest":    `unknown option "strategy"`,
	} {
		if _, err := withUser(proxies.PickOptions{}, user); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", user, err, want)
		}
	}
}

// Keys are compared as a whole, and a client with too many failures is rejected for a minute, even with a valid key.
func TestLogins(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		l := &logins{logger: slog.New(slog.NewTextHandler(&log, nil))}
		l.setKeys([]string{"another key", "correct horse battery staple"})
		for password, want := range map[string]error{"correct horse battery staple": nil, "another key": nil, "correct": errNoKey, "staple": errNoKey, "": errNoKey} {
			if err := l.check("192.0.2.9", password); !errors.Is(err, want) {
				t.Errorf("%q: got %v, want %v", password, err, want)
			}
		}
		var mu sync.Mutex
		var guesses int
		var wg sync.WaitGroup
		for i := range 5000 { // concurrent guesses count too
			wg.Go(func() {
				if errors.Is(l.check("192.0.2.1", fmt.Sprint("guess", i)), errNoKey) {
					mu.Lock()
					guesses++
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if n := strings.Count(log.String(), "\n"); guesses != maxFailures || n != 1 {
			t.Errorf("got %d guesses and %d lines in the log, want %d and 1:\n%s", guesses, n, maxFailures, log.String())
		}
		for client, want := range map[string]bool{"192.0.2.1": true, "192.0.2.2": false} {
			if _, blocked := errors.AsType[*blockedError](l.check(client, "another key")); blocked != want {
				t.Errorf("%s: got blocked %v, want %v", client, blocked, want)
			}
		}
		time.Sleep(failureWindow)
		if err := l.check("192.0.2.1", "another key"); err != nil {
			t.Errorf("got %v after a minute, want no error", err)
		}
		for i := range 2 * maxClients {
			_ = l.check(fmt.Sprint(i), "wrong key") // most share the counter of further clients
		}
		if n := len(l.failures); n > maxClients+1 {
			t.Errorf("got %d clients in memory, want at most %d", n, maxClients+1)
		}
		if _, blocked := errors.AsType[*blockedError](l.check("203.0.113.1", "another key")); !blocked {
			t.Error("got a further client in, want it blocked together with the others")
		}
	})
}

// Clients of every protocol are rejected after too many failed logins. HTTP clients receive the reason.
func TestFailedLoginsAreLimited(t *testing.T) {
	t.Parallel()
	f := newFront(t, Config{Keys: []string{"open-sesame"}}, kinds(1, proxytest.Elite)...)
	for range maxFailures {
		_, _ = fetch(t, f.client(t, "socks5", url.UserPassword("me", "wrong")), "http://shop.example/")
	}
	good := url.UserPassword("me", "open-sesame")
	if status, body := fetch(t, f.client(t, "http", good), "http://shop.example/"); status != http.StatusTooManyRequests || !strings.Contains(body, "retry after") {
		t.Errorf("got %d %q, want 429 and a retry time", status, body)
	}
	if status, body := fetch(t, f.client(t, "socks5", good), "http://shop.example/"); status != 0 {
		t.Errorf("socks5: got %d %q, want no connection", status, body)
	}
	if err := f.gateway.SetKeys([]string{"long enough", "short"}); err == nil || !strings.Contains(err.Error(), "key 2 is too short") {
		t.Errorf("got %v, want key 2 to be too short", err)
	}
}
