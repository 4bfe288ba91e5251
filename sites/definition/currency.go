package definition

import (
	"slices"

	"golang.org/x/text/currency"
)

// newCurrencies are ISO 4217 codes that x/text does not have yet.
var newCurrencies = []string{"MRU", "SLE", "UYW", "VED", "VES", "XCG", "ZWG"}

// Currencies returns the ISO 4217 codes of current currencies, sorted.
func Currencies() []string {
	codes := slices.Clone(newCurrencies)
	for q := currency.Query(); q.Next(); {
		codes = append(codes, q.Unit().String())
	}
	slices.Sort(codes)
	return slices.Compact(codes)
}

// IsCurrency reports whether an upper-case string is an ISO 4217 code, current or historical.
func IsCurrency(code string) bool {
	_, err := currency.ParseISO(code)
	return err == nil || slices.Contains(newCurrencies, code)
}
