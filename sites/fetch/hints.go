package fetch

import "bytes"

// hints finds in one go whether any of some words stands in a page.
type hints struct {
	pairs [1 << 16 / 64]uint64 // a bit for each two bytes with which one begins
	words map[uint16][][]byte  // by these
}

// hintsOf are the hints of signs, each of two bytes or more.
func hintsOf(signs []*sign) *hints {
	h := &hints{words: map[uint16][][]byte{}}
	for _, s := range signs {
		for _, word := range s.hints {
			p := pair(word[0], word[1])
			h.pairs[p>>6] |= 1 << (p & 63)
			h.words[p] = append(h.words[p], []byte(word))
		}
	}
	return h
}

func pair(a, b byte) uint16 { return uint16(a)<<8 | uint16(b) }

func (h *hints) in(body []byte) bool {
	for i := 1; i < len(body); i++ {
		p := pair(body[i-1], body[i])
		if h.pairs[p>>6]&(1<<(p&63)) == 0 {
			continue
		}
		for _, word := range h.words[p] {
			if bytes.HasPrefix(body[i-1:], word) {
				return true
			}
		}
	}
	return false
}
