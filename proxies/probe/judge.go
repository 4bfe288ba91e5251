package probe

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// Paths of a judge.
const (
	echoPath    = "/echo"    // the request as the judge received it, in JSON; see envelope
	pagePath    = "/page"    // a page whose exact bytes the prober computes too
	missingPath = "/missing" // the same page with status 404
)

// Limits on requests to a judge.
const (
	maxNonce     = 64
	maxRawHeader = 32 << 10
)

// JudgeConfig configures a judge.
type JudgeConfig struct {
	// Key signs the responses, so that a proxy cannot forge them. Probers need the same key. Defaults to none, which
	// is safe only while no proxy recognizes the judge.
	Key string
	// Listen lists the addresses for plain HTTP. Defaults to 127.0.0.1 on a free port.
	Listen []string
	// ListenTLS is the TLS address. Its certificate is generated at start; each response carries the fingerprint.
	// Defaults to a free port of the first host in Listen. "-" disables TLS.
	ListenTLS string
	// TLSPort is the public port of the TLS address, if it differs from the port in ListenTLS, for example with
	// port forwarding. Defaults to the port in ListenTLS.
	TLSPort string
	// Logger defaults to none.
	Logger *slog.Logger
}

// A Judge is an HTTP server that returns each request as it arrived: peer address, request line and headers. Proxies
// are compared with its responses to direct requests. Serve it with [StartJudge].
type Judge struct {
	secret atomic.Pointer[string] // the signing key; nil if there is none
	tls    *tlsHint
}

func (j *Judge) key() string {
	if key := j.secret.Load(); key != nil {
		return *key
	}
	return ""
}

// Echo describes a request as the judge received it.
type Echo struct {
	Nonce   string      `json:"nonce"`
	Serial  string      `json:"serial"` // unique for each response
	Peer    netip.Addr  `json:"peer"`
	Line    string      `json:"line"`            // the request line
	Headers [][2]string `json:"headers"`         // name and value, in any order
	TLS     *tlsHint    `json:"tls,omitempty"`   // the TLS address of the judge
	Secure  bool        `json:"secure,omitzero"` // the request arrived over TLS
}

type tlsHint struct {
	Port        string `json:"port"`
	Fingerprint string `json:"fingerprint"` // hex SHA-256 of the certificate
}

// envelope carries an Echo with the MAC of its exact bytes.
type envelope struct {
	Echo json.RawMessage `json:"echo"`
	MAC  string          `json:"mac"`
}

func sign(key string, message []byte) string {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write(message)
	return hex.EncodeToString(mac.Sum(nil))
}

