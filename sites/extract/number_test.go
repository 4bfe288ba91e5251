package extract

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"muster/sites/definition"
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
		{"89.500,00 €", "auto", 89500}, {"1.5", "auto", 1.5}, {"1,5", "auto", 1.5},
		{"0.125", "auto", 0.125}, {"1234.567", "auto", 1234.567}, {"1.234.567", "auto", 1234567}, {"1,234,567.89", "auto", 1234567.89}, {"1.234.567,89", "auto", 1234567.89},
		{"£51.77", "auto", 51.77}, {"$1,299", "en", 1299}, {"US$ 1,299.00", "en", 1299}, {"12 лв.", "bg", 12}, {"89 500 лв", "bg", 89500}, {"1 000 000", "auto", 1000000},
		{"-5", "auto", -5}, {"−5,5", "de", -5.5}, {"- 5", "auto", -5}, {"$-5.50", "en", -5.5}, {"-$5.50", "en", -5.5}, {"10-20", "auto", 10}, {"A-5", "auto", 5},
		{".5", "en", 0.5}, {"5.", "en", 5}, {"Total: 42 items", "auto", 42}, {"In stock (22 available)", "auto", 22}, {"3.5/5", "auto", 3.5}, {"50%", "auto", 50},
		{"No.5", "auto", 5}, {"３，０００円", "ja", 3000}, {"１２３", "auto", 123}, {"٣٫٥", "auto", 3.5}, {"1 2 3", "auto", 1}, {"2024 100", "auto", 2024}, {"1.5", "de", 1.5}, {"12,5", "en", 12.5}, {"12.05.2024", "de", 12.05},
		{"1 234.567", "auto", 1234.567}, {"12'345'678", "auto", 12345678}, {"1e5", "auto", 1},
		// By the digits.
		{"1 234,56 €", "auto", 1234.56}, {"1'234.50", "auto", 1234.5}, {"12,34,567.00", "auto", 1234567}, {"₹12,34,567", "auto", 1234567}, {"от 1 200 лв.", "auto", 1200}, {"1.200 лв.", "bg", 1200},
		{"1200.50 лв.", "bg", 1200.5}, {"12,- €", "auto", 12}, {"12.– CHF", "ch", 12}, {"EUR 1.000.000,-", "auto", 1000000}, {"12 345 678,90 zł", "auto", 12345678.9}, {"1,500 kg", "en", 1500}, {"1,500", "fr", 1.5}, {"0.500", "auto", 0.5},
		{"10 – 20 €", "auto", 10}, {"1 234 56", "auto", 1234}, {"1.2345", "auto", 1.2345}, {"١٬٢٣٤", "auto", 1234}, {"1,23,456", "auto", 123456}, {"1,234.5", "de", 1234.5}, {"1.234,5", "en", 1234.5},
		{"CHF 1'234.–", "ch", 1234}, {"Kč 1 234", "auto", 1234}, {"192.168.0.1", "auto", 192.168}, {"12.345", "en", 12.345}, {"$ 1.299.000", "auto", 1299000}, {"1,299,000đ", "auto", 1299000}, {"00012", "auto", 12}, {"(5.00)", "auto", 5},
		// With countries, and languages that write like others.
		{"1.234", "de-DE", 1234}, {"1.234", "de_CH", 1.234}, {"1'234.50", "fr-CH", 1234.5}, {"1 234,50", "ru", 1234.5}, {"1.234,50", "pt-BR", 1234.5}, {"1,234", "es-MX", 1234}, {"1.234", "es-ES", 1234}, {"1,234", "ja", 1234}, {"12,34,567", "en-IN", 1234567},
		// Words that are not magnitudes.
		{"5 milk bottles", "auto", 5}, {"5 mlnx", "auto", 5}, {"5 m", "auto", 5}, {"5 tissues", "auto", 5},
		{"4K screen", "auto", 4}, {"5km", "auto", 5}, {"5M2", "auto", 5}, {"12 l", "auto", 12}, {"9007199254740992", "auto", 1 << 53}, {"-1000000000000000000", "auto", -1e18},
		// Digits of other scripts, and the languages that have them.
		{"१२३", "hi", 123}, {"১২৩", "bn", 123}, {"۱۲۳٫۵", "fa", 123.5}, {"١٬٢٣٤٫٥", "ar", 1234.5}, {"๑๒๓", "th", 123}, {"1,234.5", "he", 1234.5}, {"1.234,5", "ca", 1234.5}, {"1 234,5", "hy", 1234.5},
	} {
		got, err := Number(c.text, c.locale)
		if err != nil || math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%q in %s: got %v, %v, want %v", c.text, c.locale, got, err, c.want)
		}
	}
	for _, text := range []string{"", "none", "€", "-", ".,", "1.234", "1,234 kg", "３，０００円", "1.2k reviews", "12k", "3.4M", "1.5K", "2,3 млн. лв.", "1.5 million", "3 хил. лева", "12 тыс. руб.", "1,2 Mio. €", "3万5000円", "1億2000万円", "5 lakh", "5 mil", "1 ½ cups", "½", "2¼", "USB cable 5M", "3M tape, 5 rolls",
		"9007199254740993", "-9007199254740993", "1234567890123456789", "9.007.199.254.740.993", strings.Repeat("9", 400)} {
		if got, err := Number(text, "auto"); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
}

