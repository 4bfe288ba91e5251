// Package dnstest resolves names in tests, without a name server.
package dnstest

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"

	"golang.org/x/net/dns/dnsmessage"
)

// Resolver returns a resolver that calls lookup for the IPv4 address of each name, without its trailing dot. If lookup returns the
// zero Addr, the name does not exist. Names in the hosts file of the machine, such as localhost, are resolved without lookup.
func Resolver(lookup func(name string) netip.Addr) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go serve(server, lookup)
		return client, nil
	}}
}

// Loopback returns the loopback address for names below .test, and the zero Addr for other names.
func Loopback(name string) netip.Addr {
	if len(name) > 5 && name[len(name)-5:] == ".test" {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.Addr{}
}

// serve handles the queries on a connection until it is closed or a query is invalid.
func serve(conn net.Conn, lookup func(string) netip.Addr) {
	defer conn.Close()
	for {
		var size [2]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		raw := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(conn, raw); err != nil {
			return
		}
		var query dnsmessage.Message
		if query.Unpack(raw) != nil || len(query.Questions) != 1 {
			return
		}
		q := query.Questions[0]
		reply := dnsmessage.Message{Header: dnsmessage.Header{ID: query.ID, Response: true, RecursionAvailable: true}, Questions: query.Questions}
		name := q.Name.String()
		addr := lookup(name[:len(name)-1])
		switch {
		case !addr.IsValid():
			reply.RCode = dnsmessage.RCodeNameError
		case q.Type == dnsmessage.TypeA:
			reply.Answers = []dnsmessage.Resource{{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class},
				Body:   &dnsmessage.AResource{A: addr.As4()},
			}}
		}
		packed, err := reply.Pack()
		if err != nil {
			return
		}
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(packed))), packed...)); err != nil {
			return
		}
	}
}