// ServeHTTP serves /echo, /page and /missing, each with the query n=NONCE. Other paths return 404.
func (j *Judge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	nonce := r.URL.Query().Get("n")
	if len(nonce) > maxNonce || strings.ContainsFunc(nonce, func(c rune) bool { return (c < '0' || c > '9') && (c < 'a' || c > 'z') }) {
		http.Error(w, "invalid nonce n: must be at most 64 digits and lower-case letters", http.StatusBadRequest)
		return
	}
	remote, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		http.Error(w, "no peer address", http.StatusInternalServerError)
		return
	}
	peer := remote.Addr().Unmap().WithZone("")
	w.Header().Set("Connection", "close")
	w.Header().Set("Cache-Control", "no-store, no-transform")

	switch r.URL.Path {
	case echoPath:
		echo := Echo{Nonce: nonce, Serial: newNonce(), Peer: peer, Line: r.Method + " " + r.RequestURI + " " + r.Proto, TLS: j.tls, Secure: r.TLS != nil}
		for name, values := range r.Header {
			for _, value := range values {
				echo.Headers = append(echo.Headers, [2]string{name, value})
			}
		}
		body, err := json.Marshal(echo)
		if err != nil {
			http.Error(w, "encode echo", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(envelope{Echo: body, MAC: sign(j.key(), body)})
	case pagePath, missingPath:
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		if r.URL.Path == missingPath {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = io.WriteString(w, page(j.key(), nonce, peer))
	default:
		http.NotFound(w, r)
	}
}

// page returns a small HTML page with the elements that injectors modify: head, body, link and script.
func page(key, nonce string, peer netip.Addr) string {
	mark := nonce + " " + peer.String()
	return "<!DOCTYPE html>\n<html><head><title>Muster judge</title><meta name=\"description\" content=\"" + mark + "\">" +
		"<script>/* nothing */</script></head>\n<body><h1>" + sign(key, []byte(mark)) + "</h1>\n" +
		strings.Repeat("<p>This page is compared byte by byte. <a href=\"/\">Nothing</a> may be added to it.</p>\n", 8) +
		"</body></html>\n"
}

// A JudgeServer is a running judge. Stop it with Close.
type JudgeServer struct {
	URLs   []string // plain HTTP, one per address
	TLSURL string   // empty without TLS

	servers []*http.Server
	group   errgroup.Group
	judge   *Judge
}

// SetKey replaces the signing key for subsequent responses.
func (s *JudgeServer) SetKey(key string) { s.judge.secret.Store(&key) }

// StartJudge listens on all addresses of cfg and serves until Close.
func StartJudge(cfg JudgeConfig) (*JudgeServer, error) {
	if len(cfg.Listen) == 0 {
		cfg.Listen = []string{"127.0.0.1:0"}
	}
	judge := &Judge{}
	judge.secret.Store(&cfg.Key)
	s := &JudgeServer{judge: judge}
	var listeners []net.Listener
	fail := func(err error) (*JudgeServer, error) {
		for _, l := range listeners {
			l.Close()
		}
		return nil, err
	}
	for _, addr := range cfg.Listen {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return fail(fmt.Errorf("listen for judge: %w; choose another address, or port 0 for any free port", err))
		}
		listeners = append(listeners, l)
		s.URLs = append(s.URLs, "http://"+l.Addr().String())
	}
	if cfg.ListenTLS != "-" {
		addr := cfg.ListenTLS
		if addr == "" {
			host, _, _ := net.SplitHostPort(cfg.Listen[0])
			addr = net.JoinHostPort(host, "0")
		}
		cert, err := SelfSigned("judge.muster")
		if err != nil {
			return fail(fmt.Errorf("generate judge certificate: %w", err))
		}
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return fail(fmt.Errorf("listen for judge: %w; choose another address, or port 0 for any free port", err))
		}
		sum := sha256.Sum256(cert.Certificate[0])
		_, port, _ := net.SplitHostPort(l.Addr().String())
		judge.tls = &tlsHint{Port: cmp.Or(cfg.TLSPort, port), Fingerprint: hex.EncodeToString(sum[:])}
		listeners = append(listeners, tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}))
		s.TLSURL = "https://" + l.Addr().String()
	}

	logger := cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	for _, l := range listeners {
		server := &http.Server{
			Handler:           judge,
			ReadHeaderTimeout: 10 * time.Second,
			ReadTimeout:       15 * time.Second,
			WriteTimeout:      15 * time.Second,
			MaxHeaderBytes:    maxRawHeader,
			ErrorLog:          log.New(io.Discard, "", 0), // clients are proxies, which abort connections all the time
		}
		s.servers = append(s.servers, server)
		s.group.Go(func() error {
			if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				logger.Error("judge server failed", "err", err)
				return err
			}
			return nil
		})
	}
	return s, nil
}

// Close stops listening, closes open connections and waits for the server goroutines.
func (s *JudgeServer) Close() error {
	for _, server := range s.servers {
		server.Close()
	}
	return s.group.Wait()
}

// SelfSigned returns a new certificate that no system trusts, for hosts.
func SelfSigned(hosts ...string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: "muster judge"},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().AddDate(10, 0, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:     hosts,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
