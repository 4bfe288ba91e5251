package definition

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/text/currency"
)

func TestIsCurrency(t *testing.T) {
	t.Parallel()
	for _, code := range strings.Fields("EUR XOF KWD BTN DEM SLE VES") {
		if !IsCurrency(code) {
			t.Errorf("%s: got no currency, want one", code)
		}
	}
	for _, code := range strings.Fields("QQQ EURO EU $") {
		if IsCurrency(code) {
			t.Errorf("%s: got a currency, want none", code)
		}
	}
	if codes := Currencies(); len(codes) < 150 || !slices.Contains(codes, "XOF") || !slices.Contains(codes, "SLE") || slices.Contains(codes, "DEM") {
		t.Errorf("got %q, want the currencies in use", codes)
	}
	for _, code := range newCurrencies {
		if _, err := currency.ParseISO(code); err == nil {
			t.Errorf("%s: x/text has it, take it out of newCurrencies", code)
		}
	}
}
