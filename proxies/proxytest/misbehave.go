package proxytest

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"muster/proxies/probe"
)

// misbehave serves one connection of a kind that violates HTTP.
func (p *Proxy) misbehave(conn net.Conn) {
	in := bufio.NewReader(conn)
	if _, err := in.Peek(1); err != nil {
		return
	}
	if !p.pause() {
		return
	}
	switch p.Kind {
	case HangsUp:
	case Noise:
		noise := make([]byte, 512)
		_, _ = rand.Read(noise)
		noise[0] |= 0x80 // never the start of a valid response
		_, _ = conn.Write(noise)
	case HalfResponse:
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{\"echo\":")
	case Endless, Huge:
		part := "X-Filler: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n"
		if p.Kind == Huge {
			part = "\r\nlorem ipsum "
		}
		_, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\n")
		for chunk := bytes.Repeat([]byte(part), 1000); err == nil; {
			_, err = conn.Write(chunk)
		}
	case Dribble:
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for i := 0; ; i++ {
			if _, err := conn.Write([]byte("HTTP/1.1 200 OK\r\n"[i%17 : i%17+1])); err != nil {
				return
			}
			select {
			case <-tick.C:
			case <-p.ctx.Done():
				return
			}
		}
	case Replays:
		p.serveReplay(conn, in)
	}
}

// serveReplay forwards the first request of the proxy and repeats its response for all later requests.
func (p *Proxy) serveReplay(conn net.Conn, in *bufio.Reader) {
	request, err := http.ReadRequest(in)
	if err != nil || !request.URL.IsAbs() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.replay == nil {
		target, err := p.dialTarget(p.ctx, "tcp", request.URL.Host)
		if err != nil {
			return
		}
		defer target.Close()
		_ = target.SetDeadline(time.Now().Add(time.Minute))
		request.Close = true
		if err := request.Write(target); err != nil {
			return
		}
		p.replay, _ = io.ReadAll(target)
	}
	_, _ = conn.Write(p.replay)
}

// certificate returns an untrusted certificate, shared by all proxies.
var certificate = sync.OnceValues(func() (tls.Certificate, error) { return probe.SelfSigned("judge.muster", "localhost") })
