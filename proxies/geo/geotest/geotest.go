// Package geotest creates small address databases for tests.
package geotest

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Database writes a small .mmdb of IPv4 networks and returns its path. As specified, it has a search tree with 24-bit
// records, a data section and metadata.
func Database(tb testing.TB, networks map[string]map[string]any) string {
	tb.Helper()
	type node [2]int // index of a child, -1 for none, or -2-n for value n
	tree := []node{{-1, -1}}
	var data bytes.Buffer
	var offsets []int
	var prefixes []string
	for prefix := range networks {
		prefixes = append(prefixes, prefix)
	}
	slices.Sort(prefixes)
	for _, text := range prefixes {
		prefix := netip.MustParsePrefix(text)
		value := -2 - len(offsets)
		offsets = append(offsets, data.Len())
		encode(tb, &data, networks[text])
		at, bits := 0, prefix.Addr().As4()
		for i := range prefix.Bits() {
			bit := bits[i/8] >> (7 - i%8) & 1
			if i == prefix.Bits()-1 {
				tree[at][bit] = value
				break
			}
			if tree[at][bit] < 0 {
				tree = append(tree, node{-1, -1})
				tree[at][bit] = len(tree) - 1
			}
			at = tree[at][bit]
		}
	}
	var out bytes.Buffer
	for _, n := range tree {
		for _, child := range n {
			switch {
			case child == -1:
				child = len(tree)
			case child < -1:
				child = len(tree) + 16 + offsets[-2-child]
			}
			out.Write([]byte{byte(child >> 16), byte(child >> 8), byte(child)})
		}
	}
	out.Write(make([]byte, 16))
	out.Write(data.Bytes())
	out.WriteString("\xab\xcd\xefMaxMind.com")
	encode(tb, &out, map[string]any{
		"binary_format_major_version": uint16(2), "binary_format_minor_version": uint16(0), "build_epoch": uint64(1), "database_type": "Test",
		"description": map[string]any{"en": "test"}, "ip_version": uint16(4), "node_count": uint32(len(tree)), "record_size": uint16(24),
	})
	path := filepath.Join(tb.TempDir(), "test.mmdb")
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}

// encode writes a value of the data section: a string, an unsigned number or a small map.
func encode(tb testing.TB, out *bytes.Buffer, value any) {
	tb.Helper()
	number := func(kind byte, v uint64) {
		text := bytes.TrimLeft(binary.BigEndian.AppendUint64(nil, v), "\x00")
		if kind == 9 { // extended type
			out.WriteByte(byte(len(text)))
			out.WriteByte(kind - 7)
		} else {
			out.WriteByte(kind<<5 | byte(len(text)))
		}
		out.Write(text)
	}
	switch v := value.(type) {
	case string:
		if len(v) < 29 {
			out.WriteByte(2<<5 | byte(len(v)))
		} else {
			out.Write([]byte{2<<5 | 29, byte(len(v) - 29)})
		}
		out.WriteString(v)
	case uint16:
		number(5, uint64(v))
	case uint32:
		number(6, uint64(v))
	case uint64:
		number(9, v)
	case map[string]any:
		out.WriteByte(7<<5 | byte(len(v)))
		var keys []string
		for key := range v {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		for _, key := range keys {
			encode(tb, out, key)
			encode(tb, out, v[key])
		}
	default:
		tb.Fatalf("unsupported type %T", value)
	}
}
