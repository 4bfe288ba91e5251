package definition

import (
	"slices"

	"golang.org/x/text/currency"
)

// newCurrencies are the codes of ISO 4217 that x/text does not have yet.
var newCurrencies = []string{"MRU", "SLE", "UYW", "VED", "VES", "XCG", "ZWG"}

// Currencies returns the codes of ISO 4217 of the currencies that are in use, sorted.
func Currencies() []string {
	codes := slices.Clone(newCurrencies)
	for q := currency.Query(); q.Next(); {
		codes = append(codes, q.Unit().String())
	}
	slices.Sort(codes)
	return slices.Compact(codes)
}

// IsCurrency reports whether a text in upper case is a code of ISO 4217, also of a currency that is no longer used.
func IsCurrency(code string) bool {
	_, err := currency.ParseISO(code)
	return err == nil || slices.Contains(newCurrencies, code)
}
