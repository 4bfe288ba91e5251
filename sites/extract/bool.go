package extract

import (
	"fmt"
	"strings"
)

// truths are words for booleans: of JSON and HTML, and the availabilities of schema.org.
var truths = map[string]bool{
	"true": true, "yes": true, "1": true, "instock": true, "limitedavailability": true, "onlineonly": true, "instoreonly": true,
	"false": false, "no": false, "0": false, "outofstock": false, "soldout": false, "discontinued": false,
}

func truth(fd found) (any, error) {
	if b, ok := fd.json.(bool); ok {
		return b, nil
	}
	t := strings.ToLower(Fold(fd.text))
	t = strings.TrimPrefix(strings.TrimPrefix(t, "https://"), "http://")
	t = strings.TrimPrefix(t, "schema.org/")
	if t == "" {
		return nil, nil
	}
	if v, ok := truths[t]; ok {
		return v, nil
	}
	return nil, fmt.Errorf("%q is not a boolean; use regex to match the text that means true", clip(t))
}
