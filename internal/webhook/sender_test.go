package webhook

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"muster/internal/addressfilter"
	"muster/internal/testutil"
)

// local returns a sender that may connect to this machine.
func local(t *testing.T, timeout time.Duration) *Sender {
	t.Helper()
	f := testutil.Must(addressfilter.New(addressfilter.Local()...))(t)
	s := NewSender(f, timeout)
	t.Cleanup(s.Close)
	return s
}

func TestResponsesAreClassified(t *testing.T) {
	t.Parallel()
	server := testutil.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var status int
		_, _ = fmt.Sscanf(r.URL.Path, "/%d", &status)
		if r.URL.Query().Has("after") {
			w.Header().Set("Retry-After", r.URL.Query().Get("after"))
		}
		if status/100 == 3 {
			w.Header().Set("Location", "http://169.254.169.254/latest/meta-data")
		}
		w.WriteHeader(status)
		if status != http.StatusNoContent {
			_, _ = io.WriteString(w, "the\n database\x00 is down")
		}
	}))
	s := local(t, time.Minute)
	for path, want := range map[string]Result{
		"/200":              {Outcome: Delivered, Status: 200},
		"/202?after=9":      {Outcome: Delivered, Status: 202},
		"/204":              {Outcome: Delivered, Status: 204},
		"/410":              {Outcome: Gone, Status: 410},
		"/302":              {Outcome: Refused, Status: 302},
		"/308":              {Outcome: Refused, Status: 308},
		"/400":              {Outcome: Refused, Status: 400},
		"/404":              {Outcome: Refused, Status: 404},
		"/408":              {Outcome: Failed, Status: 408},
		"/429?after=120":    {Outcome: Failed, Status: 429, RetryAfter: 2 * time.Minute},
		"/429?after=x":      {Outcome: Failed, Status: 429},
		"/503?after=999999": {Outcome: Failed, Status: 503, RetryAfter: 24 * time.Hour},
		"/500":              {Outcome: Failed, Status: 500},
	} {
		got := s.Send(t.Context(), Request{URL: server.URL + path, ID: "1-0", Body: []byte("{}")})
		err := got.Err
		if got.Err = nil; got != want {
			t.Errorf("%s: got %+v, want %+v", path, got, want)
		}
		if (err == nil) != (want.Outcome == Delivered) {
			t.Errorf("%s: got error %v", path, err)
		}
		if want.Status >= 400 && !strings.HasSuffix(err.Error(), ": the database is down") {
			t.Errorf("%s: got error %q, want the body on one line", path, err)
		}
	}
}

// A receiver can verify a request.
func TestRequestsAreSigned(t *testing.T) {
	t.Parallel()
	secret := NewSecret()
	server := testutil.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if err := Verify(r.Header, body, time.Now(), secret); err != nil || r.Header.Get("webhook-id") != "7-1" || r.Method != http.MethodPost {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	a := local(t, time.Minute).Send(t.Context(), Request{URL: server.URL, ID: "7-1", Body: []byte(`{"a":1}`), Secrets: []string{secret}})
	if a.Outcome != Delivered {
		t.Errorf("got %+v, want it delivered", a)
	}
}

// Redirects and names that resolve to an internal address are rejected.
func TestInternalAddressesAreRejected(t *testing.T) {
	t.Parallel()
	var hits atomic.Int64
	server := testutil.Serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	s := NewSender(nil, time.Minute)
	t.Cleanup(s.Close)
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	for _, url := range []string{server.URL, "http://localhost:" + port, "http://[::ffff:127.0.0.1]:" + port, "http://169.254.169.254/", "http://10.0.0.1/"} {
		a := s.Send(t.Context(), Request{URL: url, ID: "1-0"})
		if a.Outcome != Refused || !addressfilter.Is(a.Err) {
			t.Errorf("%s: got %+v, want it rejected by the filter", url, a)
		}
	}
	if n := hits.Load(); n > 0 {
		t.Errorf("got %d requests, want none", n)
	}
}

// The status decides the outcome. An endless body costs a second, and a huge one is not read.
func TestEndlessBodiesAreBounded(t *testing.T) {
	t.Parallel()
	done := make(chan struct{}, 2)
	server := testutil.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { done <- struct{}{} }()
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/drip" {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done() // until the sender closes the connection
			return
		}
		for {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	}))
	s := local(t, time.Minute)
	for _, path := range []string{"/drip", "/huge"} {
		if a := s.Send(t.Context(), Request{URL: server.URL + path, ID: "1-0"}); a.Outcome != Delivered {
			t.Errorf("%s: got %+v, want it delivered", path, a)
		}
		<-done
	}
}

func TestSilentReceiversAreUnreachable(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	silent := testutil.Serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hang }))
	t.Cleanup(func() { close(hang) })
	closing := testutil.Serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	down := httptest.NewServer(nil)
	down.Close()
	wrong := httptest.NewTLSServer(nil) // its certificate is not trusted
	wrong.Config.ErrorLog = nil
	t.Cleanup(wrong.Close)
	s := local(t, 50*time.Millisecond)
	for url, want := range map[string]string{
		silent.URL: "timeout waiting for a response", down.URL: "connection refused", closing.URL: "connection closed without a response",
	} {
		if a := s.Send(t.Context(), Request{URL: url + "/?token=secret", ID: "1-0"}); a.Outcome != Unreachable || a.Err.Error() != want {
			t.Errorf("got %+v, want %q", a, want)
		}
	}
	patient := local(t, time.Minute)
	if a := patient.Send(t.Context(), Request{URL: wrong.URL, ID: "1-0"}); a.Outcome != Unreachable || !strings.Contains(a.Err.Error(), "certificate") {
		t.Errorf("got %+v, want an error of the certificate", a)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if a := patient.Send(ctx, Request{URL: silent.URL, ID: "1-0"}); a.Outcome != Unreachable {
		t.Errorf("got %+v, want it to stop with its context", a)
	}
}