// Without a locale, the language of the page applies.
func TestNumberByLanguageOfThePage(t *testing.T) {
	t.Parallel()
	for lang, want := range map[string]string{`lang="en-US"`: "1.234", `lang=bg`: "1234", "": ""} {
		if got, _ := fieldValue(t, "{css: b, type: number}", "<html "+lang+"><b>1.234 kg</b>"); got != want {
			t.Errorf("%s: got %s, want %s", lang, got, want)
		}
	}
}

func TestInteger(t *testing.T) {
	t.Parallel()
	if got, err := Integer("9 007 199 254 740 993 pieces", "auto"); err != nil || got != 9007199254740993 {
		t.Errorf("got %d, %v", got, err)
	}
	// Without decimals a group of three digits is unambiguous.
	for text, want := range map[string]int64{"1.234": 1234, "1,234 items": 1234, "9223372036854775807": math.MaxInt64} {
		if got, err := Integer(text, "auto"); err != nil || got != want {
			t.Errorf("%q: got %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"4.5", "1.2k", "2,3 млн", "9223372036854775808", strings.Repeat("9", 400)} {
		if got, err := Integer(text, "en"); err == nil {
			t.Errorf("%s: got %d, want an error", text, got)
		}
	}
}

// Whole numbers in JSON stay exact or are unparsed.
func TestBigNumbersOfJSON(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("9", 400)
	for text, want := range map[string][3]string{ // as number, integer and text
		"9007199254740993":    {"", "9007199254740993", `"9007199254740993"`},
		"9007199254740994":    {"9007199254740994", "9007199254740994", `"9007199254740994"`},
		"1234567890123456789": {"", "1234567890123456789", `"1234567890123456789"`},
		"1e18":                {"1000000000000000000", "1000000000000000000", `"1e18"`},
		"1.5e3":               {"1500", "1500", `"1.5e3"`},
		"1e400":               {"", "", `"1e400"`},
		long:                  {"", "", `"` + long + `"`},
	} {
		def := define(t, "listing: {format: json}\nrecords:\n  r: {from: listing, fields: {number: {json: v, type: number}, integer: {json: v, type: integer}, text: {json: v}}}\n")
		res, err := Run(def, page(t, def, definition.KindListing, "http://shop.example/p", `{"v": `+text+`}`))
		if err != nil || len(res.Records) != 1 {
			t.Fatal(err, res)
		}
		got := map[string]string{}
		for _, v := range res.Records[0].Fields {
			b, _ := json.Marshal(v.Value)
			got[v.Name] = string(b)
		}
		if got["number"] != want[0] || got["integer"] != want[1] || got["text"] != want[2] {
			t.Errorf("%.30s: got %.99v, want %.99v", text, got, want)
		}
		if f := res.Faults["r.number"]; (f.Unparsed == 1) != (want[0] == "") {
			t.Errorf("%.30s: got %+v, want it unparsed: %v", text, f, want[0] == "")
		}
	}
}

func TestPrice(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Price{
		"150.000 EUR": {150000, "EUR"}, "1,234 €": {1234, "EUR"}, "CUP 12.50": {12.5, "CUP"}, "12 XDR": {12, "XDR"}, "SET 5": {5, ""}, "cup 5": {5, ""},
		"£51.77": {51.77, "GBP"}, "1.299,00 €": {1299, "EUR"}, "CHF 12'000.-": {12000, "CHF"}, "R$ 10": {10, "BRL"}, "$10": {10, "USD"},
		"120 000 лв": {120000, "BGN"}, "12": {12, ""}, "EUR 5": {5, "EUR"}, "1 500 руб.": {1500, "RUB"},
		"12€50": {12.5, "EUR"}, "12 € 50": {12.5, "EUR"}, "12 € 500 g": {12, "EUR"}, "5 € 20% off": {5, "EUR"}, "¥1,234": {1234, "JPY"}, "от 1 200 лв.": {1200, "BGN"}, "1 299:-": {1299, ""},
		"3 for £10": {10, "GBP"}, "2x 19,90 €": {19.9, "EUR"}, "100 g = 2,50 €": {2.5, "EUR"}, "10 % off: 90,00 €": {90, "EUR"}, "$10 – $20": {10, "USD"}, "10 – 20 €": {10, "EUR"}, "10 to 20 EUR": {10, "EUR"}, "Was £20 Now £15": {20, "GBP"}, "-€5,00": {-5, "EUR"}, "size 42": {42, ""}, "12 l": {12, ""}, "Model 3 €39.990": {39990, "EUR"}, "Model 3 EUR 39.990": {3, "EUR"}, "12 €50": {50, "EUR"}, "5 € 3 pcs": {5, "EUR"},
		"AU$49.95": {49.95, "AUD"}, "CA$12": {12, "CAD"}, "C$12": {12, "CAD"}, "NT$1,299": {1299, "TWD"}, "MX$1,299.00": {1299, "MXN"}, "1.299,90 TL": {1299.9, "TRY"}, "12,000원": {12000, "KRW"}, "Rp 1.299.000": {1299000, "IDR"}, "RM 1,299.00": {1299, "MYR"}, "5.000.000 đ": {5000000, "VND"}, "۳٬۴۵۶٫۷۸ ر.س": {3456.78, "SAR"},
		"Rs. 12,34,567.00": {1234567, ""}, "₹ 99": {99, "INR"}, "PLN 12,50": {12.5, "PLN"}, "1.299,90 kr": {1299.9, ""}, "99 000 дин.": {99000, "RSD"},
	} {
		if got, err := ParsePrice(text, "auto", ""); err != nil || got != want {
			t.Errorf("%q: got %+v, %v, want %+v", text, got, err, want)
		}
	}
}

// The letter after a price may be a unit.
func TestPriceWithMagnitudeIsAnError(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"$1.5M", "€120k", "120 k €", "1.5 M", "5 mil", "4 rooms, 2,3 млн. лв.", "$9007199254740993"} {
		if got, err := ParsePrice(text, "en", ""); err == nil {
			t.Errorf("%s: got %+v, want an error", text, got)
		}
	}
}

// The locale decides the currency of a shared sign.
func TestPriceOfLocale(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text, locale string
		want         Price
	}{
		{"1 299 kr", "sv", Price{1299, "SEK"}}, {"kr 1 299,-", "nb", Price{1299, "NOK"}}, {"129,95 kr.", "da-DK", Price{129.95, "DKK"}}, {"4.990 kr", "is", Price{4990, "ISK"}}, {"129,95 kr", "de", Price{129.95, ""}},
		{"¥1,234", "zh", Price{1234, "CNY"}}, {"¥1,234", "ja", Price{1234, "JPY"}}, {"120元", "zh-TW", Price{120, "TWD"}}, {"Rs. 1,23,456", "en-IN", Price{123456, "INR"}}, {"Rs 500", "en-PK", Price{500, "PKR"}},
		{"$5", "en-CA", Price{5, "CAD"}}, {"$5", "en-AU", Price{5, "AUD"}}, {"$ 1.299", "es-CL", Price{1299, "CLP"}}, {"US$5", "en-CA", Price{5, "USD"}}, {"$5", "en", Price{5, "USD"}}, {"$5 CAD", "en", Price{5, "CAD"}},
		{"Fr. 12.–", "de-CH", Price{12, "CHF"}}, {"SFr. 12.50", "en", Price{12.5, "CHF"}}, {"R 1 234,50", "en-ZA", Price{1234.5, "ZAR"}}, {"12,50 KM", "bs", Price{12.5, "BAM"}}, {"1 234 р.", "ru", Price{1234, "RUB"}}, {"99 грн", "auto", Price{99, "UAH"}},
		{"12 Euro", "de", Price{12, "EUR"}}, {"5 rooms, 12 euros", "en", Price{12, "EUR"}}, {"12 евро", "auto", Price{12, "EUR"}}, {"99 zl", "pl", Price{99, "PLN"}}, {"1 234 kč", "cs", Price{1234, "CZK"}},
		{"99¢", "en", Price{0.99, "USD"}}, {"50p", "en-GB", Price{0.5, "GBP"}}, {"£1.50", "en-GB", Price{1.5, "GBP"}}, {"50p", "en", Price{50, ""}}, {"12 pcs", "en-GB", Price{12, ""}},
		{"Rosa 5 R", "de", Price{5, ""}}, {"5 km", "bs", Price{5, ""}},
	} {
		if got, err := ParsePrice(c.text, c.locale, ""); err != nil || got != c.want {
			t.Errorf("%q in %s: got %+v, %v, want %+v", c.text, c.locale, got, err, c.want)
		}
	}
}

// A number formatted in a locale parses to itself.
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
