package extract

import (
	"fmt"
	"regexp"
	"strings"
)

// Floor is on which floor of a building something is. Of the ground floor
// the number is 0, below it they are negative.
type Floor struct {
	Floor int `json:"floor"`
	Of    int `json:"of,omitempty"` // how many floors the building has, as far as the text tells
}

var (
	floorOf     = regexp.MustCompile(`(-?\d{1,3})(?:\s*[/\\]\s*|[^\d]{0,20}?[^\d\pL](?:от|из|з|of|von|de|di|sur|z)\s+(?:общо\s+)?)(\d{1,3})`)
	floorBuilt  = regexp.MustCompile(`(\d{1,3})\s?[階层層]建|[共总總全]\s?(\d{1,3})\s?[层層楼樓]`) // how many the building has
	floorNumber = regexp.MustCompile(`-?\d{1,3}`)
	groundWords = []string{"партер", "приземен", "цокол", "ground floor", "erdgeschoss", "erdgeschoß", "rez-de-chauss", "planta baja", "piano terra", "pianterreno", "parter", "přízemí", "prizemi", "begane grond"}
	belowWords  = []string{"сутерен", "мазе", "подвал", "basement", "untergeschoss", "souterrain", "sous-sol", "sótano", "seminterrato", "suteren", "地下"}
	groundForm  = regexp.MustCompile(`^(?:eg|gf|rdc|pb)\b`)
	totalForm   = regexp.MustCompile(`(?:от|из|з|of|von|de|sur|z|/)\s*(\d{1,3})`)
)

// ParseFloor reads a floor: "4-ти от 8", "3/5", "ground floor", "партер от 5",
// "2. OG", "floor 7".
func ParseFloor(text string) (Floor, error) {
	t := strings.ToLower(Fold(text))
	total := 0
	if m := totalForm.FindStringSubmatch(t); m != nil {
		total = number2(m[1])
	}
	has := func(words []string) bool {
		for _, w := range words {
			if strings.Contains(t, w) {
				return true
			}
		}
		return false
	}
	switch {
	case has(belowWords):
		return Floor{-1, total}, nil
	case has(groundWords) || groundForm.MatchString(t):
		return Floor{0, total}, nil
	}
	if m := floorBuilt.FindStringSubmatch(t); m != nil {
		total = number2(m[1] + m[2])
		t = strings.Replace(t, m[0], " ", 1)
		if m := floorNumber.FindString(t); m != "" {
			return Floor{number2(m), total}, nil
		}
	}
	if m := floorOf.FindStringSubmatch(t); m != nil {
		return Floor{number2(m[1]), number2(m[2])}, nil
	}
	if m := floorNumber.FindString(t); m != "" {
		return Floor{Floor: number2(m)}, nil
	}
	return Floor{}, fmt.Errorf("no floor in %q", clip(text))
}
