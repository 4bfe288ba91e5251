package extract

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestNumber(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text, locale string
		want         float64
	}{
		{"1.234,56", "de", 1234.56}, {"1,234.56", "en", 1234.56}, {"1 234,56", "fr", 1234.56}, {"1'234.56", "ch", 1234.56},
		{"1’234.56", "ch", 1234.56}, {"1\u00a0234,56 €", "fr", 1234.56}, {"1\u202f234,56", "fr", 1234.56}, {"1\u2009234", "auto", 1234},
		{"1,23,456.78", "in", 123456.78}, {"12,34,567", "in", 1234567}, {"1.234", "de", 1234}, {"1.234", "en", 1.234}, {"1,234", "en", 1234}, {"1,234", "de", 1.234},
		{"150.000 EUR", "auto", 150000}, {"89.500,00 €", "auto", 89500}, {"1.234", "auto", 1234}, {"1,234", "auto", 1234}, {"1.5", "auto", 1.5}, {"1,5", "auto", 1.5},
		{"0.125", "auto", 0.125}, {"1234.567", "auto", 1234.567}, {"1.234.567", "auto", 1234567}, {"1,234,567.89", "auto", 1234567.89}, {"1.234.567,89", "auto", 1234567.89},
		{"£51.77", "auto", 51.77}, {"$1,299", "en", 1299}, {"US$ 1,299.00", "en", 1299}, {"12 лв.", "bg", 12}, {"89 500 лв", "bg", 89500}, {"1 000 000", "auto", 1000000},
		{"-5", "auto", -5}, {"−5,5", "de", -5.5}, {"- 5", "auto", -5}, {"$-5.50", "en", -5.5}, {"-$5.50", "en", -5.5}, {"10-20", "auto", 10}, {"A-5", "auto", 5},
		{".5", "en", 0.5}, {"5.", "en", 5}, {"Total: 42 items", "auto", 42}, {"In stock (22 available)", "auto", 22}, {"3.5/5", "auto", 3.5}, {"50%", "auto", 50},
		{"１２３", "auto", 123}, {"٣٫٥", "auto", 3.5}, {"1 2 3", "auto", 1}, {"2024 100", "auto", 2024}, {"1.5", "de", 1.5}, {"12,5", "en", 12.5}, {"12.05.2024", "de", 12.05},
		{"1 234.567", "auto", 1234.567}, {"12'345'678", "auto", 12345678}, {"1e5", "auto", 1},
	} {
		got, err := Number(c.text, c.locale)
		if err != nil || math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%q in %s: got %v, %v, want %v", c.text, c.locale, got, err, c.want)
		}
	}
	for _, text := range []string{"", "none", "€", "-", ".,"} {
		if got, err := Number(text, "auto"); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
}

func TestInteger(t *testing.T) {
	t.Parallel()
	if got, err := Integer("9 007 199 254 740 993 pieces", "auto"); err != nil || got != 9007199254740993 {
		t.Errorf("got %d, %v", got, err)
	}
	if got, err := Integer("4.5", "en"); err == nil {
		t.Errorf("4.5: got %d, want an error", got)
	}
}

func TestPrice(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Price{
		"£51.77": {51.77, "GBP"}, "1.299,00 €": {1299, "EUR"}, "CHF 12'000.-": {12000, "CHF"}, "R$ 10": {10, "BRL"}, "$10": {10, "USD"},
		"120 000 лв": {120000, "BGN"}, "12": {12, ""}, "EUR 5": {5, "EUR"}, "1 500 руб.": {1500, "RUB"},
	} {
		if got, err := ParsePrice(text, "auto"); err != nil || got != want {
			t.Errorf("%q: got %+v, %v, want %+v", text, got, err, want)
		}
	}
}

// What is written in a locale is read back in it.
func TestNumberRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cents := rapid.Int64Range(-1e12, 1e12).Draw(t, "cents")
		locale := rapid.SampledFrom([]string{"en", "de", "fr", "ch"}).Draw(t, "locale")
		group := map[string]string{"en": ",", "de": ".", "fr": "\u202f", "ch": "’"}[locale]
		point := map[string]string{"en": ".", "de": ",", "fr": ",", "ch": "."}[locale]
		text := write(cents, group, point)
		got, err := Number("um "+text+" Stück", locale)
		if want := float64(cents) / 100; err != nil || math.Abs(got-want) > 1e-3 {
			t.Fatalf("%q in %s: got %v, %v, want %v", text, locale, got, err, want)
		}
	})
}

func write(cents int64, group, point string) string {
	sign := ""
	if cents < 0 {
		sign, cents = "-", -cents
	}
	digits := []byte{}
	whole := cents / 100
	for i := 0; ; i++ {
		if i > 0 && i%3 == 0 {
			digits = append([]byte(group), digits...)
		}
		digits = append([]byte{byte('0' + whole%10)}, digits...)
		if whole /= 10; whole == 0 {
			break
		}
	}
	return sign + string(digits) + point + string([]byte{byte('0' + cents%100/10), byte('0' + cents%10)})
}
